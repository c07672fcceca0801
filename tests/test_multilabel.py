"""Several labels a node, some of them unknown: every solver, one device and grids, by ROC-AUC wherever it is told."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from ogb_raw import write_ogb
from typer.testing import CliRunner

import gfgnn
from gfgnn import Graph, ModelConfig, TrainConfig, metrics
from gfgnn.cli import app
from gfgnn.data.ogb import official_score

GCN = ModelConfig(family="gcn", layers=2, hidden=8)
SOLVERS = ("target", "admm", "community-admm", "pdadmm-g", "adam")


@cache
def partly_unknown() -> Graph:
    """Five labels a node made of its features and its neighbours'; a third of the entries is unknown."""
    graph = gfgnn.load("synthetic:nodes=240,classes=3,features=6,noise=1,degree=8,seed=1")
    generator = torch.Generator().manual_seed(0)
    assert graph.x is not None
    values = graph.x @ torch.randn(6, 5, generator=generator)
    y = (values > values.mean(0)).float()
    y[torch.rand(240, 5, generator=generator) < 1 / 3] = torch.nan
    return graph.replace(y=y, num_classes=5, task="multilabel")


def model_for(solver: str) -> ModelConfig:
    return ModelConfig(family="sign", layers=2, hidden=8) if solver == "pdadmm-g" else GCN


@cache
def trained(solver: str) -> gfgnn.Result:
    iters = {"adam": 60, "community-admm": 40, "pdadmm-g": 60}.get(solver, 10)
    return gfgnn.train(
        model_for(solver), partly_unknown(), TrainConfig(solver=solver, iters=iters, threads=1)
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_unknown_entries_are_no_obstacle(solver: str) -> None:
    """A constant has a ROC-AUC of .5; the best iterate is that of the highest on validation."""
    result = trained(solver)
    assert not result.diverged
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.75
    assert result.val_accuracy == max(line["val"] for line in result.history)


def test_scores_are_those_of_known_entries() -> None:
    graph, result = partly_unknown(), trained("target")
    probability = gfgnn.predict(result, graph).probability
    assert probability is not None
    truth, scores = graph.y[graph.val_mask], probability[graph.val_mask]
    known = ~torch.isnan(truth)
    areas = [metrics.roc_auc(scores[k, c], truth[k, c]) for c, k in enumerate(known.T)]
    assert result.val_accuracy == pytest.approx(sum(areas) / 5, abs=1e-6)
    logits = torch.logit(probability.double())[graph.train_mask]
    y = graph.y[graph.train_mask].double()
    entries = -(y * logits.sigmoid().log() + (1 - y) * (-logits).sigmoid().log())
    assert result.loss == pytest.approx(float(entries.nanmean()), rel=1e-4)


def test_as_ogb_scores_them() -> None:
    """On all 112 columns of proteins, with unknown entries and columns of one class."""
    generator = torch.Generator().manual_seed(1)
    y = (torch.rand(60, 112, generator=generator) < 0.3).float()
    y[torch.rand(60, 112, generator=generator) < 0.5] = torch.nan
    y[:, 7] = 0.0
    scores = torch.rand(60, 112, generator=generator)
    index = torch.arange(60)
    ours = metrics.score("multilabel", scores, y, index)
    assert official_score("ogbn-proteins", y, scores) == pytest.approx(ours, abs=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("other", [0.0, 1.0])
def test_a_label_nobody_knows_has_no_influence(solver: str, other: float) -> None:
    """Whatever validation and test nodes have there, training sees that they are not training nodes."""
    graph = partly_unknown()
    y = graph.y.clone()
    y[~graph.train_mask] = torch.where(torch.isnan(y[~graph.train_mask]), torch.nan, other)
    config = TrainConfig(solver=solver, iters=3, threads=1)
    found = gfgnn.train(model_for(solver), graph.replace(y=y), config)
    expected = gfgnn.train(model_for(solver), graph, config)
    for name, weight in expected.last_weights.items():
        assert torch.equal(found.last_weights[name], weight)


@pytest.mark.parametrize(
    ("solver", "parts", "stages"), [("target", 2, 1), ("target", 2, 2), ("admm", 1, 2), ("admm", 2, 1)]
)
def test_grids_say_what_one_device_says(solver: str, parts: int, stages: int) -> None:
    settings: dict[str, Any] = {"solver": solver, "iters": 4, "threads": 1, "dtype": "float64"}
    alone = gfgnn.train(GCN, partly_unknown(), TrainConfig(**settings))
    grid = TrainConfig(parts=parts, stages=stages, backend="thread", **settings)
    result = gfgnn.train(GCN, partly_unknown(), grid)
    for line, expected in zip(result.history, alone.history, strict=True):
        for name in ("loss", "val_loss", "train", "val", "test"):
            assert line[name] == pytest.approx(expected[name], rel=1e-6), name


def test_tuning_chooses_by_roc_auc() -> None:
    trials: list[dict[str, Any]] = []
    config = gfgnn.tune(GCN, partly_unknown(), TrainConfig(iters=10, threads=1), on_trial=trials.append)
    best = max(trial["val"] for trial in trials if trial["val"] is not None)
    assert gfgnn.train(GCN, partly_unknown(), config).val_accuracy == best
    assert best > 0.7


def test_the_command_says_roc_auc(tmp_path: Path) -> None:
    write_ogb(tmp_path, "ogbn-proteins", tasks=112, nodes=120)
    out = tmp_path / "run"
    arguments = [
        "train", "--data", "ogbn-proteins", "--root", str(tmp_path), "--model", "sage", "--layers", "2",
        "--hidden", "8", "--iters", "4", "--max-seconds", "20", "--compare-adam", "--adam-seconds", "0.2",
        "--threads", "1", "--post", "correct-and-smooth", "--out", str(out),
    ]  # fmt: skip
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert "test ROC-AUC" in ran.output
    assert "to its best validation ROC-AUC" in ran.output
    assert "accuracy" not in ran.output
    summary = json.loads((out / "result.json").read_text())
    assert (summary["task"], summary["score"]) == ("multilabel", "ROC-AUC")
    assert summary["official_test_rocauc"] == pytest.approx(summary["test_accuracy"], abs=1e-6)
    assert 0 < summary["post"]["val_accuracy"] <= 1
