"""The forward pass: what the trained network computes."""

from __future__ import annotations

from torch import Tensor

from gfgnn.exchange.routes import upward
from gfgnn.exchange.stages import Channel
from gfgnn.model.blocks import output_of, propagate, transform
from gfgnn.problem import Problem


def forward(problem: Problem, weights: dict[str, Tensor]) -> Tensor:
    """Scores ``[N, C]`` of every node: logits for class and multi-label targets, values for regression.

    For problems whose blocks are all in one stage; called by every part.
    """
    scores = stage_forward(problem, weights)
    assert scores is not None
    return scores


def stage_forward(problem: Problem, weights: dict[str, Tensor]) -> Tensor | None:
    """The same over any number of stages: scores of this part's nodes in the last stage, None elsewhere.

    Called by every rank with the weights of its own blocks. Sends halos within a stage and activations to the next.
    """
    blocks, span, stages = problem.model.blocks, problem.span, problem.grid.stages
    propagation = problem.propagation.for_purpose("evaluate")
    nodes = propagation.num_nodes
    route = upward(blocks, problem.bounds, problem.grid.stage)
    channel = Channel(stages, route, 0, nodes, problem.targets, purpose="evaluate")
    h, h0, *_ = *channel.receive(0, True), None, None
    for index in span:
        block = blocks[index]
        weight, bias = weights[f"block{index}.weight"], weights.get(f"block{index}.bias")
        if h is None:
            z = problem.inputs.for_purpose("evaluate").matmul(weight)
            z = z if bias is None else z.add_(bias)
        elif block.propagate == "graph" and block.out_channels < block.in_channels:
            z = propagation.apply(h @ weight)  # the narrower product first
            z = z if bias is None else z.add_(bias)
        else:
            z = transform(propagate(block, propagation, h, h0), weight, bias)
        h = output_of(block, z, h)
        h0 = h if index == 0 else h0
    assert h is not None
    if problem.is_last:
        return h
    channel.send(0, True, [h, *[h0 for _ in route.targets[1:] if h0 is not None]])
    channel.drain()
    return None


__all__ = ["forward", "propagate", "stage_forward"]
