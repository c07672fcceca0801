"""A communicator that lets the launcher know when its rank waits for others."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gfgnn.comm.base import Communicator, Work
from gfgnn.launch.heartbeat import Beat


class WatchedCommunicator:
    """``inner``, with every call that may block marked as a wait in ``beat``."""

    def __init__(self, inner: Communicator, beat: Beat) -> None:
        self.inner, self.beat = inner, beat
        self.rank, self.size = inner.rank, inner.size

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        with self.beat.waiting():
            return WatchedWork(self.inner.all_reduce(x, purpose=purpose, op=op), self.beat)

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        with self.beat.waiting():
            return WatchedWork(self.inner.all_to_all(x, send_counts, recv_counts, purpose=purpose), self.beat)

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        with self.beat.waiting():
            return WatchedWork(self.inner.exchange(sends, recvs, purpose=purpose), self.beat)

    def barrier(self) -> None:
        with self.beat.waiting():
            self.inner.barrier()

    def group(self, ranks: Sequence[int]) -> Communicator:
        with self.beat.waiting():
            return WatchedCommunicator(self.inner.group(ranks), self.beat)

    def close(self) -> None:
        self.inner.close()


class WatchedWork:
    """A :class:`Work` whose :meth:`wait` is marked."""

    def __init__(self, inner: Work, beat: Beat) -> None:
        self.inner, self.beat = inner, beat

    def wait(self) -> Tensor:
        with self.beat.waiting():
            return self.inner.wait()


__all__ = ["WatchedCommunicator"]
