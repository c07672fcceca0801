"""Full-batch Adam, by the settings of the papers, by given ones, or by a search on validation."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import torch

from gfgnn.baseline.chain import WholeLearner
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.network import Network
from gfgnn.baseline.settings import PUBLISHED, adam_config, resolve
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_between
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.validate import check_trainable
from gfgnn.model.build import Model, build_model
from gfgnn.ordering import order_of
from gfgnn.problem import prepare

#: What GCNII's authors chose for single data sets (Chen et al. 2020, table 5); theta .6 and .4 are the model's.
PUBLISHED_FOR = {
    ("gcnii", "citeseer"): AdamConfig(dropout=0.7),
    ("gcnii", "pubmed"): AdamConfig(dropout=0.5, weight_decay=5e-4),
}

_LR, _DROPOUT, _NORM = (0.01, 0.003, 0.03), (0.5, 0.2, 0.0, 0.8), (False, True)
#: What a search tries, one setting after the other in this order. SGC is tuned over the decay alone, as its authors do;
#: GCNII over what its authors' table varies.
GRID: dict[str, dict[str, tuple[Any, ...]]] = {
    "gcn": {"batch_norm": _NORM, "lr": _LR, "dropout": _DROPOUT, "weight_decay": (5e-4, 0.0, 5e-3)},
    "resgcn": {"batch_norm": _NORM, "lr": _LR, "dropout": _DROPOUT, "weight_decay": (5e-4, 0.0, 5e-3)},
    "sage": {"batch_norm": _NORM, "lr": _LR, "dropout": _DROPOUT, "weight_decay": (5e-4, 0.0, 5e-3)},
    "sign": {"batch_norm": _NORM, "lr": (0.001, 0.01), "dropout": _DROPOUT, "weight_decay": (0.0, 5e-4)},
    "gcnii": {"dropout": (0.6, 0.5, 0.7, 0.2), "weight_decay": (0.01, 5e-4), "lr": (0.01, 0.003)},
    "sgc": {"weight_decay": (5e-6, 1e-6, 2e-5, 5e-5, 1e-4, 5e-4)},
}


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    search: float = 0.0,
    patience: int | None = None,
    eval_every: int = 1,
    **adam: Any,
) -> Outcome:
    """Trains a chain of blocks by backprop on the whole graph; an iteration is an epoch.

    What is not given is taken from the papers: :data:`PUBLISHED_FOR`, then :data:`gfgnn.baseline.settings.PUBLISHED`,
    epochs and patience too. Nodes are stored in the order that :func:`gfgnn.train` would take.

    With ``search``, settings that are not given are searched one after the other over :data:`GRID`, from the
    published ones: the highest validation score wins, then the earlier trial. The search may take that share of the
    budget's seconds, divided evenly among the trials that are left, and the run has the others; without a budget of
    seconds each trial has as many epochs as the run. Test nodes are taken out first. Seconds of the history are
    those of the run alone: what the search took stands in ``settings["search"]``.

    Args:
        search: 0 for none.
        adam: fields of :class:`gfgnn.config.AdamConfig`.

    Raises:
        InputError: a family without published settings, a search without labelled validation nodes, settings out of
            range.
    """
    if model.family not in PUBLISHED:
        raise InputError(f"adam-tuned has settings for {', '.join(PUBLISHED)}; got family {model.family!r}.")
    check_between("search", search, 0.0, 0.95)
    check_trainable(graph)
    built = build_model(model, graph)
    known = asdict(PUBLISHED_FOR.get((model.family, graph.name), AdamConfig()))
    config = adam_config(known | adam)
    published = PUBLISHED[model.family]
    stop = Stop(
        iterations=published.iters,
        patience=published.patience if patience is None else patience,
        eval_every=eval_every,
    )
    about: dict[str, Any] = {}
    if search:
        tuner = _Search(graph, built, budget, search, seed, threads, stop)
        config = tuner.run(config, given=adam)
        about["search"] = tuner.summary()
        if budget.seconds is not None:
            budget = replace(budget, seconds=max(0.0, budget.seconds - tuner.seconds))
    return train(graph, built, config, stop, budget, seed, threads, about)


def train(
    graph: Graph,
    model: Model,
    config: AdamConfig,
    stop: Stop,
    budget: Budget,
    seed: int,
    threads: int,
    about: dict[str, Any],
) -> Outcome:
    """One run by stated settings."""

    def make() -> Learner:
        problem = prepare(model, graph, order=order_of(graph, TrainConfig()))
        settings = resolve(config, model.config.family, len(model.blocks))
        return WholeLearner(Network(problem, settings), torch.Generator().manual_seed(seed), **about)

    return learn("adam-tuned", make, graph, stop, budget=budget, seed=seed, threads=threads)


class _Search:
    """The best settings so far."""

    def __init__(
        self, graph: Graph, model: Model, budget: Budget, share: float, seed: int, threads: int, stop: Stop
    ) -> None:
        if graph.labelled(graph.val_mask).numel() == 0:
            raise InputError(
                f"a search chooses on validation, and {graph.name} has no labelled validation node."
            )
        self.graph = graph.replace(test_mask=torch.zeros_like(graph.test_mask))
        self.model, self.budget, self.seed, self.threads, self.stop = model, budget, seed, threads, stop
        self.limit = math.inf if budget.seconds is None else share * budget.seconds
        self.seconds, self.best = 0.0, -math.inf
        self.trials: list[dict[str, Any]] = []
        self.chosen, self.left = AdamConfig(), 0

    def run(self, config: AdamConfig, given: dict[str, Any]) -> AdamConfig:
        grid = {k: v for k, v in GRID[self.model.config.family].items() if k not in given}
        self.chosen, self.left = config, 1 + sum(len(values) - 1 for values in grid.values())
        self._try(config)
        for name, values in grid.items():
            present = self._present(name)
            for value in values:
                if value != present:
                    self._try(replace(self.chosen, **{name: value}))
        return self.chosen

    def _present(self, name: str) -> Any:
        family, blocks = self.model.config.family, len(self.model.blocks)
        settings = resolve(self.chosen, family, blocks)
        if name == "weight_decay":
            return settings.decays[0 if PUBLISHED[family].decay == "first" else blocks // 2]
        return getattr(settings, name)

    def _try(self, config: AdamConfig) -> None:
        """One trial, while there is time."""
        if self.seconds >= self.limit:
            return
        seconds = None if math.isinf(self.limit) else (self.limit - self.seconds) / max(1, self.left)
        budget = replace(self.budget, seconds=seconds)
        outcome = train(self.graph, self.model, config, self.stop, budget, self.seed, self.threads, {})
        self.left -= 1
        self.seconds += outcome.history[-1]["seconds"] if outcome.history else 0.0
        val = outcome.best["val"] if outcome.status == "done" and outcome.best else None
        self.trials.append({"settings": asdict(config), "status": outcome.status, "val": val})
        if val is not None and val > self.best:
            self.best, self.chosen = val, config

    def summary(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "trials": self.trials}
