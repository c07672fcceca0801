"""What a training run returns."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn._version import __version__
from gfgnn.config import TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.metrics import NAMES
from gfgnn.model.build import Model
from gfgnn.plan.plan import Plan
from gfgnn.planning import Fit


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """A trained network and how it got there.

    Accuracies are those of :func:`gfgnn.metrics.score` for the feed-forward network, which is ROC-AUC for multi-label
    targets; None where a split has no label.

    Attributes:
        weights: weights of the iterate with the highest validation accuracy (the earliest of equals; the last
            iterate where nothing is labelled for validation).
        last_weights: weights of the last evaluated iterate.
        history: one line per iteration: ``iteration``, ``seconds`` (training so far), ``step_loss`` (what the
            solver reported), ``loss`` and ``val_loss`` (means after the step), ``train``, ``val``, ``test``
            (accuracies), ``extra``; what evaluation fills in is None where there was none.
        seconds: training time without evaluation, including ``setup_seconds``: propagation matrix, propagated
            features and the solver's own preparation.
        seconds_per_iteration: median over the steps.
        peak_rss_bytes: highest memory use of the process so far; on a grid, of the rank that used most.
        settings: the solver's settings as used.
        interrupted: ended by Ctrl-C.
        diverged: ended by a loss that was not finite.
        ranks: what each rank of a grid reports: ``rank``, ``part``, ``stage``, ``nodes``, ``halo`` (rows), ``blocks``,
            ``peak_rss_bytes``, ``step_seconds``, ``traffic`` (messages, bytes and seconds of waiting by purpose).
        profile: with ``config.profile``: ``{"ranks": [...]}``, for each rank what its iterations spent their time on
            and the ceilings of the machine, see :func:`gfgnn.profiling.report.make_profile`; JSON-ready. Else None.
        profile_spans: the labelled stretches of each rank's first recorded iterations, for
            :func:`gfgnn.profiling.trace.profile_trace`.
        plan: who did what on a grid.
        fit: the memory limit, what was chosen to keep to it, and the predicted peak; None without a limit.
        embedding_scores: ``[N, C]`` scores that the best iterate's embeddings give this graph's nodes, of solvers that
            have such (``admm``), trained on one device; else None. See :func:`gfgnn.predict`.
        label_reuse: of a network with ``label_inputs`` trained by ``gfgnn train``: ``val_accuracy``,
            ``test_accuracy`` and ``seconds`` of predictions with the labels of all training nodes as inputs; the
            accuracies above are with a half of them. JSON-ready. Else None.
        post: what ``gfgnn train --post`` made of the best iterate: ``method``, ``settings`` as used, ``val_accuracy``,
            ``test_accuracy``, ``seconds``; JSON-ready. Else None.
    """

    model: Model
    graph: Graph
    config: TrainConfig
    weights: dict[str, Tensor]
    last_weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    best_iteration: int
    train_accuracy: float | None
    val_accuracy: float | None
    test_accuracy: float | None
    last_test_accuracy: float | None
    loss: float
    seconds: float
    seconds_to_best: float
    seconds_per_iteration: float
    setup_seconds: float
    peak_rss_bytes: int
    settings: dict[str, Any]
    interrupted: bool = False
    diverged: bool = False
    notes: tuple[str, ...] = ()
    ranks: tuple[dict[str, Any], ...] = ()
    profile: dict[str, Any] | None = None
    profile_spans: tuple[list[Any], ...] = ()
    plan: Plan | None = None
    fit: Fit | None = None
    embedding_scores: Tensor | None = None
    label_reuse: dict[str, Any] | None = None
    post: dict[str, Any] | None = None

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"Result({self.graph.name}, {config.family} with {config.layers} layers, {self.config.solver}: best at "
            f"{self.best_iteration} of {self.iterations} iterations, val {_short(self.val_accuracy)}, "
            f"test {_short(self.test_accuracy)}, {self.seconds:.1f} s)"
        )

    @property
    def iterations(self) -> int:
        return len(self.history)

    def summary(self) -> dict[str, Any]:
        """The run as one flat JSON-ready object (``settings``, ``notes`` and a ``profile`` aside)."""
        config, graph = self.config, self.graph
        return {
            "dataset": graph.name,
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "num_features": self.model.num_features,
            "num_classes": self.model.num_classes,
            "task": self.model.task,
            "score": NAMES[self.model.task],
            "model": self.model.config.family,
            "layers": self.model.config.layers,
            "hidden": self.model.config.hidden,
            "solver": config.solver,
            "seed": config.seed,
            "threads": config.threads or self._threads(),
            "device": config.device,
            "dtype": config.dtype,
            "iterations": self.iterations,
            "best_iteration": self.best_iteration,
            "train_accuracy": self.train_accuracy,
            "val_accuracy": self.val_accuracy,
            "test_accuracy": self.test_accuracy,
            "last_test_accuracy": self.last_test_accuracy,
            "loss": self.loss,
            "seconds": self.seconds,
            "seconds_to_best": self.seconds_to_best,
            "seconds_per_iteration": self.seconds_per_iteration,
            "setup_seconds": self.setup_seconds,
            "peak_rss_bytes": self.peak_rss_bytes,
            **(
                {}
                if self.fit is None
                else {
                    "memory_limit_bytes": self.fit.limit,
                    "predicted_peak_bytes": self.fit.peak,
                    "memory_settings": self.fit.words,
                }
            ),
            "parts": config.parts,
            "stages": config.stages,
            "staleness": config.staleness,
            "ranks": [
                {k: v for k, v in rank.items() if k not in ("waits", "step_spans")} for rank in self.ranks
            ],
            "version": __version__,
            "interrupted": self.interrupted,
            "diverged": self.diverged,
            "settings": self.settings,
            "notes": list(self.notes),
            **({} if self.profile is None else {"profile": self.profile}),
            **({} if self.label_reuse is None else {"label_reuse": self.label_reuse}),
            **({} if self.post is None else {"post": self.post}),
        }

    def _threads(self) -> int:
        """Of each rank, where nothing was asked for."""
        return self.ranks[0]["threads"] if self.ranks else torch.get_num_threads()

    def seconds_to(self, accuracy: float, split: str = "test") -> float:
        """Training seconds until ``split`` first reached ``accuracy``; infinity if it never did."""
        for line in self.history:
            if line[split] is not None and line[split] >= accuracy:
                return float(line["seconds"])
        return math.inf


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def peak_rss_bytes() -> int:
    """The highest resident memory of this process; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
