"""The forward pass part by part, for graphs on which a network does not run within the memory there is."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.checks import InputError, check_bytes
from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.data.cache import work_folder
from gfgnn.data.scratch import Scratch
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition
from gfgnn.launch.turns import Load, in_turns
from gfgnn.model.build import Model
from gfgnn.model.wiring import is_chain
from gfgnn.ops.memory import is_lean, keep_freed_memory, return_freed_memory
from gfgnn.partitioning import partition_of
from gfgnn.plan.limit import LIBRARIES, MOST_PARTS, Needs, mega
from gfgnn.plan.memory import forward_memory
from gfgnn.planning import needs_of, room_within
from gfgnn.shards import iter_shards, shard_problem


def forward_parts(model: Model, graph: Graph, memory_limit: str, itemsize: int) -> int:
    """Parts of the graph with which a forward pass keeps to the limit: 1 where the whole does, else a power of two.

    Raises:
        InputError: no number of parts does, or the network is no chain of blocks.
    """
    limit = check_bytes("memory_limit", memory_limit)
    if not is_chain(model.blocks):
        raise InputError(
            f"memory_limit is {memory_limit}, but memory is predicted for networks whose blocks follow each other, and "
            "this one has branches; leave it out."
        )
    needs, parts = needs_of(model, graph, itemsize), 1
    while (peak := _peak(needs, parts)) > limit:
        parts *= 2
        if parts > min(MOST_PARTS, graph.num_nodes):
            raise InputError(
                f"memory_limit is {mega(limit)}, and a forward pass needs {mega(peak)} with {parts // 2} parts one "
                f"after the other ({mega(needs.held)} of it is in use before it begins). Raise the limit."
            )
    return parts


def _peak(needs: Needs, parts: int) -> int:
    above = forward_memory(needs.model, needs.part(parts), needs.sizes.itemsize)
    return needs.held + LIBRARIES + (above if parts == 1 else max(above, needs.cutting(parts)))


def scores_in_turns(
    model: Model,
    weights: dict[str, Tensor],
    graph: Graph,
    parts: int,
    memory_limit: str | None = None,
    partition: Partition | None = None,
) -> Tensor:
    """Scores ``[N, C]`` of :func:`gfgnn.forward.forward`, equal up to rounding; mapped from a file.

    Every part goes as far as it can without rows of others, then the next does: layer by layer.

    Args:
        partition: of this graph into as many parts; None finds one, or takes what was found before.
    """
    if not is_chain(model.blocks):
        raise InputError(
            f"this network has branches, and goes over the whole graph at once; got {parts} parts."
        )
    lean = is_lean()
    return_freed_memory()
    try:
        return _in_turns(model, weights, graph, parts, memory_limit, partition)
    finally:
        if not lean:
            keep_freed_memory()


def _in_turns(
    model: Model,
    weights: dict[str, Tensor],
    graph: Graph,
    parts: int,
    memory_limit: str | None,
    partition: Partition | None,
) -> Tensor:
    dtype = next(iter(weights.values())).dtype
    partition = partition or partition_of(graph, parts, memory=room_within(memory_limit))
    shards = iter_shards(model, graph, partition.assignment, parts, dtype=dtype)
    with work_folder("predict") as folder:
        scratch = Scratch(folder)
        scores = scratch(graph.num_nodes, model.num_classes, dtype)

        def rank(world: Communicator, load: Load) -> None:
            with torch.inference_mode():
                shard = load(world.rank, True)
                grid = make_grid(world, parts, 1)
                problem = shard_problem(model, shard, grid, (0, len(model.blocks)), dtype=dtype)
                scores[shard.nodes] = forward(problem, weights)

        in_turns(parts, shards, rank, scratch)
        scratch.rest()
    return scores


__all__ = ["forward_parts", "scores_in_turns"]
