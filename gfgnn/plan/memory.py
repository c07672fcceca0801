"""Peak memory of every rank, counted from what the code holds at its widest moments.

U(w) = n w b is a dense array of the part's n nodes, w columns, b bytes a number.

===================  ===============================================================================================
always               the process (BASE); S, S' and the labelled rows of S, each with owned and halo columns; labels,
                     ids, node weights; T of block 0 on stage 0, or its sparse features and their transpose; the
                     Cholesky factor of block 0; some copies of the weights
kept K               T of each hidden block, and the gate of each block below the output: a bit an entry, a byte where
                     no kernel was compiled. With ``storage`` T in that type; with ``recompute`` no T, but H below each
                     block of :func:`gfgnn.solver.refresh.checkpoints`
waiting messages M   with staleness s: the s messages from below and from above that are still to be used; what was
                     sent and may not have arrived: s times (once if s = 0) what goes up and what goes down, once less
                     where an answer from the same stage says that the oldest has arrived
forward              K + M + what came from below + H_0 where blocks look back at it + H below a block, its T if it is
                     stored otherwise, and its Z
output block         K + M + labelled rows of T (twice where the block does not propagate) and of the scores, four
                     times; one array of N x C where it propagates, one U
backward             K + M + the message in use (the top block's, if another stage sent it, is not overwritten: twice)
                     + sums for H_0 + rows of a Gram matrix (PIECE) + labelled rows of T, which the
                     arena keeps
recomputing          K less a checkpoint, T of the blocks down to it, H and Z of one block, and the message in use
evaluation           M + H_0, and H, T and Z of one block
set-up               features and T of block 0; twice the encoder's Gram matrix; node weights of all blocks and S in
                     float64
===================  ===============================================================================================

The peak is what is always held and the largest of the moments below it. It is what a run with ``lean`` reaches; without
it the C library keeps freed blocks, finds no room for later ones between those still in use, and holds up to 1.6 times
as much (docs/distributed.md has the figures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from gfgnn.graph.shard import ShardMatrix
from gfgnn.model.blocks import Block, looks_back
from gfgnn.model.build import Model
from gfgnn.ops import native
from gfgnn.ops.ridge import PIECE
from gfgnn.plan.cost import GRAM_LIMIT

if TYPE_CHECKING:
    from gfgnn.shards import GraphShard

#: Bytes of a rank before it has any data: Python, torch and this package (Linux, torch 2.13 for CPUs).
BASE = 213_000_000
#: Copies of every weight in double precision that the solver keeps: present, good, velocity, averages, logs.
COPIES = 8
#: Bytes of a number of T in each of the types that it may be kept in.
STORED: dict[str | None, int] = {"bf16": 2, "fp16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True)
class PartMemory:
    """What the memory of a part's ranks depends on.

    Attributes:
        nodes: n, owned nodes.
        train: labelled training nodes among them.
        moving: rows of the widest halo, received and sent.
        matrices: bytes of S and S', where they differ, with indices.
        head: bytes of the labelled rows of S and of their transpose.
        values: non-zeros of S and S'.
        features: bytes of the features as they are loaded.
        sparse: whether they are sparse.
    """

    nodes: int
    train: int
    moving: int
    matrices: int
    head: int
    values: int
    features: int
    sparse: bool

    @classmethod
    def of(cls, shard: GraphShard) -> PartMemory:
        """Counts a shard that has its features."""
        assert shard.features is not None
        matrices = [shard.matrix] if shard.matrix_t is shard.matrix else [shard.matrix, shard.matrix_t]
        heads = [m for m in (shard.head, shard.head_t) if m is not None]
        return cls(
            nodes=shard.nodes.numel(),
            train=shard.train.numel(),
            moving=max(m.plan.num_sent + m.plan.num_halo for m in matrices),
            matrices=sum(_bytes(m) for m in matrices),
            head=sum(_bytes(m) for m in heads),
            values=sum(m.owned.values().numel() + m.halo.values().numel() for m in matrices),
            features=tensor_bytes(shard.features),
            sparse=shard.features.layout == torch.sparse_csr,
        )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one rank. ``moments`` has, beside what is always held, each of the moments that may be the widest."""

    base: int
    matrices: int
    features: int
    solver: int
    moments: dict[str, int]

    @property
    def peak(self) -> int:
        """The highest."""
        return self.base + self.matrices + self.features + self.solver + max(self.moments.values())


def rank_memory(
    model: Model,
    bounds: Sequence[int],
    stage: int,
    part: PartMemory,
    *,
    staleness: int,
    itemsize: int,
    storage: str | None = None,
    recompute: bool = False,
    gate_bits: int | None = None,
) -> Memory:
    """The predicted memory of the rank that has ``part`` and ``stage``; see the module's text.

    Args:
        storage, recompute: as in :class:`gfgnn.config.TargetConfig`.
        gate_bits: that an entry of a gate takes, 1 or 8; None for what this machine has kernels for.
    """
    blocks, n = model.blocks, part.nodes
    rank = _Rank(model, bounds, stage, n, itemsize, staleness, storage, recompute, gate_bits or _gate_bits())
    u, first, end, initial = rank.u, rank.first, rank.end, rank.u(blocks[0].out_channels)
    width = max(b.fan_in for b in blocks[1:] or blocks)
    moments = {"forward": rank.forward(part.moving * width * itemsize), "backward": rank.backward()}
    if rank.last:
        moments["output"] = rank.output(part.train * itemsize)
        moments["backward"] += (
            part.train * itemsize * blocks[-1].fan_in
        )  # waits in the arena for the next iteration
    moments["evaluation"] = rank.waiting("between") + rank.arriving + initial + 3 * u(width)
    held = 0
    if stage == 0:
        held = 2 * part.features if part.sparse else u(blocks[0].fan_in)
    gram = blocks[0].fan_in ** 2 * itemsize if stage == 0 and blocks[0].fan_in <= GRAM_LIMIT else 0
    doubled = 8 * (n * (len(blocks) + 2) + part.values)
    loading = part.features if stage == 0 and not part.sparse and blocks[0].propagate != "none" else 0
    moments["set-up"] = max(loading, 2 * gram, doubled)
    weights = sum(b.fan_in * b.out_channels for b in blocks[first:end])
    return Memory(
        base=BASE,
        matrices=part.matrices + part.head,
        features=held,
        solver=gram + COPIES * 8 * weights + n * (itemsize * (end - first) + 4 * 8) + part.train * 24,
        moments=moments,
    )


def forward_memory(model: Model, part: PartMemory, itemsize: int) -> int:
    """Bytes that a forward pass over ``part`` adds to a process: S, T of block 0 (or its sparse features and their
    transpose), what a block holds at its widest, H_0 where blocks look back at it, the halo, and the scores."""
    blocks, u = model.blocks, part.nodes * itemsize
    widest = max(2 * b.fan_in + b.out_channels for b in blocks[1:] or blocks)
    moving = part.moving * max(b.in_channels for b in blocks) * itemsize
    first = 2 * part.features if part.sparse else part.features + u * blocks[0].fan_in
    initial = u * blocks[0].out_channels if looks_back(blocks) else 0
    return part.matrices + first + u * (widest + blocks[-1].out_channels) + moving + initial


@dataclass(frozen=True)
class _Rank:
    """What the activations and messages of one rank take; all in bytes."""

    model: Model
    bounds: Sequence[int]
    stage: int
    nodes: int
    itemsize: int
    staleness: int
    storage: str | None
    recompute: bool
    gate_bits: int

    def u(self, columns: int) -> int:
        return self.nodes * columns * self.itemsize

    @property
    def first(self) -> int:
        return self.bounds[self.stage]

    @property
    def end(self) -> int:
        return self.bounds[self.stage + 1]

    @property
    def last(self) -> bool:
        return self.stage == len(self.bounds) - 2

    @property
    def late(self) -> int:
        return self.staleness if len(self.bounds) > 2 else 0

    @property
    def inner(self) -> Sequence[Block]:
        """The blocks between the first and the output."""
        return self.model.blocks[max(1, self.first) : min(self.end, len(self.model.blocks) - 1)]

    @property
    def top(self) -> int:
        """H of the highest block below the output."""
        return self.u((self.inner or self.model.blocks)[-1 if self.inner else 0].out_channels)

    @property
    def behind(self) -> int:
        """Stages above the first that look back at H_0."""
        blocks = self.model.blocks
        return sum(looks_back(blocks[a:b]) for a, b in list(pairwise(self.bounds))[1:])

    @property
    def initial(self) -> int:
        """H_0, while a block of this stage, or from stage 0 any block, looks back at it."""
        blocks = self.model.blocks
        looking = looks_back(blocks[self.first : self.end] if self.stage else blocks)
        return self.u(blocks[0].out_channels) if looking else 0

    @property
    def arriving(self) -> int:
        """From below: H, and H_0 where it is needed. As much is sent down."""
        return self.u(self.model.blocks[self.first].in_channels) + self.initial if self.stage else 0

    @property
    def message(self) -> int:
        """From above, for the highest block."""
        return 0 if self.last else self.u(self.model.blocks[self.end].in_channels)

    @property
    def sums(self) -> int:
        """From above for H_0, one from each stage that looks back at it."""
        return self.behind * self.u(self.model.blocks[0].out_channels) if self.stage == 0 else 0

    def waiting(self, moment: str) -> int:
        """Messages to be used later, and those that were sent and may not have arrived; without those in use.

        Args:
            moment: ``forward``, ``backward``, or ``between`` iterations.
        """
        if len(self.bounds) == 2:
            return 0
        late, kept = self.late, max(1, self.late)
        answered = late - 1 if late else 1  # an answer says that the oldest has arrived
        up, down, above = 0, self.arriving, self.message + self.sums
        if not self.last:
            up = self.message + (self.initial if self.stage == 0 and self.behind and self.end > 1 else 0)
        if moment == "forward":
            received = late * above + max(late - 1, 0) * self.arriving
            return received + (answered if self.stage else kept) * up + kept * down
        if moment == "backward":
            received = max(late - 1, 0) * above + late * self.arriving
            return received + kept * up + (kept if self.last else answered) * down
        return late * (above + self.arriving) + kept * (up + down)

    @property
    def gates(self) -> int:
        blocks = self.model.blocks[self.first : min(self.end, len(self.model.blocks) - 1)]
        return sum(
            self.nodes * b.out_channels * self.gate_bits // 8 for b in blocks if b.activation != "identity"
        )

    def stored(self, block: Block) -> int:
        """T of a block as it is kept."""
        return self.nodes * block.fan_in * STORED.get(self.storage, self.itemsize)

    @property
    def segments(self) -> list[Sequence[Block]]:
        """The inner blocks from one checkpoint to the next."""
        blocks = self.inner
        count = math.isqrt(max(0, len(blocks) - 1)) + 1 if self.recompute else max(1, len(blocks))
        return [blocks[start : start + count] for start in range(0, len(blocks), count)]

    @property
    def kept(self) -> int:
        """Gates, and T of all blocks, or checkpoints, of which H_0 is one where it is the input of the first."""
        if not self.recompute:
            return self.gates + sum(map(self.stored, self.inner))
        held = sum(self.u(blocks[0].in_channels) for blocks in self.segments)
        return self.gates + held + (self.initial if self.stage else 0)

    def forward(self, moving: int) -> int:
        """The highest block's pass; ``moving`` is a halo, received and sent, before there is a Z."""
        if not self.inner:  # scaling Z, or multiplying it by S, makes another
            return self.waiting("forward") + 2 * self.u(self.model.blocks[0].out_channels)
        block = self.inner[-1]
        held = self.kept + self.arriving + (self.initial if not self.stage and not self.recompute else 0)
        if len(self.inner) > 1 or not (self.stage or self.initial):
            held += self.u(block.in_channels)
        if self.recompute or self.storage:
            held += self.u(block.fan_in)
        return self.waiting("forward") + held + max(self.u(block.out_channels), moving)

    def output(self, rows: int) -> int:
        """The message of the output block; ``rows`` are the bytes of one column of the labelled rows."""
        block = self.model.blocks[-1]
        alone = block.propagate == "none"
        work = (1 + alone) * rows * block.fan_in + 4 * rows * block.out_channels
        spread = 0 if alone else self.u(block.out_channels)
        return self.waiting("backward") + self.kept + work + spread + self.u(block.in_channels)

    def backward(self) -> int:
        """The widest moment on the way down: computing T again, passing a gate, a Gram matrix, messages."""
        held, message, sums = self.kept, self.message, self.sums
        first = self.u(self.model.blocks[0].out_channels)
        widest = [held + message + sums + first * bool(sums)]  # adding up what came for H_0
        sums = first * bool(sums)
        for blocks in reversed(self.segments):
            if self.recompute:
                held += sum(map(self.stored, blocks)) - self.u(blocks[0].in_channels)
                again = self.u(blocks[-1].in_channels) + self.u(blocks[-1].out_channels)
                again += self.u(blocks[-1].fan_in) if self.storage else 0
                widest.append(held + self.top + sums + again)
            for block in reversed(blocks):
                wanted, past = (
                    self.u(block.out_channels),
                    0 if block.skip is None else self.u(block.in_channels),
                )
                # what another rank sent, and what goes past the block, is not overwritten
                widest.append(held + max(message, past) + wanted + sums)
                widest.append(held + past + wanted + sums + PIECE * (1 if self.storage is None else 2))
                held, message = held - self.stored(block), 0
                share = first if block.propagate == "initial" else 0
                widest.append(held + past + self.u(block.fan_in) + self.u(block.in_channels) + sums + share)
                sums = max(sums, share)
        if self.stage == 0:  # what is wanted of H_0, in two parts and added up
            widest.append(held + message + first + max(sums * 2, message and self.top))
        return self.waiting("backward") + max(widest)


def _gate_bits() -> int:
    """Of an entry of a gate: one where the compiled kernels serve (:mod:`gfgnn.ops.gate`)."""
    return 8 if isinstance(native.library("gate"), str) else 1


def _bytes(matrix: ShardMatrix) -> int:
    return tensor_bytes(matrix.owned) + tensor_bytes(matrix.halo) + matrix.plan.send_index.nbytes


def tensor_bytes(value: torch.Tensor) -> int:
    """Bytes of a strided or a sparse CSR tensor."""
    if value.layout != torch.sparse_csr:
        return value.nbytes
    return value.crow_indices().nbytes + value.col_indices().nbytes + value.values().nbytes


__all__ = ["Memory", "PartMemory", "forward_memory", "rank_memory", "tensor_bytes"]
