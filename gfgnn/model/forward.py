"""The forward pass: what the trained network computes."""

from __future__ import annotations

from torch import Tensor

from gfgnn.model.blocks import output_of, propagate, transform
from gfgnn.model.problem import Problem


def forward(problem: Problem, weights: dict[str, Tensor]) -> Tensor:
    """Scores ``[N, C]`` of every node: logits for class and multi-label targets, values for regression."""
    h: Tensor | None = None
    h0: Tensor | None = None
    for index, block in enumerate(problem.model.blocks):
        weight, bias = weights[f"block{index}.weight"], weights.get(f"block{index}.bias")
        if h is None:
            z = problem.inputs.matmul(weight)
            z = z if bias is None else z.add_(bias)
        elif block.propagate == "graph" and block.out_channels < block.in_channels:
            z = problem.propagation.apply(h @ weight)  # the narrower product first
            z = z if bias is None else z.add_(bias)
        else:
            z = transform(propagate(block, problem.propagation, h, h0), weight, bias)
        h = output_of(block, z, h)
        h0 = h if index == 0 else h0
    assert h is not None
    return h


__all__ = ["forward", "propagate"]
