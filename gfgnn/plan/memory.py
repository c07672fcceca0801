"""Peak memory of every rank, counted from what the code holds at its widest moments.

U(w) = n w b is a dense array of the part's n nodes, w columns, b bytes a number.

===================  ===============================================================================================
always               the process (BASE); S, S' and the labelled rows of S, each with owned and halo columns; labels,
                     ids, node weights; T of block 0 on stage 0, or its sparse features and their transpose; the
                     Cholesky factor of block 0; some copies of the weights
activations A        H_0 on stage 0; T and H of each hidden block; H from below and H_0 from stage 0 above stage 0
waiting messages M   with staleness s: s times what arrives from below and s times what arrives from above; of what was
                     sent, s - 1 times H upwards and the messages downwards (the last stage: s times)
backward             A + M + the message for the top block (and on stage 0 those for H_0) + the gated message, U each
output block         A + M + labelled rows of T, twice, and of the scores, four times; one array of N x C, one U
evaluation           M + H_0, and H, T and Z of one block
set-up               features and T of block 0; twice the encoder's Gram matrix; node weights of all blocks and S in
                     float64
===================  ===============================================================================================

The peak is what is always held and the largest of the moments below it. It is what a run with ``lean`` reaches; without
it the C library keeps freed blocks, finds no room for later ones between those still in use, and holds up to half as
much again (docs/distributed.md has the figures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from gfgnn.graph.shard import ShardMatrix
from gfgnn.model.blocks import looks_back
from gfgnn.model.build import Model
from gfgnn.plan.cost import GRAM_LIMIT

if TYPE_CHECKING:
    from gfgnn.shards import GraphShard

#: Bytes of a rank before it has any data: Python, torch and this package (Linux, torch 2.13 for CPUs).
BASE = 182_000_000
#: Copies of every weight in double precision that the solver keeps: present, good, velocity, averages, logs.
COPIES = 8


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
            features=_tensor_bytes(shard.features),
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
    model: Model, bounds: Sequence[int], stage: int, part: PartMemory, *, staleness: int, itemsize: int
) -> Memory:
    """The predicted memory of the rank that has ``part`` and ``stage``; see the module's text."""
    blocks, n = model.blocks, part.nodes
    first, end, last = bounds[stage], bounds[stage + 1], stage == len(bounds) - 2
    behind = sum(looks_back(blocks[a:b]) for a, b in list(pairwise(bounds))[1:])
    looking = stage > 0 and looks_back(blocks[first:end])
    late = staleness if len(bounds) > 2 else 0

    def u(columns: int) -> int:
        return n * columns * itemsize

    inner = [blocks[i] for i in range(max(1, first), end) if i < len(blocks) - 1]
    initial, width = u(blocks[0].out_channels), max(b.fan_in for b in blocks[1:] or blocks)
    arriving = (u(blocks[first].in_channels) if stage else 0) + initial * looking
    returning = 0 if last else u(blocks[end].in_channels) + (initial * behind if stage == 0 else 0)
    leaving = max(late - 1, 0) * (0 if last else u(blocks[end].in_channels))
    activations = arriving + (initial if stage == 0 else 0)
    activations += sum(u(b.fan_in) + u(b.out_channels) for b in inner)
    # a stage with others on both sides has let go of what it sent down when it takes up what came from above
    down = (late if last else max(late - 1, 0)) * arriving
    waiting = late * (arriving + returning) + down + leaving
    moving = part.moving * width * itemsize

    top = u(inner[-1].out_channels) if inner else initial
    backward = activations + (returning or top) + top + moving
    # of the messages from above one is in use then
    moments = {
        "backward": waiting - min(late, 1) * returning + backward,
        "evaluation": waiting + arriving + initial + 3 * u(width),
    }
    if last:
        rows, classes = part.train * itemsize, model.num_classes
        work = 2 * rows * blocks[-1].fan_in + 4 * rows * classes
        moments["output"] = waiting + activations + work + u(classes) + top
    table = 0 if part.sparse else u(blocks[0].fan_in)
    held = 0
    if stage == 0:
        held = 2 * part.features if part.sparse else table
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


def _bytes(matrix: ShardMatrix) -> int:
    return _tensor_bytes(matrix.owned) + _tensor_bytes(matrix.halo) + matrix.plan.send_index.nbytes


def _tensor_bytes(value: torch.Tensor) -> int:
    if value.layout != torch.sparse_csr:
        return value.nbytes
    return value.crow_indices().nbytes + value.col_indices().nbytes + value.values().nbytes


__all__ = ["Memory", "PartMemory", "rank_memory"]
