"""Messages between the stages of one part, and what all ranks agree on, at once or some iterations late.

Every iteration each stage passes activations up and the message for them down. In a *synchronous* iteration a stage
waits for its neighbour's message of the same iteration; otherwise it works on the one that its neighbour sent
``staleness`` iterations ago, exactly, so that a run can be repeated bit for bit. Every rank knows which are which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator, Work
from gfgnn.exchange.routes import Route


@dataclass
class _Entry:
    """The tensors of one iteration's message, to be used when ``work`` is complete."""

    tensors: list[Tensor]
    work: Work


@dataclass(eq=False)
class Channel:
    """One direction of the traffic between the stages of a part.

    Attributes:
        comm: the stages of this part.
        route: what this stage receives from and sends to which.
        staleness: age, in iterations, of what is used in an iteration that is not synchronous.
        rows: of every tensor.
        like: a tensor of the dtype and device of all messages.
        purpose: what the messages are booked under.
    """

    comm: Communicator
    route: Route
    staleness: int
    rows: int
    like: Tensor
    purpose: str = "stage"
    _inbox: dict[int, _Entry] = field(default_factory=dict)
    _sent: dict[int, Work] = field(default_factory=dict)

    def receive(self, iteration: int, synchronous: bool) -> list[Tensor]:
        """The tensors of the route's sources to work on in this iteration; empty where it has none.

        Called once in each iteration, before :meth:`send`. A synchronous iteration waits for the others' :meth:`send`
        of the same iteration, any other for that of ``staleness`` iterations ago. The tensors may be used again in a
        later iteration and must not be changed.
        """
        if not self.route.sources:
            return []
        if synchronous:
            buffers = self._buffers()
            work = self.comm.exchange([], self._receipts(buffers), purpose=self.purpose)
            self._inbox[iteration] = _Entry(buffers, work)
        used = iteration if synchronous else iteration - self.staleness
        entry = self._inbox[used]
        entry.work.wait()
        self._sent.pop(used, None)  # the same work, which holds what was sent with it
        for old in [i for i in self._inbox if i <= iteration - self.staleness]:
            self._inbox.pop(old).work.wait()  # what is never used must still arrive
        return entry.tensors

    def send(self, iteration: int, synchronous: bool, tensors: Sequence[Tensor]) -> None:
        """Sends one tensor to each of the route's targets and returns at once.

        In an iteration that is not synchronous the tensors sent to this stage in this iteration, to be used
        ``staleness`` iterations from now, are asked for in the same breath: neither side can block the other.
        """
        sends = [(to, t.contiguous()) for to, t in zip(self.route.targets, tensors, strict=True)]
        buffers = [] if synchronous else self._buffers()
        if not sends and not buffers:
            return
        work = self.comm.exchange(sends, self._receipts(buffers), purpose=self.purpose)
        if buffers:
            self._inbox[iteration] = _Entry(buffers, work)
        self._sent[iteration] = work
        # whoever has sent the tensors that this iteration works on has asked for those sent as early
        for old in [i for i in self._sent if i <= iteration - max(1, self.staleness)]:
            self._sent.pop(old).wait()

    def drain(self) -> None:
        """Waits for everything under way; afterwards nothing is left to receive."""
        for work in [entry.work for entry in self._inbox.values()] + list(self._sent.values()):
            work.wait()
        self._inbox.clear()
        self._sent.clear()

    def _buffers(self) -> list[Tensor]:
        return [self.like.new_empty(self.rows, columns) for _, columns in self.route.sources]

    def _receipts(self, buffers: list[Tensor]) -> list[tuple[int, Tensor]]:
        return [(stage, buffer) for (stage, _), buffer in zip(self.route.sources, buffers, strict=False)]


@dataclass(eq=False)
class Agreement:
    """Numbers that all ranks must know, summed over the world; like messages, at once or ``staleness`` late."""

    world: Communicator
    staleness: int
    device: torch.device
    _pending: dict[int, Work] = field(default_factory=dict)

    def reach(self, iteration: int, synchronous: bool, values: Sequence[float]) -> tuple[int, list[float]]:
        """Adds this rank's ``values`` to the sum of this iteration; the iteration whose sums are known, and the sums.

        Called by every rank once in each iteration; every rank is told the same bits. Sends ``values`` in float64.
        """
        block = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._pending[iteration] = self.world.all_reduce(block, purpose="control")
        known = iteration if synchronous else iteration - self.staleness
        sums = self._pending[known].wait().tolist()
        for old in [i for i in self._pending if i <= iteration - self.staleness]:
            self._pending.pop(old).wait()  # sums that nobody asks for must still arrive
        return known, sums

    def drain(self) -> None:
        """Waits for everything under way."""
        for work in self._pending.values():
            work.wait()
        self._pending.clear()


__all__ = ["Agreement", "Channel"]
