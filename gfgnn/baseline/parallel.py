"""Adam with backprop on the parts of a graph: with exact halos, or with those of the epoch before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gfgnn.baseline.adam import AdamSolver, AdamState
from gfgnn.baseline.network import Network
from gfgnn.baseline.ranks import make_job, own, run_job
from gfgnn.baseline.settings import AdamSettings
from gfgnn.baseline.stale import StalePropagation, stale
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import check_between
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.exchange.halo import ShardPropagation
from gfgnn.graph.graph import Graph
from gfgnn.launch.method import Method
from gfgnn.model.build import Model
from gfgnn.problem import Problem

#: first blocks that propagate once an iteration, if at all
ONCE = ("none", "graph", "concat")


class StaleAdamSolver(AdamSolver):
    """Adam whose halos, of activations and of gradients, are those of the epoch before; PipeGCN (Wan et al. 2022).

    The first epoch is exact. The first block of SGC and SIGN, which propagates several times over, stays exact in all.

    Args:
        smoothing: share of the earlier halos in a moving average of them (PipeGCN-GF); 0 takes the latest.
    """

    name = "pipegcn"

    def __init__(
        self, config: AdamConfig | None, family: str, *, smoothing: float = 0.0, masks: str = "own"
    ) -> None:
        super().__init__(config, family, masks=masks)
        check_between("smoothing", smoothing, 0.0, 0.99)
        self.smoothing = smoothing
        self._propagations: list[StalePropagation] = []

    def network(self, problem: Problem, settings: AdamSettings) -> Network:
        s = problem.propagation
        assert isinstance(s, ShardPropagation)
        self._propagations = [stale(s, self.smoothing) for _ in problem.model.blocks]
        inputs = problem.inputs
        if inputs.block.propagate in ONCE:
            problem = replace(problem, block_inputs={0: replace(inputs, propagation=self._propagations[0])})
        return Network(problem, settings, self._propagations, self.dropping(problem))

    def finish(self, problem: Problem, state: AdamState) -> None:
        """Waits for the halos that no epoch will use. Called by every part."""
        for propagation in self._propagations:
            propagation.drain()


def exact_solver(config: TrainConfig, model: Model, *, masks: str = "own") -> AdamSolver:
    """What each rank of :func:`run` trains with."""
    return AdamSolver(config.adam, model.config.family, masks=masks)


def stale_solver(
    config: TrainConfig, model: Model, *, smoothing: float = 0.0, masks: str = "own"
) -> StaleAdamSolver:
    """What each rank of :func:`run_stale` trains with."""
    return StaleAdamSolver(config.adam, model.config.family, smoothing=smoothing, masks=masks)


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int = 2,
    **settings: Any,
) -> Outcome:
    """Full-batch Adam on as many parts of the graph as there are ranks: the very updates of one device.

    Args:
        ranks: processes of this machine, one for each part.
        settings: of :class:`gfgnn.config.AdamConfig`, the published ones where left out; of the grid; and ``masks``
            (see :class:`gfgnn.baseline.adam.AdamSolver`).

    Raises:
        InputError: a setting that is none, or a grid that does not fit.
    """
    options = own(settings, ("masks",))
    job = make_job("adam-graph-parallel", graph, model, budget, seed, threads, settings, parts=ranks)
    return run_job(job, Method("gfgnn.baseline.parallel:exact_solver", options))


def run_stale(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int = 2,
    **settings: Any,
) -> Outcome:
    """:func:`run` with the halos of the epoch before, which travel while others are computed; and ``smoothing``.

    Raises:
        InputError: a setting that is none, or a grid that does not fit.
    """
    options = own(settings, ("masks", "smoothing"))
    job = make_job("pipegcn", graph, model, budget, seed, threads, settings, parts=ranks)
    return run_job(job, Method("gfgnn.baseline.parallel:stale_solver", options))


__all__ = ["StaleAdamSolver", "exact_solver", "run", "run_stale", "stale_solver"]
