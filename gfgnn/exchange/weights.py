"""The weights of all stages, collected."""

from __future__ import annotations

from torch import Tensor

from gfgnn.problem import Problem


def gather_weights(problem: Problem, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of all blocks on rank 0, in the order of the blocks; elsewhere those given.

    Called by every rank with the weights of its blocks. Part 0 of each stage sends them to rank 0.
    """
    grid = problem.grid
    if grid.num_stages == 1 or grid.part > 0:
        return weights
    if grid.stage > 0:
        sends = [(0, weights[name]) for name in sorted(weights)]
        grid.stages.exchange(sends, [], purpose="evaluate").wait()
        return weights
    gathered = dict(weights)
    for stage in range(1, grid.num_stages):
        arriving = {}
        for index in range(problem.bounds[stage], problem.bounds[stage + 1]):
            block, like = problem.model.blocks[index], problem.targets
            arriving[f"block{index}.weight"] = like.new_empty(block.fan_in, block.out_channels)
            if block.bias:
                arriving[f"block{index}.bias"] = like.new_empty(block.out_channels)
        recvs = [(stage, arriving[name]) for name in sorted(arriving)]
        grid.stages.exchange([], recvs, purpose="evaluate").wait()
        gathered |= arriving
    return gathered


__all__ = ["gather_weights"]
