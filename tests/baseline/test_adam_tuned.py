"""Adam by published settings, given ones and searched ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gfgnn
from gfgnn.baseline import adam_tuned
from gfgnn.baseline.adam_tuned import GRID, run
from gfgnn.baseline.settings import PUBLISHED
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.graph.graph import Graph

SHORT = Budget(iterations=5)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return gfgnn.load("synthetic:nodes=200,classes=3,features=12,noise=3")


def tuned(graph: Graph, family: str = "gcn", *, budget: Budget = SHORT, **settings: Any) -> Outcome:
    model = ModelConfig(family=family, layers=2, hidden=8)
    return run(graph, model, budget=budget, seed=0, threads=1, **settings)


@pytest.mark.parametrize("family", PUBLISHED)
def test_without_a_search_it_is_the_solver_of_the_package(graph: Graph, family: str) -> None:
    outcome = tuned(graph, family)
    model = ModelConfig(family=family, layers=2, hidden=8)
    result = gfgnn.train(model, graph, TrainConfig(solver="adam", iters=5, seed=0, threads=1))
    for ours, theirs in zip(outcome.history, result.history, strict=True):
        for name in ("train", "val", "test"):
            assert ours[name] == pytest.approx(theirs[name])
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    for name, value in result.settings.items():
        assert outcome.settings[name] == value


def test_given_settings_go_before_published_ones(graph: Graph) -> None:
    outcome = tuned(graph, lr=0.05, dropout=0.1)
    assert outcome.settings["lr"] == 0.05
    assert outcome.settings["dropout"] == 0.1
    assert outcome.settings["weight_decay"]["first"] == 5e-4
    pubmed = graph.replace(name="pubmed")
    assert tuned(pubmed, "gcnii").settings["dropout"] == 0.5
    assert tuned(pubmed, "gcnii", dropout=0.3).settings["dropout"] == 0.3
    assert tuned(graph, "gcnii").settings["dropout"] == 0.6


def test_epochs_and_patience_are_the_published_ones(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    seen = []
    monkeypatch.setattr(adam_tuned, "learn", lambda *args, **kwargs: seen.append(args[3]))
    tuned(graph, "gcnii", budget=Budget())
    tuned(graph, "gcn", budget=Budget(), patience=7)
    assert [(stop.iterations, stop.patience) for stop in seen] == [(1500, 100), (200, 7)]


def test_a_search_takes_the_best_on_validation_and_never_sees_test_labels(graph: Graph) -> None:
    outcome = tuned(graph, search=0.5, weight_decay=0.0)
    search = outcome.settings["search"]
    vals = [trial["val"] for trial in search["trials"]]
    best = search["trials"][vals.index(max(vals))]["settings"]
    assert outcome.settings["batch_norm"] == best["batch_norm"]
    assert best["lr"] in (None, outcome.settings["lr"])
    assert best["dropout"] in (
        None,
        outcome.settings["dropout"],
    )
    assert all(trial["settings"]["weight_decay"] == 0.0 for trial in search["trials"])
    free = 1 + sum(len(v) - 1 for k, v in GRID["gcn"].items() if k != "weight_decay")
    assert len(vals) == free
    y = graph.y.clone()
    y[graph.test_mask] = torch.randint(
        3, (int(graph.test_mask.sum()),), generator=torch.Generator().manual_seed(0)
    )
    assert [
        t["val"] for t in tuned(graph.replace(y=y), search=0.5, weight_decay=0.0).settings["search"]["trials"]
    ] == vals


def test_search_and_run_share_the_budget(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    budgets = []

    def train(graph: Graph, model: Any, config: Any, stop: Any, budget: Budget, *rest: Any) -> Outcome:
        """Uses its seconds up, and half as much again."""
        budgets.append(budget.seconds)
        line = {"iteration": 1, "seconds": 1.5 * budget.seconds, "val": 0.5, "test": None}
        return Outcome(contender="adam-tuned", history=[line], settings={"about": rest[-1]})

    monkeypatch.setattr(adam_tuned, "train", train)
    outcome = tuned(graph, search=0.6, budget=Budget(seconds=100.0))
    *trials, last = budgets
    spent = sum(1.5 * seconds for seconds in trials)
    assert 60.0 <= spent < 60.0 + 0.5 * trials[-1] + 1e-9  # only the last trial may run over
    assert last == pytest.approx(100.0 - spent)
    assert outcome.settings["about"]["search"]["seconds"] == pytest.approx(spent)


def test_a_search_without_time_leaves_the_published_settings(graph: Graph) -> None:
    outcome = tuned(graph, search=0.6, budget=Budget(seconds=0.0))
    assert outcome.settings["search"]["trials"] == []
    assert outcome.settings["lr"] == 0.01


def test_grids_start_from_what_is_published() -> None:
    assert set(GRID) == set(PUBLISHED)
    for family, grid in GRID.items():
        for name, values in grid.items():
            AdamConfig(**{name: values[-1]})
            published = False if name == "batch_norm" else getattr(PUBLISHED[family], name)
            assert published in values, (family, name)


def test_what_cannot_be_tuned_is_said(graph: Graph) -> None:
    with pytest.raises(InputError, match="family 'rgcn'"):
        tuned(graph, "rgcn")
    with pytest.raises(InputError, match="search"):
        tuned(graph, search=1.0)
    with pytest.raises(InputError, match="validation"):
        tuned(graph.replace(val_mask=torch.zeros_like(graph.val_mask)), search=0.5)
