"""The forward refresh: T, H and scores from the current weights."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.model.blocks import Block, output_of, propagate, transform
from gfgnn.model.problem import Problem
from gfgnn.solver.state import Activations, TargetState

#: Rows from which the spread of a pre-activation is measured; of larger graphs every so-many-th row is taken.
SPREAD_ROWS = 16384


def refresh(problem: Problem, state: TargetState, *, unit_spread: bool) -> Activations:
    """Runs the network forward; the output block for labelled rows only.

    Args:
        unit_spread: rescale every unit below the output, weight and bias, so that its pre-activation has variance 1
            (the polar step's form of batch normalisation; the network's weights change, nothing else is kept).
    """
    blocks, head = problem.model.blocks, state.fixed.head
    if len(blocks) == 1:
        scores = problem.inputs.matmul(state.weights["block0.weight"])[head.index]
        return Activations([], [], scores.new_empty(0), scores + state.weights.get("block0.bias", 0.0))
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for index, block in enumerate(blocks[:-1]):
        below = outputs[-1] if index else None
        if below is None:
            t, z = _encode(problem, state, block, unit_spread)
        else:
            t = _drop(state, propagate(block, problem.propagation, below, outputs[0]))
            if unit_spread:
                _normalise(state, index, t[:: _stride(t)] @ state.weights[f"block{index}.weight"], block)
            z = transform(t, state.weights[f"block{index}.weight"], state.weights.get(f"block{index}.bias"))
        inputs.append(t)
        outputs.append(output_of(block, z, below))
    t = head.apply(outputs[-1])
    last = f"block{len(blocks) - 1}"
    scores = transform(t, state.weights[f"{last}.weight"], state.weights.get(f"{last}.bias"))
    return Activations(inputs, outputs, t, scores)


def _encode(problem: Problem, state: TargetState, block: Block, unit_spread: bool) -> tuple[Tensor, Tensor]:
    """Block 0: no T to keep, and Z."""
    table = problem.inputs.table
    if unit_spread and table is not None:
        _normalise(state, 0, table[:: _stride(table)] @ state.weights["block0.weight"], block)
    z = problem.inputs.matmul(state.weights["block0.weight"])
    if unit_spread and table is None:
        z = z * _normalise(state, 0, z[:: _stride(z)], block)
    bias = state.weights.get("block0.bias")
    return z.new_empty(0), z if bias is None else z.add_(bias)


def _normalise(state: TargetState, index: int, rows: Tensor, block: Block) -> Tensor:
    """Scales block ``index`` so that the given rows of ``T W`` have variance 1 (second moment, without a bias); returns
    the factors ``[d]``."""
    variance = rows.var(0, correction=0) if block.bias else rows.square().mean(0)
    mean = float(variance.mean())
    factors = variance.clamp(min=1e-4 * mean + 1e-30).rsqrt()
    # a unit that does not vary at all has no spread to set; growing its bias again and again would end in infinity
    factors = factors.masked_fill_(variance <= 1e-12 * mean, 1.0)
    for name in (f"block{index}.weight", f"block{index}.bias"):
        if name in state.weights:
            state.weights[name] = state.weights[name] * factors
    return factors


def _stride(rows: Tensor) -> int:
    return max(1, rows.size(0) // SPREAD_ROWS)


def _drop(state: TargetState, t: Tensor) -> Tensor:
    """Sampled dropout (Srivastava et al. 2014) of T's entries, where the settings ask for it."""
    p = state.fixed.settings.sampled_dropout
    if p == 0.0:
        return t
    keep = torch.rand(t.shape, generator=state.generator, dtype=t.dtype) >= p
    return t * keep.to(t.device) / (1.0 - p)
