"""Runs a distributed baseline on ranks of this machine, and says what came of it as the benchmarks want it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from gfgnn._version import __version__
from gfgnn.baseline.settings import PUBLISHED
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_count
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.launch.failure import RankFailure
from gfgnn.launch.grid import train_on_grid
from gfgnn.launch.method import Method
from gfgnn.loop import Outcome as Trained
from gfgnn.model.build import Model, build_model
from gfgnn.model.wiring import is_chain
from gfgnn.ordering import order_of
from gfgnn.plan.plan import Plan
from gfgnn.planning import make_plan

#: what is sent and waited for in iterations; the rest is set-up and evaluation
STEP_PURPOSES = ("halo", "stage", "gram", "weights", "control")
ADAM_SETTINGS = tuple(field.name for field in fields(AdamConfig))
COLUMNS = ("seconds", "step_loss", "loss", "train", "val", "test")
#: what a failure says where memory ran out; the system itself kills a process then
NO_MEMORY = ("MemoryError", "DefaultCPUAllocator")
GRID_SETTINGS = (
    "backend",
    "dtype",
    "eval_every",
    "timeout",
    "patience",
    "partitioner",
    "order",
    "stage_bounds",
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a distributed baseline is asked to do.

    Attributes:
        contender: its name in tables.
        parts, stages: the grid.
        local: epochs between two evaluations that make one iteration of the loop.
        settings: of Adam and of the grid (see :data:`ADAM_SETTINGS`, :data:`GRID_SETTINGS`).
    """

    contender: str
    graph: Graph
    model: Model
    budget: Budget
    seed: int
    threads: int
    parts: int = 1
    stages: int = 1
    local: int = 1
    settings: dict[str, Any]

    @property
    def config(self) -> TrainConfig:
        """As the loop takes it."""
        adam = {name: value for name, value in self.settings.items() if name in ADAM_SETTINGS}
        grid = {name: value for name, value in self.settings.items() if name in GRID_SETTINGS}
        asked = self.budget.iterations or PUBLISHED[self.model.config.family].iters
        return TrainConfig(
            solver="adam", adam=AdamConfig(**adam), iters=-(-asked // self.local), seed=self.seed,
            threads=self.threads, max_seconds=self.budget.seconds, parts=self.parts, stages=self.stages, **grid,
        )  # fmt: skip


def make_job(
    contender: str,
    graph: Graph,
    model: ModelConfig,
    budget: Budget,
    seed: int,
    threads: int,
    settings: dict[str, Any],
    **grid: int,
) -> Job:
    """A job whose settings have been looked at.

    Raises:
        InputError: a setting that is none, a network that Adam does not train, or a grid that does not fit.
    """
    for name, value in grid.items():
        check_count(name, value, 1)
    if unknown := set(settings) - {*ADAM_SETTINGS, *GRID_SETTINGS}:
        raise InputError(
            f"{contender} has no setting {sorted(unknown)[0]!r}; it has {', '.join((*ADAM_SETTINGS, *GRID_SETTINGS))}, "
            "and those of its own."
        )
    built = build_model(model, graph)
    if model.family not in PUBLISHED or not is_chain(built.blocks):
        raise InputError(f"{contender} trains {', '.join(PUBLISHED)}; got {model.family!r}.")
    job = Job(
        contender=contender, graph=graph, model=built, budget=budget, seed=seed, threads=threads,
        settings=settings, **grid,
    )  # fmt: skip
    _ = job.config  # checks the values
    return job


def run_job(job: Job, method: Method, *, plan: Plan | None = None) -> Outcome:
    """Trains on ``job.parts * job.stages`` ranks, processes or threads by ``job.settings["backend"]``.

    A rank that fails ends the others, and the outcome says which and why.

    Args:
        plan: who does what; None cuts the graph into ``job.parts`` of equal work.
    """
    config = job.config
    plan = plan or make_plan(job.model, job.graph, config)
    started = time.perf_counter()  # as for gfgnn.train: cutting the graph is not counted, the order is
    order = order_of(job.graph, config)
    try:
        trained, ranks = train_on_grid(
            job.model,
            job.graph,
            config,
            plan,
            order=order,
            spent=time.perf_counter() - started,
            method=method,
        )
    except RankFailure as failure:
        short = failure.kind == "killed" or any(word in str(failure) for word in NO_MEMORY)
        return Outcome(
            contender=job.contender, status="out of memory" if short else "failed", reason=str(failure),
            settings=_settings(job, method), facts=_facts(job),
        )  # fmt: skip
    return _outcome(job, method, config, trained, ranks)


def _outcome(
    job: Job, method: Method, config: TrainConfig, trained: Trained, ranks: list[dict[str, Any]]
) -> Outcome:
    steps = len(trained.history)
    status, reason = _status(trained)
    history = [
        {name: line[name] for name in COLUMNS} | {"iteration": line["iteration"] * job.local}
        for line in trained.history
    ]
    sent = {
        purpose: sum(rank["traffic"][purpose]["bytes"] for rank in ranks) / (steps * job.local)
        for purpose in STEP_PURPOSES
    }
    waited = [sum(rank["traffic"][p]["seconds"] for p in STEP_PURPOSES) for rank in ranks]
    slowest = max(rank["step_seconds"] for rank in ranks)
    return Outcome(
        contender=job.contender, status=status, reason=reason, history=history,
        setup_seconds=trained.setup_seconds,
        seconds_per_iteration=max(rank["median_seconds"] for rank in ranks) / job.local,
        peak_bytes=[rank["peak_rss_bytes"] for rank in ranks],
        bytes_per_iteration={purpose: count for purpose, count in sent.items() if count} if len(ranks) > 1 else {},
        idle_share=[w / rank["step_seconds"] for w, rank in zip(waited, ranks, strict=True)] if len(ranks) > 1 else [],
        settings=trained.settings | _settings(job, method),
        facts=_facts(job) | {
            "mean_seconds_per_iteration": slowest / (steps * job.local),
            "blocks": [rank["blocks"] for rank in ranks], "nodes": [rank["nodes"] for rank in ranks],
            "halo": [rank["halo"] for rank in ranks],
        },
    )  # fmt: skip


def _status(trained: Trained) -> tuple[str, str | None]:
    if trained.diverged:
        return "diverged", trained.notes[-1]
    return ("interrupted", "Ctrl-C") if trained.interrupted else ("done", None)


def _settings(job: Job, method: Method) -> dict[str, Any]:
    return {"parts": job.parts, "stages": job.stages, **method.options, **job.settings}


def _facts(job: Job) -> dict[str, Any]:
    return {
        "gfgnn": __version__, "torch": torch.__version__, "seed": job.seed, "threads": job.threads,
        "ranks": job.parts * job.stages,
    }  # fmt: skip


def own(settings: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Takes out of ``settings`` those that a baseline has for itself."""
    return {name: settings.pop(name) for name in names if name in settings}


__all__ = ["Job", "make_job", "own", "run_job"]
