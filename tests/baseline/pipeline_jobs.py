"""Solvers that ranks of the tests make: one of them fails."""

from __future__ import annotations

from typing import Any

from gfgnn.baseline.adam import AdamSolver, AdamState
from gfgnn.config import TrainConfig
from gfgnn.model.build import Model
from gfgnn.problem import Problem
from gfgnn.solver.base import StepInfo


class Failing(AdamSolver):
    """Adam that raises on rank 1 in its third epoch."""

    def step(self, problem: Problem, state: AdamState) -> tuple[AdamState, StepInfo]:
        self.steps = getattr(self, "steps", 0) + 1
        if problem.grid.world.rank == 1 and self.steps == 3:
            raise MemoryError("no more")
        return super().step(problem, state)


def failing(config: TrainConfig, model: Model, **_: Any) -> AdamSolver:
    return Failing(config.adam, model.config.family)
