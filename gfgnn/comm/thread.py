"""Ranks that are threads of one process: for tests, and for running every rank of a plan on one machine."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

from gfgnn.comm.base import CommError, Communicator, Work, check_counts
from gfgnn.comm.hub import Hub, Slot
from gfgnn.ops.arena import copy_of

T = TypeVar("T")


class ThreadCommunicator:
    """One rank of a group of threads that share a :class:`Hub`. See :class:`Communicator`.

    Every operation leaves copies of what it sends with the hub and returns; ``wait`` takes what the others left.
    Sums are taken in order of rank, so that they are the same bits on every rank and in every run.

    Args:
        hub: shared by all threads.
        rank: this thread's rank.
        size: number of ranks.
        timeout: seconds that a wait may take before it raises :class:`CommError`, here and in all ranks.
        name: of the group, the same on all its ranks.
    """

    def __init__(self, hub: Hub, rank: int, size: int, timeout: float, name: tuple = ()) -> None:
        self.rank = rank
        self.size = size
        self._hub = hub
        self._timeout = timeout
        self._name = name
        self._collectives = 0
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()
        self._groups: list[ThreadCommunicator] = []
        self._closed = False

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        """Leaves a copy of ``x``; ``wait`` reduces in order of rank."""
        assert op in ("sum", "max"), op
        what = f"all_reduce ({purpose})"
        take = self._post_to_all([copy_of(x)] * self.size, what)

        def finish() -> Tensor:
            parts = take()
            with torch.inference_mode():  # x may be an inference tensor, and wait may be called outside
                x.copy_(parts[0])
                for part in parts[1:]:
                    if op == "sum":
                        x.add_(part)
                    else:
                        torch.maximum(x, part, out=x)
            return x

        return _Pending(finish)

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        """Leaves a copy of the rows for each rank."""
        check_counts(x, send_counts, recv_counts, self.size)
        take = self._post_to_all(list(copy_of(x).split(list(send_counts))), f"all_to_all ({purpose})")

        def finish() -> Tensor:
            parts = take()
            assert [part.size(0) for part in parts] == list(recv_counts), "recv_counts is not what was sent"
            return torch.cat(parts)

        return _Pending(finish)

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        """Leaves copies for the receivers; ``wait`` fills the tensors of ``recvs``."""
        assert self.rank not in [rank for rank, _ in [*sends, *recvs]], "a rank sends nothing to itself"
        what = f"exchange ({purpose})"
        messages = {
            Slot(self._name, "pair", _count(self._sent, rank), self.rank, rank): copy_of(tensor)
            for rank, tensor in sends
        }
        slots = [Slot(self._name, "pair", _count(self._received, rank), rank, self.rank) for rank, _ in recvs]
        self._post(messages, what)

        def finish() -> Tensor:
            with torch.inference_mode():
                for (_, tensor), message in zip(recvs, self._take(slots, what), strict=True):
                    assert (tensor.shape, tensor.dtype) == (message.shape, message.dtype), "not what was sent"
                    tensor.copy_(message)
            return torch.empty(0)

        return _Pending(finish)

    def barrier(self) -> None:
        """Waits for a message from everybody."""
        self._post_to_all([torch.empty(0)] * self.size, "barrier")()

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Sends nothing: the group's name follows from the calls made before and its ranks."""
        assert self.rank in ranks, ranks
        name = (*self._name, (len(self._groups), tuple(ranks)))
        made = ThreadCommunicator(self._hub, list(ranks).index(self.rank), len(ranks), self._timeout, name)
        self._groups.append(made)
        return made

    def close(self) -> None:
        """Ends the group and those made from it; ranks that wait for this one raise :class:`CommError`."""
        for group in self._groups:
            group.close()
        if not self._closed:
            self._closed = True
            self._hub.leave(self._name, self.rank, self.size)

    def _post_to_all(self, messages: list[Tensor], what: str) -> Callable[[], list[Tensor]]:
        """Posts one message for each rank; the function returned waits for one from each rank."""
        number = self._collectives
        self._collectives += 1
        slots = [Slot(self._name, "all", number, self.rank, other) for other in range(self.size)]
        self._post(dict(zip(slots, messages, strict=True)), what)
        return lambda: self._take(
            [Slot(self._name, "all", number, other, self.rank) for other in range(self.size)], what
        )

    def _post(self, messages: dict[Slot, Tensor], what: str) -> None:
        if self._closed:
            raise CommError(f"{what}: the communicator is closed")
        self._hub.post(messages, what)

    def _take(self, slots: list[Slot], what: str) -> list[Tensor]:
        return self._hub.take(slots, self._timeout, self._timeout, what)


class _Pending:
    """A :class:`Work` whose result ``finish`` waits for."""

    def __init__(self, finish: Callable[[], Tensor]) -> None:
        self._finish = finish
        self._result: Tensor | None = None

    def wait(self) -> Tensor:
        if self._result is None:
            self._result = self._finish()
        return self._result


def _count(counter: Counter[int], key: int) -> int:
    counter[key] += 1
    return counter[key]


def run_threads(
    size: int, function: Callable[[Communicator], T], *, timeout: float = 60.0, hub: Hub | None = None
) -> list[T]:
    """Runs ``function`` on ``size`` ranks that are threads, each with its communicator.

    If a rank raises, or Ctrl-C interrupts this call in the main thread, the waits of the other ranks raise
    :class:`CommError`. A rank that does not communicate cannot be stopped: it is left to itself after ``timeout``.

    Args:
        hub: where they meet; a :class:`gfgnn.comm.turns.TurnHub` has them work one at a time.

    Returns:
        What the function returned on each rank, in order of rank.

    Raises:
        BaseException: the first exception that a rank raised, with a note that tells which.
    """
    hub = Hub() if hub is None else hub  # an empty one is false
    results: dict[int, T] = {}
    failures: list[BaseException] = []
    ended: SimpleQueue[int] = SimpleQueue()

    def run(rank: int) -> None:
        comm = ThreadCommunicator(hub, rank, size, timeout)
        try:
            with hub.working():
                results[rank] = function(comm)
        except BaseException as error:
            error.add_note(f"Raised by rank {rank} of {size} (thread).")
            failures.append(error)  # before abort, so that it precedes the errors that follow from it
            hub.abort(error)
        finally:
            comm.close()
            ended.put(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            ended.get(timeout=timeout if failures else None)
    except Empty:
        pass
    except BaseException as error:
        hub.abort(error)
        end = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        raise
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]


__all__ = ["Hub", "ThreadCommunicator", "run_threads"]
