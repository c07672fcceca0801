"""What every rank sends in one iteration of the block solver, in messages and bytes, to the byte.

Counted as :class:`gfgnn.comm.counting.CountingCommunicator` does: halo rows to each other part, every tensor to another
stage, and the buffer of a sum over several ranks once. A rank has the part's n nodes and the stage's blocks; p is
fan_in, w in_channels and d out_channels of a block, C classes, P parts, i bytes of a number. m, m' (and h, h') are the
rows that the part sends for S and S' (and for S[train] and S[train]'), and go to as many other parts as need some.

========  ============================================  ==========================================================
purpose   when                                          bytes
========  ============================================  ==========================================================
halo      hidden block that propagates                  (m + m') w i: forward and back
halo      output block that propagates                  (h w + h' C) i
halo      block 0, sparse features, q products with S   q (m + m') d i
stage     not the last stage                            n w i to the next stage, w of its first block
stage     not the first stage                           n w i to the stage below, w of this stage's first block
stage     stage 0, H_0 is looked back at                n d i to every other stage that does
stage     other stage that looks back at H_0            n d i to stage 0
gram      P > 1, hidden block, unless frozen            8 (p p + p d + 1), and 8 (p + d) with a bias
gram      P > 1, output block                           8 (p p + p C + 1 + p), and 8 (p + C) with a bias
gram      P > 1, block 0                                (p d + d) i
gram      P > 1, polar, each block below the output     8 d, and 8 d more with a bias
gram      P > 1, each product of conjugate gradients    p d i, and what block 0 sends as halo
control   more than one rank                            24
========  ============================================  ==========================================================

q is 1 for blocks that gather from neighbours (``graph``, ``concat``), K for ``power`` and ``hops`` of K hops, 0 for
``none``. A network of one block is block 0 only. Staleness changes when messages are waited for, not what is sent; an
iteration in which the safeguard goes back sends its way up and the agreement only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gfgnn.checks import check_choice
from gfgnn.graph.shard import ShardMatrix
from gfgnn.model.blocks import Block, looks_back
from gfgnn.model.build import Model
from gfgnn.plan.cost import STEPS

if TYPE_CHECKING:
    from gfgnn.shards import GraphShard

#: Sums are taken in double precision where a solve follows; loss, squares and count are agreed on.
DOUBLE, AGREED = 8, 3


@dataclass(frozen=True)
class Traffic:
    """Messages, and the bytes they hold."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.messages * times, self.bytes * times)


@dataclass(frozen=True)
class SentRows:
    """What one part sends for a product with one matrix: so many rows in all, to so many other parts."""

    rows: int = 0
    peers: int = 0

    @classmethod
    def of(cls, matrix: ShardMatrix | None) -> SentRows:
        counts = matrix.plan.send_counts if matrix is not None else ()
        return cls(sum(counts), sum(count > 0 for count in counts))

    def times(self, width: int, itemsize: int) -> Traffic:
        """The halo of one product with a matrix of ``width`` columns."""
        return Traffic(self.peers, self.rows * width * itemsize)


@dataclass(frozen=True, kw_only=True)
class PartTraffic:
    """What the traffic of a part depends on.

    Attributes:
        nodes: owned nodes.
        splits: labelled nodes of training, validation and test.
        matrix, matrix_t, head, head_t: sent for products with S, S', S[train] and S[train]'.
    """

    nodes: int
    splits: tuple[int, int, int]
    matrix: SentRows = SentRows()
    matrix_t: SentRows = SentRows()
    head: SentRows = SentRows()
    head_t: SentRows = SentRows()

    @classmethod
    def of(cls, shard: GraphShard) -> PartTraffic:
        return cls(
            nodes=shard.nodes.numel(),
            splits=(shard.train.numel(), shard.val.numel(), shard.test.numel()),
            matrix=SentRows.of(shard.matrix),
            matrix_t=SentRows.of(shard.matrix_t),
            head=SentRows.of(shard.head),
            head_t=SentRows.of(shard.head_t),
        )


def iteration_traffic(
    model: Model,
    bounds: Sequence[int],
    stage: int,
    part: PartTraffic,
    *,
    step: str,
    num_parts: int,
    itemsize: int,
    sparse: bool = False,
    freeze_hidden: bool = False,
    cg_products: int = 0,
) -> dict[str, Traffic]:
    """What the rank of ``part`` and ``stage`` sends in one iteration, by purpose: halo, stage, gram, control.

    Args:
        bounds: the first block of each stage, and the number of blocks.
        step: ``sweep`` or ``polar``.
        itemsize: bytes of a number, 4 (float32) or 8 (float64).
        sparse: whether features are sparse.
        freeze_hidden: whether hidden layers stay as they are.
        cg_products: products that conjugate gradients make with the system of block 0 in this iteration.
    """
    check_choice("step", step, STEPS)
    last, num_stages = len(model.blocks) - 1, len(bounds) - 1
    halo, gram = Traffic(), Traffic()
    several = num_parts > 1  # else a stage is one rank, and there is nothing to sum

    def summed(numbers: int, size: int = DOUBLE) -> Traffic:
        return Traffic(1, numbers * size) if several else Traffic()

    for index in range(bounds[stage], bounds[stage + 1]):
        block = model.blocks[index]
        p, w, d = block.fan_in, block.in_channels, block.out_channels
        moments = p * p + p * d + 1 + block.bias * (p + d)
        if step == "polar" and index < last:
            gram += summed(d * (1 + block.bias))
        if index == 0:
            both = part.matrix.times(d, itemsize) + part.matrix_t.times(d, itemsize)
            halo += both * (_hops(block, sparse) * (1 + cg_products))
            gram += summed(p * d + d, itemsize) + summed(p * d, itemsize) * cg_products
        elif index == last:
            gram += summed(moments + p)
            if block.propagate != "none":
                halo += part.head.times(w, itemsize) + part.head_t.times(d, itemsize)
        else:
            if not freeze_hidden:
                gram += summed(moments)
            if block.propagate != "none":
                halo += part.matrix.times(w, itemsize) + part.matrix_t.times(w, itemsize)
    ranks = num_parts * num_stages
    return {
        "halo": halo,
        "stage": _up(model, bounds, stage, part, itemsize) + _down(model, bounds, stage, part, itemsize),
        "gram": gram,
        "control": Traffic(1, AGREED * DOUBLE) if ranks > 1 else Traffic(),
    }


def evaluation_traffic(
    model: Model,
    bounds: Sequence[int],
    stage: int,
    part: PartTraffic,
    *,
    num_parts: int,
    itemsize: int,
    label_itemsize: int = 4,
    sparse: bool = False,
) -> Traffic:
    """What the rank sends in one evaluation: halos and activations of a forward pass, and the scores.

    Activations go up as in an iteration. Halos are m d i (sparse features, q times) for block 0, and m w i, or m d i
    where that is narrower, for others. Then every rank sends 72 bytes; where scores are no means over nodes, 40, and
    each part of the last stage for each split of k rows 8 P bytes and k C numbers of scores and of labels to each other
    part.
    """
    total = _up(model, bounds, stage, part, itemsize)
    for index in range(bounds[stage], bounds[stage + 1]):
        block = model.blocks[index]
        if index == 0:
            total += part.matrix.times(block.out_channels, itemsize) * _hops(block, sparse)
        elif block.propagate != "none":
            narrow = block.propagate == "graph" and block.out_channels < block.in_channels
            total += part.matrix.times(block.out_channels if narrow else block.in_channels, itemsize)
    means = model.task == "multiclass"
    if num_parts * (len(bounds) - 1) > 1:
        total += Traffic(1, (9 if means else 5) * DOUBLE)
    if not means and stage == len(bounds) - 2 and num_parts > 1:
        for rows in part.splits:
            for size in (itemsize, label_itemsize):
                total += Traffic(1, num_parts * DOUBLE)  # how many rows each part has
                sent = Traffic(1, rows * model.num_classes * size) if rows else Traffic()
                total += sent * (num_parts - 1)
    return total


def _hops(block: Block, sparse: bool) -> int:
    """Products with S in one product with the inputs of block 0; dense ones are propagated once and for all."""
    if not sparse or block.propagate == "none":
        return 0
    return block.hops if block.propagate in ("power", "hops") else 1


def _up(model: Model, bounds: Sequence[int], stage: int, part: PartTraffic, itemsize: int) -> Traffic:
    """Activations for the next stage, and from stage 0 H_0 for those that look back at it."""
    sent = Traffic()
    if stage < len(bounds) - 2:
        sent += Traffic(1, part.nodes * model.blocks[bounds[stage + 1]].in_channels * itemsize)
    if stage == 0:
        first = Traffic(1, part.nodes * model.blocks[0].out_channels * itemsize)
        sent += first * len(_looking_back(model, bounds))
    return sent


def _down(model: Model, bounds: Sequence[int], stage: int, part: PartTraffic, itemsize: int) -> Traffic:
    """The message for the stage below, and from stages that look back at H_0 one for stage 0."""
    sent = Traffic()
    if stage > 0:
        sent += Traffic(1, part.nodes * model.blocks[bounds[stage]].in_channels * itemsize)
    if stage in _looking_back(model, bounds):
        sent += Traffic(1, part.nodes * model.blocks[0].out_channels * itemsize)
    return sent


def _looking_back(model: Model, bounds: Sequence[int]) -> list[int]:
    """The stages above the first with a block that looks at H_0."""
    return [k for k in range(1, len(bounds) - 1) if looks_back(model.blocks[bounds[k] : bounds[k + 1]])]


__all__ = ["PartTraffic", "SentRows", "Traffic", "evaluation_traffic", "iteration_traffic"]
