"""The communicator of a program that runs alone: rank 0 of 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator, Done, Work, check_counts


class SerialCommunicator:
    """A group of one rank: every operation is complete when it returns. See :class:`Communicator`."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1

    def all_reduce(self, x: Tensor, *, purpose: str, op: str = "sum") -> Work:
        """Leaves ``x`` as it is."""
        return Done(x)

    def all_to_all(
        self, x: Tensor, send_counts: Sequence[int], recv_counts: Sequence[int], *, purpose: str
    ) -> Work:
        """Gives a copy of ``x``, as the caller may change the rows received or ``x`` afterwards."""
        check_counts(x, send_counts, recv_counts, self.size)
        return Done(x.clone())

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], recvs: Sequence[tuple[int, Tensor]], *, purpose: str
    ) -> Work:
        """There is nobody to exchange with: both lists must be empty."""
        assert not [*sends, *recvs], "a rank sends nothing to itself"
        return Done(torch.empty(0))

    def barrier(self) -> None:
        """Returns at once."""

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Another group of this one rank."""
        assert list(ranks) == [0], ranks
        return SerialCommunicator()

    def close(self) -> None:
        """Does nothing."""


__all__ = ["SerialCommunicator"]
