"""The forward pass: what the trained network computes."""

from __future__ import annotations

from torch import Tensor

from gfgnn.exchange.routes import upward
from gfgnn.exchange.stages import Channel
from gfgnn.model.blocks import FEATURES, output_of, standardisation, transform
from gfgnn.model.wiring import add_to, gather, is_input, last_uses
from gfgnn.problem import Problem

Tensors = dict[str, Tensor]


def forward(problem: Problem, weights: Tensors, fitted: Tensors | None = None) -> Tensor:
    """Scores ``[N, C]`` of every node: logits for class and multi-label targets, values for regression.

    For problems whose blocks are all in one stage; called by every part.

    Args:
        weights: of the blocks; of blocks that normalise, ``block{l}.scale`` and ``block{l}.shift`` are taken from the
            statistics over the nodes where they are missing.
        fitted: receives those that were missing.
    """
    scores = stage_forward(problem, weights, fitted)
    assert scores is not None
    return scores


def stage_forward(problem: Problem, weights: Tensors, fitted: Tensors | None = None) -> Tensor | None:
    """The same over any number of stages: scores of this part's nodes in the last stage, None elsewhere.

    Called by every rank with the weights of its own blocks. Sends halos within a stage and activations to the next.
    """
    blocks, span, stages = problem.model.blocks, problem.span, problem.grid.stages
    propagations = problem.propagations_for("evaluate")
    route = upward(blocks, problem.bounds, problem.grid.stage)
    channel = Channel(stages, route, 0, propagations[0].num_nodes, problem.targets, purpose="evaluate")
    received = dict(zip((span.start - 1, 0), channel.receive(0, True), strict=False))
    values = {} if problem.features is None else {FEATURES: problem.features}
    values |= received
    done = last_uses(blocks, span)
    sent = () if problem.is_last else (0,)
    for index in span:
        block = blocks[index]
        weight, bias = weights.get(f"block{index}.weight"), weights.get(f"block{index}.bias")
        if is_input(blocks, index) and weight is not None:
            z = problem.block_inputs[index].for_purpose("evaluate").matmul(weight)
            z = z if bias is None else z.add_(bias)
        elif weight is None:
            z = gather(block, index, propagations, values.__getitem__).clone()
            z = _normalised(index, block.norm_eps, z, weights, fitted)
        elif block.propagate == "graph" and block.out_channels < block.in_channels:
            z = propagations[0].apply(values[index - 1] @ weight)  # the narrower product first
            z = z if bias is None else z.add_(bias)
        else:
            z = transform(gather(block, index, propagations, values.__getitem__), weight, bias)
        z = output_of(block, z, None if block.skip is None else values[index - 1])
        values[index] = add_to(block, z, values.__getitem__)
        for source in done[index]:
            if source not in sent:
                del values[source]
    h = values[span.stop - 1]
    if problem.is_last:
        return h
    channel.send(0, True, [h, *[values[0] for _ in route.targets[1:]]])
    channel.drain()
    return None


def _normalised(index: int, eps: float | None, z: Tensor, weights: Tensors, fitted: Tensors | None) -> Tensor:
    """Z of a block without weights, normalised where the block does that; overwrites ``z``."""
    if eps is None:
        return z
    names = f"block{index}.scale", f"block{index}.shift"
    if names[0] in weights:
        scale, shift = (weights[name] for name in names)
    else:
        scale, shift = standardisation(z, eps)
        if fitted is not None:
            fitted |= dict(zip(names, (scale, shift), strict=True))
    return z.mul_(scale).add_(shift)


__all__ = ["forward", "stage_forward"]
