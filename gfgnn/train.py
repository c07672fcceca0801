"""The training loop, written once for every solver."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.checks import InputError, check_device
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.graph.validate import check_trainable
from gfgnn.interrupts import held
from gfgnn.model.build import Model, build_model
from gfgnn.ops.memory import keep_freed_memory
from gfgnn.problem import Problem, prepare, training_targets
from gfgnn.result import Result, peak_rss_bytes
from gfgnn.solver.base import Solver

DTYPES = {"float32": torch.float32, "float64": torch.float64}

#: Called after each iteration with its line of the history.
Callback = Callable[[dict[str, Any]], None]


def train(
    model: Model | ModelConfig,
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    on_iteration: Callback | None = None,
) -> Result:
    """Trains a network and returns the iterate that was best on the validation nodes.

    Every iteration is evaluated (or every ``config.eval_every``-th) with the weights after its step, in a
    plain forward pass; evaluation is not counted in the training seconds. Patience counts the iterations since
    the validation score or the validation loss was last better than before. Ctrl-C ends training early and
    the best iterate so far is returned, with ``interrupted`` set; before the first evaluation it is passed on.

    Args:
        model: the network, or its configuration.
        graph: features, labels and split.
        config: solver, iterations, seed, threads, device and precision.
        on_iteration: receives the history line of each iteration; a KeyboardInterrupt from it ends training.

    Raises:
        InputError: nothing to train on (no features, no labelled training node, one class only), or a device that
            is not there.
    """
    keep_freed_memory()
    config = config or TrainConfig()
    check_trainable(graph)
    if isinstance(model, ModelConfig):
        model = build_model(model, graph)
    check_device(config.device)
    solver = make_solver(config, model)
    # mode=False leaves an inference mode that the caller may be in: a differentiating solver cannot use it.
    with _threads(config.threads), torch.inference_mode(not getattr(solver, "differentiates", False)):
        run = _Run(model, graph, config, solver, on_iteration)
        run.train()
    with held() as interrupts:  # what has been trained is given back, whenever Ctrl-C comes
        result = run.result()
    return replace(result, interrupted=True) if interrupts else result


def make_solver(config: TrainConfig, model: Model) -> Solver:
    """The solver named by ``config``."""
    if config.solver == "adam":
        from gfgnn.baseline.adam import AdamSolver

        return AdamSolver(config.adam, model.config.family)
    from gfgnn.solver.target import TargetSolver

    return TargetSolver(config.target, config.iters)


class _Run:
    """One training run: the loop, what it has recorded, and the best iterate."""

    def __init__(
        self, model: Model, graph: Graph, config: TrainConfig, solver: Solver, on_iteration: Callback | None
    ) -> None:
        self.graph, self.config, self.solver, self.on_iteration = graph, config, solver, on_iteration
        self.generator = torch.Generator().manual_seed(config.seed)
        self.iters = config.iters or solver.default_iters
        self.patience = config.patience or getattr(solver, "default_patience", None)
        started = time.perf_counter()
        self.problem = prepare(model, graph, dtype=DTYPES[config.dtype], device=config.device)
        self.notes: list[str] = []
        self.state = solver.init(self.problem, self.generator)
        self.setup_seconds = self.seconds = time.perf_counter() - started
        self.steps: list[float] = []
        self.history: list[dict[str, Any]] = []
        self.improved = 0  #: iteration of the latest better validation score or lower validation loss
        self.lowest_val_loss = math.inf
        self.best: dict[str, Any] | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.last: dict[str, Any] | None = None
        self.last_weights: dict[str, Tensor] = {}
        self.interrupted = self.diverged = False

    def train(self) -> None:
        try:
            for iteration in range(1, self.iters + 1):
                record = self._iterate(iteration)
                if not _finite(record):
                    self.diverged = True
                    self._note(f"The loss was not finite at iteration {iteration}; training stopped there.")
                    break
                if self._finished(iteration):
                    break
        except KeyboardInterrupt:
            if self.last is None:
                raise
            self.interrupted = True

    def _iterate(self, iteration: int) -> dict[str, Any]:
        started = time.perf_counter()
        self.state, info = self.solver.step(self.problem, self.state)
        if self.problem.device.type == "cuda":
            torch.cuda.synchronize(self.problem.device)
        self.steps.append(time.perf_counter() - started)
        self.seconds += self.steps[-1]
        record: dict[str, Any] = {
            "iteration": iteration, "seconds": self.seconds, "step_loss": info.loss,
            "loss": None, "val_loss": None, "train": None, "val": None, "test": None, "extra": dict(info.extra),
        }  # fmt: skip
        if iteration % self.config.eval_every == 0 or iteration == self.iters:
            self._evaluate(record)
        self.history.append(record)
        if self.on_iteration is not None:
            self.on_iteration(record)
        return record

    def _evaluate(self, record: dict[str, Any]) -> None:
        """Fills in losses and scores, and keeps copies: a step may reuse the memory of its weights."""
        weights = _copies(self.solver.weights(self.problem, self.state))
        record.update(evaluate(self.problem, weights))
        if not _finite(record):
            return
        self.last, self.last_weights = record, weights
        val = record["val"]
        if self.best is None or val is None or val > self.best["val"]:
            self.best, self.best_weights = record, weights
            self.improved = record["iteration"]
        if record["val_loss"] is not None and record["val_loss"] < self.lowest_val_loss:
            self.lowest_val_loss = record["val_loss"]
            self.improved = record["iteration"]

    def _finished(self, iteration: int) -> bool:
        if self.last is None:  # nothing to return yet
            return False
        limit, patience = self.config.max_seconds, self.patience
        late = limit is not None and self.seconds >= limit
        return late or (patience is not None and iteration - self.improved >= patience)

    def _note(self, text: str) -> None:
        warnings.warn(text, stacklevel=5)
        self.notes.append(text)

    def result(self) -> Result:
        if self.best is None or self.last is None:
            raise InputError(
                "The very first iteration gave a loss that is not finite. Scale the features (--normalise rows), "
                "or use --dtype float64, more regularisation or a smaller learning rate."
            )
        if self.best["val"] is None:
            self.notes.append("No validation node is labelled: the last iterate was taken.")
        return Result(
            model=self.problem.model,
            graph=self.graph,
            config=self.config,
            # Copies made outside the inference mode can take part in a derivative.
            weights=_copies(self.best_weights),
            last_weights=_copies(self.last_weights),
            history=self.history,
            best_iteration=self.best["iteration"],
            train_accuracy=self.best["train"],
            val_accuracy=self.best["val"],
            test_accuracy=self.best["test"],
            last_test_accuracy=self.last["test"],
            loss=self.best["loss"],
            seconds=self.seconds,
            seconds_to_best=self.best["seconds"],
            seconds_per_iteration=statistics.median(self.steps),
            setup_seconds=self.setup_seconds,
            peak_rss_bytes=peak_rss_bytes(),
            settings=self.solver.describe(self.problem),
            interrupted=self.interrupted,
            diverged=self.diverged,
            notes=tuple(self.notes),
        )


def evaluate(problem: Problem, weights: dict[str, Tensor]) -> dict[str, float | None]:
    """Losses and scores of the feed-forward network on each split; None where a split has no label."""
    with torch.inference_mode():
        scores, task, y = forward(problem, weights), problem.model.task, problem.y
        values: dict[str, float | None] = {
            "loss": float(metrics.loss(task, scores[problem.train_index], problem.targets)),
            "val_loss": None,
        }
        if problem.val_index.numel():
            targets = training_targets(problem.model, problem.y[problem.val_index.cpu()]).to(scores.device)
            values["val_loss"] = float(metrics.loss(task, scores[problem.val_index], targets))
        splits = {"train": problem.train_index, "val": problem.val_index, "test": problem.test_index}
        for name, index in splits.items():
            value = metrics.score(task, scores, y, index) if index.numel() else math.nan
            values[name] = None if math.isnan(value) else value
    return values


def _copies(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in weights.items()}


def _finite(record: dict[str, Any]) -> bool:
    return math.isfinite(record["step_loss"]) and (record["loss"] is None or math.isfinite(record["loss"]))


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Runs with ``count`` torch threads and restores the former number."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
