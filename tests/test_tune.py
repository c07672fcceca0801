"""The search of settings: validation decides, test is never seen, stated settings stay."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch

import gfgnn
from gfgnn import Graph, InputError, ModelConfig, TargetConfig, TrainConfig

# The module: the attribute of the package is the function.
module = importlib.import_module("gfgnn.tune")

MODEL = ModelConfig(family="gcn", layers=2, hidden=8)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return gfgnn.load("synthetic:nodes=200,classes=3,features=16,noise=3", split="per_class=5,val=80")


def test_never_worse_than_auto_in_its_trials_and_the_same_twice(graph: Graph) -> None:
    trials: list[dict[str, Any]] = []
    chosen = gfgnn.tune(MODEL, graph, TrainConfig(iters=10, seed=1), on_trial=trials.append)
    assert trials[0]["settings"] == {}
    assert [t["trial"] for t in trials] == list(range(1, len(trials) + 1))
    scores = [(t["val"], -t["val_loss"]) for t in trials if t["better"]]
    assert scores == sorted(scores)
    assert max((t["val"], -t["val_loss"]) for t in trials if t["val"] is not None) == scores[-1]
    changed = {k: v for k, v in vars(chosen.target).items() if v != getattr(TargetConfig(), k)}
    assert changed == [t for t in trials if t["better"]][-1]["settings"]
    assert replace(chosen, target=TargetConfig()) == TrainConfig(iters=10, seed=1)
    assert gfgnn.tune(MODEL, graph, TrainConfig(iters=10, seed=1)) == chosen


def test_test_nodes_are_never_seen(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = module.train, []

    def spy(model: Any, given: Graph, config: TrainConfig) -> Any:
        seen.append(int(given.test_mask.sum()))
        return real(model, given, config)

    monkeypatch.setattr(module, "train", spy)
    gfgnn.tune(MODEL, graph, TrainConfig(iters=2))
    assert len(seen) > 3
    assert set(seen) == {0}
    assert graph.test_mask.any()


def test_what_is_stated_stays(graph: Graph) -> None:
    target = TargetConfig(step="sweep", ridge_encoder=0.25, dropout_encoder=0.3)
    trials: list[dict[str, Any]] = []
    chosen = gfgnn.tune(MODEL, graph, TrainConfig(iters=3, target=target), on_trial=trials.append).target
    assert (chosen.step, chosen.ridge_encoder, chosen.dropout_encoder) == ("sweep", 0.25, 0.3)
    assert {name for t in trials for name in t["settings"]} == {"ridge_output"}


def test_one_block_models(graph: Graph) -> None:
    trials: list[dict[str, Any]] = []
    gfgnn.tune(replace(MODEL, family="sgc"), graph, TrainConfig(iters=3), on_trial=trials.append)
    assert {name for t in trials for name in t["settings"]} == {"ridge_output", "dropout_output"}


def test_a_trial_that_diverges_is_passed_over(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.train

    def fails_when_changed(model: Any, given: Graph, config: TrainConfig) -> Any:
        if config.target != TargetConfig():
            raise InputError("The very first iteration gave a loss that is not finite.")
        return real(model, given, config)

    monkeypatch.setattr(module, "train", fails_when_changed)
    config, trials = TrainConfig(iters=2), []
    assert gfgnn.tune(MODEL, graph, config, on_trial=trials.append) == config
    assert "diverged" in module.describe(trials[-1])


def test_bad_input(graph: Graph) -> None:
    with pytest.raises(InputError, match="adam"):
        gfgnn.tune(MODEL, graph, TrainConfig(solver="adam"))
    with pytest.raises(InputError, match="validation"):
        gfgnn.tune(MODEL, graph.replace(val_mask=torch.zeros_like(graph.val_mask)))
