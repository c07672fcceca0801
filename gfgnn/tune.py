"""A small search over the block solver's settings, by the validation score only."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, TargetConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.train import make_solver, train

#: A ridge is moved by this factor as long as that helps, at most so many times each way.
RIDGE_FACTOR, RIDGE_MOVES = 3.0, 2
DROPOUTS = (0.0, 0.1, 0.2, 0.5)
#: Trials run for half the iterations, but not for fewer than this.
LEAST_ITERS = 10

#: Validation score, then minus the validation loss: larger is better.
Score = tuple[float, float]
#: Called after each trial with what it tried and what came of it.
TrialCallback = Callable[[dict[str, Any]], None]

log = logging.getLogger(__name__)


def tune(
    model: Model | ModelConfig,
    graph: Graph,
    config: TrainConfig | None = None,
    *,
    on_trial: TrialCallback | None = None,
) -> TrainConfig:
    """Searches settings of the block solver that are left at ``auto``; what is stated stays as it is.

    A coordinate search from the choice of ``auto``: first the step (sweep or polar), then the ridges of encoder and
    output and the encoder's dropout, one after the other. Trials are half as long as the run they are for. The highest
    validation score wins, then the lowest validation loss at that iterate, then the earlier trial. Test nodes are taken
    out of the graph before the first trial. The same seed gives the same choice.

    Args:
        on_trial: receives ``trial`` (a number), ``settings`` (what differs from ``config.target``), ``val``,
            ``val_loss``, ``seconds`` and ``better`` of every trial; the same goes to the log of this module.

    Returns:
        ``config`` with the best settings stated in its ``target``.

    Raises:
        InputError: no labelled validation node, or a solver other than ``target``.
    """
    config = config or TrainConfig()
    if config.solver != "target":
        raise InputError(f"tune searches the settings of the block solver; got solver {config.solver!r}.")
    if graph.labelled(graph.val_mask).numel() == 0:
        raise InputError(f"tune chooses on validation, and {graph.name} has no labelled validation node.")
    if isinstance(model, ModelConfig):
        model = build_model(model, graph)
    search = _Search(model, graph, config, on_trial)
    search.run()
    return replace(config, target=search.best)


class _Search:
    """The best settings so far and their score."""

    def __init__(
        self, model: Model, graph: Graph, config: TrainConfig, on_trial: TrialCallback | None
    ) -> None:
        self.model, self.config, self.on_trial = model, config, on_trial
        self.graph = graph.replace(test_mask=torch.zeros_like(graph.test_mask))
        full = config.iters or make_solver(config, model).default_iters
        self.iters = min(full, max(LEAST_ITERS, full // 2))
        self.best = config.target
        self.score: Score = (-math.inf, -math.inf)
        self.used: dict[str, Any] = {}  #: the numbers behind ``best``, with what auto chose
        self.trials = 0

    def run(self) -> None:
        single = len(self.model.blocks) == 1
        self._try(self.best)
        if self.config.target.step == "auto" and not single:
            self._try(replace(self.best, step="polar" if self.used["step"] == "sweep" else "sweep"))
        for name in ("ridge_output",) if single else ("ridge_encoder", "ridge_output"):
            if getattr(self.config.target, name) == "auto":
                self._search_ridge(name)
        name = "dropout_output" if single else "dropout_encoder"
        if getattr(self.config.target, name) == "auto":
            start = self.used[name]
            for value in DROPOUTS:
                if value != start:
                    self._try(self._changed(name, value))

    def _search_ridge(self, name: str) -> None:
        """Moves a ridge down while that helps; if it never did, up."""
        for factor in (1.0 / RIDGE_FACTOR, RIDGE_FACTOR):
            moves = 0
            while moves < RIDGE_MOVES and self._try(self._changed(name, self.used[name] * factor)):
                moves += 1
            if moves:
                return

    def _changed(self, name: str, value: Any) -> TargetConfig:
        changes: dict[str, Any] = {name: value}
        return replace(self.best, **changes)

    def _try(self, target: TargetConfig) -> bool:
        """One trial; keeps its settings and returns True where it was better than the best before."""
        config = replace(self.config, target=target, iters=self.iters, profile=False)
        first = self.trials == 0
        self.trials += 1
        try:
            with warnings.catch_warnings():
                if not first:  # said once is enough
                    warnings.simplefilter("ignore")
                result = train(self.model, self.graph, config)
        except InputError:  # diverged at once
            if first:
                raise
            self._report(target, None, None, 0.0, better=False)
            return False
        if result.interrupted:
            raise KeyboardInterrupt
        val, val_loss = result.val_accuracy, result.history[result.best_iteration - 1]["val_loss"]
        score = (-math.inf if val is None else val, -val_loss)
        better = first or score > self.score
        if better:
            self.best, self.score, self.used = target, score, result.settings
        self._report(target, val, val_loss, result.seconds, better=better)
        return better

    def _report(
        self, target: TargetConfig, val: float | None, val_loss: float | None, seconds: float, *, better: bool
    ) -> None:
        given = self.config.target
        settings = {n: v for n, v in vars(target).items() if v != getattr(given, n)}
        record = {
            "trial": self.trials, "settings": settings, "val": val, "val_loss": val_loss, "seconds": seconds,
            "better": better,
        }  # fmt: skip
        log.info("%s", describe(record))
        if self.on_trial is not None:
            self.on_trial(record)


def describe(record: dict[str, Any]) -> str:
    """One trial in words."""
    settings = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in record["settings"].items()
    )
    outcome = (
        "diverged" if record["val"] is None else f"val {record['val']:.4f}, loss {record['val_loss']:.4f}"
    )
    mark = "  better" if record["better"] and record["trial"] > 1 else ""
    return f"trial {record['trial']}: {settings or 'as given'}: {outcome}, {record['seconds']:.1f} s{mark}"
