"""The plan that a training configuration leads to, and the settings that keep it within a memory limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gfgnn.checks import InputError, check_bytes
from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition, check_partition
from gfgnn.model.build import Model
from gfgnn.model.wiring import is_chain
from gfgnn.ops.memory import mapped_bytes, page_out, release_freed_memory, resident_bytes
from gfgnn.partitioning import partition_of
from gfgnn.plan.layers import check_stages, parse_bounds
from gfgnn.plan.limit import Needs, Settings, choose, mega
from gfgnn.plan.memory import BASE, tensor_bytes
from gfgnn.plan.plan import Plan, node_work, sizes_of
from gfgnn.plan.stages import plan_stages
from gfgnn.problem import facts_of
from gfgnn.solver.auto import resolve

#: Bytes for each stored edge while nodes are put in another order.
_REORDERING = 64


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A training configuration that keeps to a memory limit.

    Attributes:
        config: with whatever had to be chosen for it.
        limit: allowed, in bytes.
        peak: predicted, in bytes.
        words: what was chosen, as options of the command line.
    """

    config: TrainConfig
    limit: int
    peak: int
    words: str

    def describe(self) -> str:
        """In one line."""
        return f"memory: {self.words}; predicted peak {mega(self.peak)}, limit {mega(self.limit)}"


def fit_memory(model: Model, graph: Graph, config: TrainConfig) -> Fit | None:
    """The settings with which a run keeps to ``config.memory_limit``; None where there is no limit.

    What the process has in use already, the graph and the libraries, is measured; the rest is predicted.

    Raises:
        InputError: nothing fits (the message says what would), or memory is not predicted for solver or network.
    """
    if config.memory_limit is None:
        return None
    if config.solver != "target" or not is_chain(model.blocks):
        what = "networks with branches" if config.solver == "target" else f"solver {config.solver}"
        raise InputError(
            f"memory_limit is {config.memory_limit}, but memory is predicted for solver target and for networks whose "
            f"blocks follow each other, not for {what}; leave it out."
        )
    limit, target = check_bytes("memory_limit", config.memory_limit), config.target
    asked = Settings(lean=config.lean, recompute=target.recompute, storage=target.storage, parts=config.parts)
    needs = needs_of(model, graph, 8 if config.dtype == "float64" else 4)
    chosen = choose(limit, needs, asked, out_of_core=config.out_of_core)
    use, order, peak = chosen.settings, config.order, chosen.peak
    if not config.out_of_core and order != "none":
        moved = needs.feature_bytes + graph.edge_index.nbytes  # stored anew, beside the graph as it was given
        with_order = max(peak + moved, needs.held + moved + _REORDERING * graph.num_edges)
        if order == "auto" and with_order > limit:
            order = "none"
        elif with_order > limit:
            raise InputError(
                f"memory_limit is {mega(limit)}, and this run needs {mega(with_order)} while nodes are put in order "
                f"{order}, {mega(peak)} in the order given. Use order auto, or raise the limit."
            )
        else:
            peak = with_order
    changed = replace(
        config,
        lean=use.lean,
        parts=use.parts,
        order=order,
        target=replace(target, recompute=use.recompute, storage=use.storage),
    )
    return Fit(config=changed, limit=limit, peak=peak, words=use.words())


def needs_of(model: Model, graph: Graph, itemsize: int) -> Needs:
    """What the memory of a run depends on. Lets go of whatever this process can do without now."""
    assert graph.x is not None
    sizes = sizes_of(model, graph, itemsize)
    release_freed_memory()
    page_out(graph.mapped_parts())
    return Needs(
        model=model,
        sizes=sizes,
        symmetric=not graph.directed and model.operators[0].norm in ("sym", "none"),
        feature_bytes=tensor_bytes(graph.x),
        held=resident_bytes() or BASE,
        mapped=mapped_bytes(graph.mapped_parts()),
    )


def room_within(memory_limit: str | None) -> int | None:
    """Bytes that are left of a limit; None where there is none, or the system does not tell what is in use."""
    used = resident_bytes()
    return None if memory_limit is None or used is None else max(1, check_bytes("", memory_limit) - used)


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
            memory=room_within(config.memory_limit),
        )
    return Plan(partition, stages)
