"""What a run sends and how long it waits, by purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from torch import Tensor

from gfgnn.comm.base import PURPOSES, Communicator, Work
from gfgnn.profiling.labels import Cost, label


@dataclass
class Entry:
    """The account of one purpose.

    Attributes:
        messages: an all_to_all is one for each other rank that gets rows, an exchange one for each tensor sent, an
            all_reduce of several ranks is one.
        bytes: what these messages hold.
        seconds: spent waiting.
    """

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


class CountingCommunicator:
    """Passes everything on to another communicator and keeps books of it. See :class:`Communicator`.

    Groups made from it share its books. A barrier counts as waiting, for ``control``.

    Args:
        inner: does the work.
        trace: keep a list of the waits, too.

    Attributes:
        waits: with ``trace``, (start, end, purpose, operation) of each wait, by ``time.perf_counter``.
    """

    def __init__(self, inner: Communicator, *, trace: bool = False) -> None:
        self.rank = inner.rank
        self.size = inner.size
        self.waits: list[tuple[float, float, str, str]] = []
        self._inner = inner
        self._trace = trace
        self._books = {purpose: Entry() for purpose in PURPOSES}

    def books(self) -> dict[str, dict[str, float]]:
        """``{purpose: {"messages": ..., "bytes": ..., "seconds": ...}}`` of this rank since the last reset."""
        return {purpose: asdict(entry) for purpose, entry in self._books.items()}

    def reset(self) -> None:
        """Empties the books, and the list of waits, of this communicator and all its groups."""
        for purpose in PURPOSES:
            self._books[purpose] = Entry()
        self.waits.clear()

    def add(self, purpose: str, *, messages: int = 0, bytes: int = 0, seconds: float = 0.0) -> None:
        """Enters what went to other ranks, or was waited for, by other means than this communicator."""
        entry = self._books[purpose]
        entry.messages += messages
        entry.bytes += bytes
        entry.seconds += seconds

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        """Counts ``x`` once, unless this rank is alone."""
        messages = int(self.size > 1)
        with self._posting(purpose, "all_reduce", messages, messages * x.nbytes):
            work = self._inner.all_reduce(x, purpose=purpose, op=op)
        return _Counted(self, work, purpose, "all_reduce")

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        """Counts the rows for other ranks."""
        others = [count for rank, count in enumerate(send_counts) if rank != self.rank]
        row = x[:1].nbytes
        with self._posting(purpose, "all_to_all", sum(count > 0 for count in others), sum(others) * row):
            work = self._inner.all_to_all(x, send_counts, recv_counts, purpose=purpose)
        return _Counted(self, work, purpose, "all_to_all")

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        """Counts what is sent."""
        size = sum(tensor.nbytes for _, tensor in sends)
        with self._posting(purpose, "exchange", len(sends), size):
            work = self._inner.exchange(sends, recvs, purpose=purpose)
        return _Counted(self, work, purpose, "exchange")

    def barrier(self) -> None:
        """Counts the time."""
        with self._waiting("control", "barrier"):
            self._inner.barrier()

    def group(self, ranks: Sequence[int]) -> Communicator:
        """A counted group, with the same books. Making it counts as waiting, for ``setup``."""
        with self._waiting("setup", "group"):
            made = CountingCommunicator(self._inner.group(ranks), trace=self._trace)
        made._books = self._books
        made.waits = self.waits
        return made

    def close(self) -> None:
        """Closes the inner communicator; the books stay."""
        self._inner.close()

    def _posting(self, purpose: str, operation: str, messages: int, size: int) -> label:
        """Counts what is about to be sent; the label for sending it."""
        self._books[purpose].messages += messages
        self._books[purpose].bytes += size
        return label("exchange", operation, partial(Cost, bytes=size))

    @contextmanager
    def _waiting(self, purpose: str, operation: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with label("waiting", operation):
                yield
        finally:
            end = time.perf_counter()
            self._books[purpose].seconds += end - start
            if self._trace:
                self.waits.append((start, end, purpose, operation))


class _Counted:
    """A :class:`Work` whose waiting is timed."""

    def __init__(self, comm: CountingCommunicator, work: Work, purpose: str, operation: str) -> None:
        self._comm = comm
        self._work = work
        self._purpose = purpose
        self._operation = operation

    def wait(self) -> Tensor:
        with self._comm._waiting(self._purpose, self._operation):
            return self._work.wait()


__all__ = ["CountingCommunicator"]
