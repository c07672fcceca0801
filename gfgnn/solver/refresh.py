"""The forward refresh: T, H and scores from the current weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gfgnn.exchange.sums import sum_over
from gfgnn.model.blocks import Block, looks_back, output_of, standardisation, transform
from gfgnn.model.wiring import add_to, gather, is_input, last_uses
from gfgnn.ops.arena import converted, recycle
from gfgnn.ops.gate import Gate
from gfgnn.problem import Problem
from gfgnn.solver.auto import Settings
from gfgnn.solver.state import Activations, TargetState

#: Rows from which the spread of a pre-activation is measured; of larger graphs every so-many-th row is taken.
SPREAD_ROWS = 16384
STORAGE = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}


def refresh(
    problem: Problem, state: TargetState, below: list[Tensor] | None = None, *, unit_spread: bool
) -> Activations:
    """Runs this stage's blocks forward; the output block for labelled rows only. Called by every part of the stage.

    Args:
        below: H of the block below this stage, and H_0 where it is needed; nothing in the first stage.
        unit_spread: rescale every unit below the output, weight and bias, so that its pre-activation has variance 1
            (the polar step's form of batch normalisation; the network's weights change, nothing else is kept).
    """
    blocks, head = problem.model.blocks, state.fixed.head
    if len(blocks) == 1:
        assert head is not None
        scores = problem.inputs.matmul(state.weights["block0.weight"])[head.index]
        scores = scores + state.weights.get("block0.bias", 0.0)
        return Activations(0, None, {}, {}, {}, None, None, None, scores)
    received, initial, *_ = *(below or []), None, None
    acts = Activations(problem.span.start, problem.features, {}, {}, {}, received, initial, None, None)
    done, settings = last_uses(blocks, problem.span), state.fixed.settings
    kept = checkpoints(problem) if settings.recompute else ()
    for index in problem.span:
        if index == len(blocks) - 1:
            assert head is not None
            acts.head = head.apply(acts.of)
            acts.scores = transform(acts.head, *state.layer(index))
            break
        t = _gathered(problem, state, acts, index)
        if t is not None:  # they are in T
            _let_go(problem, acts, index, set(done[index]) - _added(blocks[index], index), kept)
        h = _passed(problem, state, acts, index, t, unit_spread)
        if t is not None:
            _keep(problem, acts, index, t, settings)
        acts.outputs[index] = h
        if index == 0 and looks_back(blocks[1:]):
            acts.initial = h
        if index + 1 in kept:
            acts.checkpoints[index + 1] = h
        _let_go(problem, acts, index, set(done[index]), kept)
    if problem.span.start in kept:
        assert acts.below is not None
        acts.checkpoints[problem.span.start] = acts.below
    return acts


def checkpoints(problem: Problem) -> range:
    """Blocks whose inputs are kept where the others' are computed again, ``sqrt(n)`` of n (Chen et al. 2016)."""
    span, last = problem.span, len(problem.model.blocks) - 1
    inner = range(max(span.start, 1), min(span.stop, last))
    return inner[:: max(1, math.isqrt(max(0, len(inner) - 1)) + 1)]


def recomputed(problem: Problem, state: TargetState, acts: Activations, index: int) -> Tensor:
    """T of a block that was not kept, and into ``acts`` those of the blocks below it down to a checkpoint.

    Called by every part, before any of these blocks is updated; sends what their refresh did.
    """
    start = max(number for number in acts.checkpoints if number <= index)
    h, settings = acts.checkpoints.pop(start), replace(state.fixed.settings, recompute=False)
    for number in range(start, index + 1):
        acts.outputs = {number - 1: h}
        t = _gathered(problem, state, acts, number)
        assert t is not None
        skips = problem.model.blocks[number].skip is not None
        if not skips and problem.model.blocks[number].propagate != "none" and h is not acts.initial:
            recycle(h)
        if number < index:  # the topmost has its gate, and its H is not wanted
            h = _passed(problem, state, acts, number, t, unit_spread=False)
        _keep(problem, acts, number, t, settings)
    acts.outputs = {}
    return acts.inputs.pop(index)


def _keep(problem: Problem, acts: Activations, index: int, t: Tensor, settings: Settings) -> None:
    """Keeps T of a block, unless it is to be computed again, in the type it is stored in."""
    if not settings.recompute and settings.storage is None:
        acts.inputs[index] = t
        return
    if not settings.recompute:
        acts.inputs[index] = converted(t, STORAGE[settings.storage or ""])
    if problem.model.blocks[index].propagate != "none" and acts.inputs.get(index) is not t:
        recycle(t)


def _added(block: Block, index: int) -> set[int]:
    """The blocks whose outputs a block adds to its own."""
    return {index - 1} if block.skip is not None else {source for source, _ in block.adds}


def _let_go(problem: Problem, acts: Activations, index: int, sources: set[int], kept: Sequence[int]) -> None:
    """Lets go of outputs that block ``index`` was the last to take."""
    for source in sources:
        h = acts.outputs.pop(source, None)
        is_t = problem.model.blocks[index].propagate == "none"  # the very array
        if h is not None and not is_t and h is not acts.initial and source + 1 not in kept:
            recycle(h)


def _gathered(problem: Problem, state: TargetState, acts: Activations, index: int) -> Tensor | None:
    """T of a block below the output that changes and has weights; else None."""
    block = problem.model.blocks[index]
    if is_input(problem.model.blocks, index) or not block.weighted:
        return None
    return _drop(problem, state, index, gather(block, index, problem.propagations, acts.of))


def _passed(
    problem: Problem, state: TargetState, acts: Activations, index: int, t: Tensor | None, unit_spread: bool
) -> Tensor:
    """H of a block below the output; leaves its gate in ``acts``."""
    block, name = problem.model.blocks[index], f"block{index}"
    if t is not None:
        if unit_spread:
            _normalise(problem, state, index, t[spread_rows(problem)] @ state.weights[f"{name}.weight"])
        z = transform(t, *state.layer(index))
    elif block.weighted:
        z = _encode(problem, state, index, unit_spread)
    else:
        z = gather(block, index, problem.propagations, acts.of).clone()  # it may be another block's output
        if block.norm_eps is not None:
            scale, shift = standardisation(z, block.norm_eps)
            acts.scales[index] = scale
            z.mul_(scale).add_(shift)
    if block.activation != "identity":
        acts.gates[index] = Gate.of(z)
    below = None if block.skip is None else acts.of(index - 1)
    return add_to(block, output_of(block, z, below), acts.of)


def _encode(problem: Problem, state: TargetState, index: int, unit_spread: bool) -> Tensor:
    """Z of a block that takes the features alone, ``[N, d]``."""
    inputs, name = problem.block_inputs[index], f"block{index}"
    table = inputs.table
    if unit_spread and table is not None:
        _normalise(problem, state, index, table[spread_rows(problem)] @ state.weights[f"{name}.weight"])
    z = inputs.matmul(state.weights[f"{name}.weight"])
    if unit_spread and table is None:
        z = z * _normalise(problem, state, index, z[spread_rows(problem)])
    bias = state.weights.get(f"{name}.bias")
    return z if bias is None else z.add_(bias)


def _normalise(problem: Problem, state: TargetState, index: int, rows: Tensor) -> Tensor:
    """Scales block ``index`` so that the given rows of ``T W`` have variance 1 (second moment, without a bias); returns
    the factors ``[d]``."""
    count, rows = spread_count(problem), rows.double()
    sums = [rows.square().sum(0)]
    if problem.model.blocks[index].bias:
        sums.append(rows.sum(0))
    squares, *means = (value / count for value in sum_over(problem.grid.parts, *sums))
    variance = squares - means[0].square() if means else squares
    mean = float(variance.mean())
    factors = variance.clamp(min=1e-4 * mean + 1e-30).rsqrt()
    # a unit that does not vary at all has no spread to set; growing its bias again and again would end in infinity
    factors = factors.masked_fill_(variance <= 1e-12 * mean, 1.0).to(problem.dtype)
    for name in (f"block{index}.weight", f"block{index}.bias"):
        if name in state.weights:
            state.weights[name] = state.weights[name] * factors
    return factors


def spread_rows(problem: Problem) -> Tensor:
    """The rows from which spread is measured: those whose number in the whole graph is a multiple of a stride."""
    return (problem.node_ids % _stride(problem.facts.num_nodes) == 0).nonzero().squeeze(1)


def spread_count(problem: Problem) -> int:
    """How many such rows the whole graph has."""
    return -(-problem.facts.num_nodes // _stride(problem.facts.num_nodes))


def _stride(num_nodes: int) -> int:
    return max(1, num_nodes // SPREAD_ROWS)


def _drop(problem: Problem, state: TargetState, index: int, t: Tensor) -> Tensor:
    """Sampled dropout (Srivastava et al. 2014) of T's entries, where the settings ask for it.

    Every part draws the mask of the whole graph and keeps its rows, so that a grid drops what one device would.
    """
    p = state.fixed.settings.sampled_dropout
    if p == 0.0:
        return t
    mix = (state.seed + 1_000_003 * state.iteration + index) % 2**63
    shape = (problem.facts.num_nodes, t.size(1))
    keep = torch.rand(shape, generator=torch.Generator().manual_seed(mix), dtype=t.dtype) >= p
    return t * keep[problem.node_ids.cpu()].to(t) / (1.0 - p)
