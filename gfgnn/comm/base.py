"""What ranks may say to each other: one protocol, with serial, thread and torch.distributed implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

#: What a message is for; the counting wrapper keeps its books by these.
PURPOSES = ("halo", "stage", "gram", "weights", "control", "setup", "evaluate")


class CommError(RuntimeError):
    """A peer has failed, or has not answered in time. The communicator cannot be used any more.

    Attributes:
        timed_out: the peer was silent until the timeout (it may hang); False where it has gone.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Work(Protocol):
    """A communication that has begun. What it was given must not be changed before :meth:`wait` has returned."""

    def wait(self) -> Tensor:
        """Blocks until the operation is complete on this rank and returns its result; a second call returns the same.

        Raises:
            CommError: a peer failed or the timeout passed.
        """
        ...


class Communicator(Protocol):
    """A group of ranks 0 .. size - 1. Unless said otherwise every rank must make the same calls in the same order.

    ``purpose`` is one of :data:`PURPOSES`. Tensors are contiguous and of the same dtype and device on all ranks.
    """

    rank: int
    size: int

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        """Sums (``op="max"``: maximises) ``x`` over the ranks, in place; ``wait`` gives ``x``.

        Every rank gets the same bits. Sends ``x``.
        """
        ...

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        """Sends ``send_counts[r]`` rows of ``x`` ``[sum(send_counts), ...]`` to each rank r, in order of rank.

        ``wait`` gives ``[sum(recv_counts), ...]``, the rows received, in order of rank; ``recv_counts`` must be what
        the others send. Counts may be zero; ``x`` may have any number of trailing dimensions.
        """
        ...

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        """Point to point: sends each ``(rank, tensor)`` and fills each ``(rank, tensor)`` received.

        Need not be called by all ranks: only by both ends of each message. Between two ranks messages are received in
        the order in which they were sent. ``wait`` returns an empty tensor; until then the tensors belong to the
        communicator.
        """
        ...

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        ...

    def group(self, ranks: Sequence[int]) -> Communicator:
        """A communicator of some of the ranks, numbered in the order given.

        Every rank of this communicator must call it at the same time with the ranks of *its own* group; the groups of
        one call are disjoint and together hold every rank.
        """
        ...

    def close(self) -> None:
        """Ends the group; may be called after a failure, too. Nothing is sent."""
        ...


class Done:
    """A :class:`Work` that is complete."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> Tensor:
        return self._result


def check_counts(x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], size: int) -> None:
    """The package's own invariant of ``all_to_all``."""
    assert len(send_counts) == len(recv_counts) == size, (send_counts, recv_counts, size)
    assert x.size(0) == sum(send_counts), (tuple(x.shape), send_counts)


__all__ = ["PURPOSES", "CommError", "Communicator", "Done", "Work", "check_counts"]
