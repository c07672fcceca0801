"""What the block solver computes once per problem: node weights, the head's rows, the response, the input system."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.exchange.sums import sum_over
from gfgnn.graph.propagation import Product, Propagator
from gfgnn.model.blocks import Block, carry, propagate, propagate_adjoint
from gfgnn.problem import Problem
from gfgnn.solver.head import CURVATURE


@dataclass(frozen=True, eq=False)
class HeadRows:
    """The output block's propagation for the k labelled rows alone.

    Attributes:
        block: the output block.
        index: the labelled rows, ``[k]``.
        gather: the product with S[index], ``[N, d] -> [k, d]``, or None where the block does not propagate.
        scatter: the product with its transpose.
    """

    block: Block
    index: Tensor
    num_nodes: int
    gather: Product | None
    scatter: Product | None

    def apply(self, h: Tensor) -> Tensor:
        """T of the labelled rows, ``[k, fan_in]``."""
        if self.gather is None:
            return h[self.index]
        gathered = self.gather(h)
        return torch.cat([h[self.index], gathered], dim=1) if self.block.propagate == "concat" else gathered

    def message(self, r: Tensor, inverse: Tensor) -> Tensor:
        """The transpose of :meth:`apply` on ``r @ inverse``, ``[N, in_channels]``; the narrow product comes first.

        Args:
            r: weighted shifts of the scores, ``[k, C]``.
            inverse: ``[C, fan_in]`` from :func:`gfgnn.solver.updates.pass_down`.
        """
        if self.scatter is None:
            return r.new_zeros(self.num_nodes, inverse.size(1)).index_copy_(0, self.index, r @ inverse)
        gathered = self.scatter(r)
        if self.block.propagate == "graph":
            return gathered @ inverse
        own, other = inverse.chunk(2, dim=1)
        return (gathered @ other).index_add_(0, self.index, r @ own)


def make_head_rows(block: Block, propagation: Propagator, index: Tensor) -> HeadRows:
    """Cuts the labelled rows out of S."""
    gather, scatter = propagation.rows(index) if block.propagate in ("graph", "concat") else (None, None)
    return HeadRows(block, index, propagation.num_nodes, gather, scatter)


def node_weights(problem: Problem, kind: str) -> list[Tensor]:
    """The weight of every node in every block, ``[blocks][N]``; entry l weighs rows of Z_l. Called by every part.

    ``mass``: the labels' weight ``curvature / k`` carried back through the blocks by
    :func:`gfgnn.model.blocks.carry`. ``uniform``: the same total spread evenly over the nodes below the output.
    """
    blocks, facts = problem.model.blocks, problem.facts
    double = problem.propagation.to(torch.float64, problem.device).for_purpose("setup")
    curvature = CURVATURE[problem.model.task]
    top = torch.zeros(double.num_nodes, dtype=torch.float64, device=problem.device)
    top[problem.train_index] = curvature / facts.num_train
    if kind == "uniform":
        return [torch.full_like(top, curvature / facts.num_nodes)] * (len(blocks) - 1) + [top]
    weights = [top]
    initial = torch.zeros_like(top)
    for block in reversed(blocks[1:]):
        below, extra = carry(block, double, weights[0])
        if block.skip is not None:  # H_l = H_{l-1} + tau A: the mass is shared between both paths
            below = (weights[0] + block.skip * below) / (1.0 + block.skip)
        if extra is not None:
            initial += extra
        if block.propagate == "concat":
            (total,) = sum_over(problem.grid.parts, below.sum(), purpose="setup")
            below = below * (curvature / total)
        weights.insert(0, below)
    weights[0] = weights[0] + initial
    return weights


def response(problem: Problem) -> float:
    """How much of a label signal survives the trip down to block 0 and up again, with open gates and identity weights.

    ``<answer, E> / <E, E>`` on the labelled rows for E the centred targets; 1 where nothing is lost. The sweep step
    divides the encoder's shift by it. Called by every part of the first stage.
    """
    parts = problem.grid.parts
    (total,) = sum_over(parts, problem.targets.sum(0), purpose="setup")
    e = problem.targets - total / problem.facts.num_train
    blocks, propagation = problem.model.blocks, problem.propagation.for_purpose("setup")
    head = make_head_rows(blocks[-1], propagation, problem.train_index)
    n = propagation.num_nodes

    def widen(block: Block, q: Tensor) -> Tensor:
        return torch.cat([q, q], dim=1) / 2 if block.propagate == "concat" else q

    identity = torch.eye(e.size(1), dtype=e.dtype, device=e.device)
    message = head.message(e, widen(head.block, identity)) if len(blocks) > 1 else None
    if message is None:
        return 1.0
    initial = torch.zeros(n, e.size(1), dtype=e.dtype, device=e.device)
    for block in reversed(blocks[1:-1]):
        below, extra = propagate_adjoint(block, propagation, widen(block, message))
        message = below if block.skip is None else message + block.skip * below
        if extra is not None:
            initial += extra
    h = h0 = message + initial
    for block in blocks[1:-1]:
        t = propagate(block, propagation, h, h0)
        if block.propagate == "concat":
            t = (t[:, : e.size(1)] + t[:, e.size(1) :]) / 2
        h = t if block.skip is None else h + block.skip * t
    answer = head.apply(h)
    if head.block.propagate == "concat":
        answer = (answer[:, : e.size(1)] + answer[:, e.size(1) :]) / 2
    answered, energy = sum_over(parts, (answer * e).sum(), (e * e).sum(), purpose="setup")
    return float((answered / energy.clamp(min=1e-30)).clamp(min=1e-6))


def reference_weights(problem: Problem) -> dict[str, Tensor]:
    """What the ridge shrinks each weight of this stage's blocks towards: the identity for square hidden blocks (half
    of it on each half of a concatenation), zero elsewhere."""
    references = {}
    for index in problem.span:
        block = problem.model.blocks[index]
        reference = torch.zeros(block.fan_in, block.out_channels, dtype=problem.dtype, device=problem.device)
        if block.reference == "identity" and block.in_channels == block.out_channels and index > 0:
            share = block.fan_in // block.in_channels
            for part in reference.split(block.in_channels):
                part.fill_diagonal_(1.0 / share)
        references[f"block{index}.weight"] = reference
    return references
