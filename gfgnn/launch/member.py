"""What one rank of a grid does, whatever a rank is: a process, a thread, or a process of torchrun."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gfgnn.comm.base import Communicator
from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.grid import ProcessGrid, make_grid
from gfgnn.config import TrainConfig
from gfgnn.exchange.sums import gather_objects
from gfgnn.launch.method import Method, replicas
from gfgnn.loop import DTYPES, Callback, Outcome, Run
from gfgnn.model.build import Model, model_from_dict
from gfgnn.ops.memory import keep_freed_memory, return_freed_memory
from gfgnn.problem import Problem
from gfgnn.result import peak_rss_bytes
from gfgnn.shards import GraphShard, shard_problem
from gfgnn.solver.base import Solver
from gfgnn.toml import from_mapping


@dataclass(frozen=True)
class Task:
    """What every rank must know: the network, the training settings, the blocks of each stage, how many seconds of
    set-up came before, and the method where it is not one that the settings name."""

    model: Model
    config: TrainConfig
    bounds: tuple[int, ...]
    spent: float = 0.0
    method: Method | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; :meth:`from_dict` is the inverse."""
        return self.model.to_dict() | {
            "config": asdict(self.config), "bounds": list(self.bounds), "spent": self.spent,
            "method": None if self.method is None else asdict(self.method),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Task:
        train = from_mapping(TrainConfig, values["config"], "the task")
        method = None if values["method"] is None else Method(**values["method"])
        return cls(model_from_dict(values), train, tuple(values["bounds"]), values["spent"], method)

    def solver(self) -> Solver:
        """What each rank trains with."""
        from gfgnn.train import make_solver

        if self.method is not None:
            return self.method.make(self.config, self.model)
        return make_solver(self.config, self.model)

    def grid(self, world: Communicator) -> ProcessGrid:
        """This rank's place. Called by every rank; makes groups."""
        if self.method is not None and self.method.replicated:
            return replicas(world)
        return make_grid(world, self.config.parts, self.config.stages)


def train_rank(
    world: Communicator,
    load: Callable[[int, bool], GraphShard],
    task: Task,
    device: str,
    *,
    on_iteration: Callback | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[Outcome, list[dict[str, Any]]]:
    """One rank's part of a training run: the outcome and the reports of all ranks.

    Called by every rank of ``world``.

    Args:
        load: gives the shard of a part, with features where asked.
        on_iteration: receives each line of the history; the same on every rank, but for the times.
    """
    config, model = task.config, task.model
    if config.lean or config.out_of_core:
        return_freed_memory()
    else:
        keep_freed_memory()
    counted = CountingCommunicator(world, trace=config.timeline)
    solver = task.solver()
    differentiates = getattr(solver, "differentiates", False)
    # mode=False leaves an inference mode that the caller may be in: a differentiating solver cannot use it.
    with torch.inference_mode(not differentiates):
        grid = task.grid(counted)

        def make_problem() -> Problem:
            shard = load(grid.part % grid.num_parts, grid.stage == 0)
            return shard_problem(
                model, shard, grid, task.bounds, dtype=DTYPES[config.dtype], device=device,
                keep_features=differentiates,
            )  # fmt: skip

        run = Run(make_problem, config, solver, on_iteration, stop_requested, task.spent)
        run.train()
        report = _report(run, counted) | {"profile": run.profile()}
        reports = gather_objects(counted, report, run.problem.device, purpose="evaluate")
        return run.outcome(), reports


def _report(run: Run, counted: CountingCommunicator) -> dict[str, Any]:
    problem, grid = run.problem, run.problem.grid
    halo = getattr(getattr(problem.propagation, "matrix", None), "plan", None)
    report = {
        "rank": grid.world.rank, "part": grid.part, "stage": grid.stage,
        "blocks": [problem.span.start, problem.span.stop],
        "nodes": problem.propagation.num_nodes, "halo": halo.num_halo if halo is not None else 0,
        "peak_rss_bytes": peak_rss_bytes(), "threads": torch.get_num_threads(),
        "step_seconds": sum(run.steps), "median_seconds": statistics.median(run.steps), "traffic": counted.books(),
    }  # fmt: skip
    if run.config.timeline:
        report["waits"] = counted.waits
        report["step_spans"] = run.spans
    return report
