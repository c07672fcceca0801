"""The plan that a training configuration leads to."""

from __future__ import annotations

from gfgnn.checks import InputError
from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition, check_partition
from gfgnn.model.build import Model
from gfgnn.model.wiring import is_chain
from gfgnn.partitioning import partition_of
from gfgnn.plan.layers import check_stages, parse_bounds
from gfgnn.plan.plan import Plan, node_work, sizes_of
from gfgnn.plan.stages import plan_stages
from gfgnn.problem import facts_of
from gfgnn.solver.auto import resolve


def check_grid(model: Model, graph: Graph, config: TrainConfig) -> None:
    """Raises :class:`InputError` where the grid of ``config`` does not fit graph and network, before any work."""
    if config.parts > graph.num_nodes:
        raise InputError(
            f"parts must be at most {graph.num_nodes}, the number of nodes of {graph.name}; got {config.parts}."
        )
    if not is_chain(model.blocks):
        raise InputError(
            f"{config.parts} parts x {config.stages} stages: only networks whose blocks follow each other on one "
            "propagation matrix are split over devices; this one has branches, several matrices or normalisations in "
            "between. Use one part and one stage."
        )
    check_stages(config.stages, len(model.blocks))
    if config.stage_bounds is not None:
        parse_bounds(config.stage_bounds, len(model.blocks), config.stages)


def make_plan(model: Model, graph: Graph, config: TrainConfig) -> Plan:
    """Cuts the graph into parts of equal predicted work and the blocks into stages with the smallest bottleneck.

    Raises:
        InputError: the grid does not fit graph and network, or the partition of ``config`` is another graph's.
    """
    check_grid(model, graph, config)
    settings = resolve(config.target, model, facts_of(graph))
    sizes = sizes_of(model, graph, 8 if config.dtype == "float64" else 4)
    blocks = len(model.blocks)
    bounds = None if config.stage_bounds is None else parse_bounds(config.stage_bounds, blocks, config.stages)
    stages = plan_stages(model, sizes, settings.step, config.stages, bounds)
    partition: Partition | None = None
    if config.partition is not None:
        from gfgnn.data.partition_file import load_partition

        partition = load_partition(config.partition, graph)
        check_partition(partition, graph, config.parts)
    elif config.parts > 1:
        work = node_work(model, graph, sizes, settings.step)
        partition = partition_of(
            graph,
            config.parts,
            method=config.partitioner,
            balance=("work",),
            work=work,
            seed=config.seed % 2**31,
        )
    return Plan(partition, stages)
