"""The training loop, written once for every solver and every grid of ranks."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import TrainConfig
from gfgnn.evaluate import evaluate
from gfgnn.exchange.weights import check_same, gather_weights
from gfgnn.problem import Problem
from gfgnn.profiling.ceilings import measure_ceilings
from gfgnn.profiling.recorder import Recorder
from gfgnn.profiling.report import make_profile, traced
from gfgnn.solver.base import Solver

DTYPES = {"float32": torch.float32, "float64": torch.float64}

#: Called after each iteration with its line of the history.
Callback = Callable[[dict[str, Any]], None]


@dataclass(kw_only=True)
class Outcome:
    """What a run has come to, as :class:`gfgnn.result.Result` describes it; on every rank, with its own times."""

    weights: dict[str, Tensor]
    last_weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    best: dict[str, Any]
    last: dict[str, Any]
    seconds: float
    seconds_per_iteration: float
    setup_seconds: float
    settings: dict[str, Any]
    interrupted: bool
    diverged: bool
    notes: list[str] = field(default_factory=list)
    embedding_scores: Tensor | None = None


class Run:
    """One training run: the loop, what it has recorded, and the best iterate.

    On a grid every rank makes the same run with its own blocks and nodes; what ends it is decided from values that all
    ranks agree on.

    Args:
        make_problem: builds the problem; its time counts as set-up.
        on_iteration: receives each line of the history.
        stop_requested: whether to end after the present iteration; ranks need not see it at the same time.
        spent: seconds that others have spent on the set-up before, which count as such.
    """

    def __init__(
        self,
        make_problem: Callable[[], Problem],
        config: TrainConfig,
        solver: Solver,
        on_iteration: Callback | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        spent: float = 0.0,
    ) -> None:
        self.config, self.solver, self.on_iteration, self.stop_requested = (
            config, solver, on_iteration, stop_requested,
        )  # fmt: skip
        self.generator = torch.Generator().manual_seed(config.seed)
        self.iters = config.iters or solver.default_iters
        self.patience = config.patience or getattr(solver, "default_patience", None)
        started = time.perf_counter()
        self.problem = make_problem()
        self.notes: list[str] = []
        self.state = solver.init(self.problem, self.generator)
        self.setup_seconds = self.seconds = spent + self._slowest(time.perf_counter() - started)
        self.recorder = Recorder(self.problem.device) if config.profile else None
        self.unsettled = 0.0  #: seconds of the steps since the ranks last agreed on the time
        self.steps: list[float] = []
        self.spans: list[tuple[float, float]] = []  #: when each step began and ended, for the timeline
        self.history: list[dict[str, Any]] = []
        self.improved = 0  #: iteration of the latest better validation score or lower validation loss
        self.lowest_val_loss = math.inf
        self.best: dict[str, Any] | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.best_embedding_scores: Tensor | None = None
        self.last: dict[str, Any] | None = None
        self.last_weights: dict[str, Tensor] = {}
        self.interrupted = self.diverged = False

    def train(self) -> None:
        """All iterations, or fewer: without progress, out of time, diverged or interrupted."""
        try:
            for iteration in range(1, self.iters + 1):
                record = self._iterate(iteration)
                if not _finite(record):
                    self.diverged = True
                    self._note(f"The loss was not finite at iteration {iteration}; training stopped there.")
                    break
                if self._finished(iteration):
                    break
            if finish := getattr(self.solver, "finish", None):
                finish(self.problem, self.state)
        except KeyboardInterrupt:
            if self.last is None or self.problem.grid.world.size > 1:
                raise
            self.interrupted = True

    def _iterate(self, iteration: int) -> dict[str, Any]:
        with self.recorder.iteration(iteration) if self.recorder is not None else nullcontext():
            started = time.perf_counter()
            self.state, info = self.solver.step(self.problem, self.state)
            if self.problem.device.type == "cuda":
                torch.cuda.synchronize(self.problem.device)
            ended = time.perf_counter()
        self.steps.append(ended - started)
        if self.config.timeline:
            self.spans.append((started, ended))
        self.unsettled += self.steps[-1]
        record: dict[str, Any] = {
            "iteration": iteration, "seconds": self.seconds + self.unsettled, "step_loss": info.loss,
            "loss": None, "val_loss": None, "train": None, "val": None, "test": None, "extra": dict(info.extra),
        }  # fmt: skip
        if self._evaluates(iteration):
            self.seconds += self._slowest(self.unsettled)
            self.unsettled, record["seconds"] = 0.0, self.seconds
            self._evaluate(record)
        self.history.append(record)
        if self.on_iteration is not None:
            self.on_iteration(record)
        return record

    def _evaluates(self, iteration: int) -> bool:
        return iteration % self.config.eval_every == 0 or iteration == self.iters

    def _slowest(self, seconds: float) -> float:
        """The longest of the ranks' times: nobody is done before that. Every rank must call it; sends one number."""
        world = self.problem.grid.world
        if world.size == 1:
            return seconds
        longest = torch.tensor([seconds], dtype=torch.float64, device=self.problem.device)
        return float(world.all_reduce(longest, purpose="evaluate", op="max").wait())

    def _evaluate(self, record: dict[str, Any]) -> None:
        """Fills in losses and scores, and keeps copies: a step may reuse the memory of its weights."""
        weights = copies(self.solver.weights(self.problem, self.state))
        check_same(self.problem, weights)
        record.update(evaluate(self.problem, weights))
        if not _finite(record):
            return
        self.last, self.last_weights = record, weights
        val = record["val"]
        if self.best is None or val is None or val > self.best["val"]:
            self.best, self.best_weights = record, weights
            self._keep_embedding_scores()
            self.improved = record["iteration"]
        if record["val_loss"] is not None and record["val_loss"] < self.lowest_val_loss:
            self.lowest_val_loss = record["val_loss"]
            self.improved = record["iteration"]

    def _keep_embedding_scores(self) -> None:
        """Of solvers that have embeddings beside the network's own, where one rank has them all."""
        scores = getattr(self.solver, "embedding_scores", None)
        if scores is not None and self.problem.grid.world.size == 1:
            self.best_embedding_scores = self.problem.by_node(scores(self.problem, self.state).detach().cpu())

    def _finished(self, iteration: int) -> bool:
        world = self.problem.grid.world
        if self.last is None or (world.size > 1 and not self._evaluates(iteration)):
            return False  # nothing to return yet, or times that ranks have not agreed on
        if self._slowest(float(self.stop_requested())):
            self.interrupted = True
            return True
        limit, patience = self.config.max_seconds, self.patience
        late = limit is not None and self.seconds + self.unsettled >= limit
        return late or (patience is not None and iteration - self.improved >= patience)

    def _note(self, text: str) -> None:
        warnings.warn(text, stacklevel=5)
        self.notes.append(text)

    def profile(self) -> dict[str, Any] | None:
        """What this rank's iterations spent their time on, see :func:`gfgnn.profiling.report.make_profile`, and their
        ``spans`` for a trace; None unless asked for. Called by every rank, so that all measure the machine at once."""
        if self.recorder is None:
            return None
        self.problem.grid.world.barrier()
        ceilings = measure_ceilings(self.problem.dtype, self.problem.device)
        spans = self.recorder.spans(len(self.steps))
        profile = make_profile(spans, self.recorder.counter, self.steps, ceilings)
        return {"rank": self.problem.grid.world.rank, **profile, "spans": traced(spans)}

    def outcome(self) -> Outcome:
        """What came of it. Called by every rank; brings the weights of the best and the last iterate to all."""
        if self.best is None or self.last is None:
            raise InputError(
                "The very first iteration gave a loss that is not finite. Scale the features (--normalise rows), "
                "or use --dtype float64, more regularisation or a smaller learning rate."
            )
        if self.best["val"] is None:
            self.notes.append("No validation node is labelled: the last iterate was taken.")
        return Outcome(
            weights=gather_weights(self.problem, self.best_weights),
            last_weights=gather_weights(self.problem, self.last_weights),
            history=self.history,
            best=self.best,
            last=self.last,
            seconds=self.seconds + self.unsettled,
            seconds_per_iteration=statistics.median(self.steps),
            setup_seconds=self.setup_seconds,
            settings=self.solver.describe(self.problem),
            interrupted=self.interrupted,
            diverged=self.diverged,
            notes=self.notes,
            embedding_scores=self.best_embedding_scores,
        )


def copies(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Clones of all weights."""
    return {name: value.clone() for name, value in weights.items()}


def _finite(record: dict[str, Any]) -> bool:
    return math.isfinite(record["step_loss"]) and (record["loss"] is None or math.isfinite(record["loss"]))
