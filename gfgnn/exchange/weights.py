"""The weights of all stages, brought together, and whether parts agree on theirs."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.problem import Problem

#: Relative difference between the weights of two parts that rounding cannot explain.
TOLERANCE = 1e-3


def gather_weights(problem: Problem, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of all blocks, in the order of the blocks, on every rank.

    Called by every rank with the weights of its blocks. Part 0 of each stage sends them to rank 0, which sends all to
    every other rank.
    """
    grid, world = problem.grid, problem.grid.world
    if grid.num_stages == 1:
        return weights
    every = _empty(problem, range(len(problem.model.blocks)))
    if world.rank == 0:
        every |= weights
        for stage in range(1, grid.num_stages):
            names = _empty(problem, range(problem.bounds[stage], problem.bounds[stage + 1]))
            source = grid.rank_of(0, stage)
            world.exchange([], [(source, every[name]) for name in names], purpose="evaluate").wait()
        sends = [(rank, weight) for rank in range(1, world.size) for weight in every.values()]
        world.exchange(sends, [], purpose="evaluate").wait()
        return every
    if grid.part == 0:
        own = [(0, weights[name].contiguous()) for name in _empty(problem, problem.span)]
        world.exchange(own, [], purpose="evaluate").wait()
    world.exchange([], [(0, weight) for weight in every.values()], purpose="evaluate").wait()
    return every


def check_same(problem: Problem, weights: dict[str, Tensor]) -> None:
    """Raises RuntimeError unless all parts of this stage hold the same weights, which they have solved for alike.

    Called by every part of a stage; sends two numbers.
    """
    parts = problem.grid.parts
    if parts.size == 1:
        return
    total = torch.stack([weight.double().sum() for weight in weights.values()]).sum()
    size = torch.stack([weight.double().abs().sum() for weight in weights.values()]).sum()
    ends = parts.all_reduce(torch.stack([total, -total]), purpose="evaluate", op="max").wait()
    if float(ends.sum()) > TOLERANCE * float(size):
        raise RuntimeError(
            f"the parts of stage {problem.grid.stage} hold different weights: their sums lie between "
            f"{-float(ends[1])} and {float(ends[0])}."
        )


def _empty(problem: Problem, blocks: range) -> dict[str, Tensor]:
    """Memory for the weights of some blocks."""
    found = {}
    for index in blocks:
        block = problem.model.blocks[index]
        found[f"block{index}.weight"] = problem.targets.new_empty(block.fan_in, block.out_channels)
        if block.bias:
            found[f"block{index}.bias"] = problem.targets.new_empty(block.out_channels)
    return found


__all__ = ["check_same", "gather_weights"]
