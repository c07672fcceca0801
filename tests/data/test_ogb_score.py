"""OGB's evaluator: the same numbers as our own scores, without an import of the package, and only where they count."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ogb_raw import write_ogb
from typer.testing import CliRunner

from gfgnn import InputError, load, metrics
from gfgnn.cli import app
from gfgnn.data.ogb import SETS, official_score, official_test
from gfgnn.data.ogb.score import _evaluation


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), decimals=st.integers(0, 3), unknown=st.booleans())
def test_rocauc_is_our_own(seed: int, decimals: int, unknown: bool) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (12, 112)).astype(np.float32)
    if unknown:
        y[rng.random(y.shape) < 0.2] = np.nan
    y[:, 0] = 1  # a task without a negative counts for neither
    scores = rng.random((12, 112)).round(decimals)  # few decimals: ties
    ours = metrics.score("multilabel", torch.from_numpy(scores), torch.from_numpy(y), torch.arange(12))
    assert official_score("ogbn-proteins", y, scores) == pytest.approx(ours, abs=1e-12)


def test_accuracy_leaves_unknown_labels_out() -> None:
    truth = torch.tensor([0.0, 1.0, 2.0, torch.nan])
    assert official_score("ogbn-papers100M", truth, torch.tensor([0, 1, 0, 0])) == pytest.approx(2 / 3)
    assert official_score("ogbn_arxiv", [[3], [4]], [[3], [3]]) == 0.5


@pytest.mark.parametrize(
    ("name", "truth", "predicted", "message"),
    [
        ("ogbn-arxiv", [1, 2], [1], r"1 column\(s\) of labels and of predictions; got \[2, 1\] and \[1, 1\]"),
        ("ogbn-proteins", np.ones((3, 4)), np.ones((3, 4)), r"112 column.*got \[3, 4\]"),
        ("ogbn-proteins", np.ones((3, 112)), np.ones((3, 112)), "rocauc of ogbn-proteins is not defined"),
        ("ogbn-mag", [np.nan], [1], "acc of ogbn-mag is not defined"),
        ("ogbn-code", [1], [1], "ogbn-code is not supported"),
    ],
)
def test_what_does_not_fit(name: str, truth: object, predicted: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        official_score(name, truth, predicted)


def test_package_is_not_imported_and_nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("asked")

    for name in [name for name in sys.modules if name.split(".")[0] in ("ogb", "outdated")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("builtins.input", asked)
    _evaluation.cache_clear()
    assert official_score("ogbn-arxiv", [1], [1]) == 1
    assert not {"ogb", "outdated"} & set(sys.modules)


def test_only_the_whole_set_with_its_own_split_counts(tmp_path: Path) -> None:
    write_ogb(tmp_path, "ogbn-arxiv")
    graph = load("ogbn-arxiv", tmp_path)
    probability = torch.eye(3)[graph.y]
    assert official_test(graph, graph.y, probability) == {"official_test_acc": 1.0}
    wrong = torch.where(graph.test_mask, (graph.y + 1) % 3, graph.y)
    assert official_test(graph, wrong, probability) == {"official_test_acc": 0.0}
    for other in (
        load("ogbn-arxiv", tmp_path, split="per_class=5,val=10"),
        load("ogbn-arxiv", tmp_path, max_year=2014),
        graph.replace(name="mine"),
        graph.replace(y=torch.where(graph.test_mask, -1, graph.y)),
    ):
        assert official_test(other, other.y, probability[: other.num_nodes]) == {}


@pytest.mark.parametrize("name", SETS)
def test_train_and_predict_report_it(name: str, tmp_path: Path) -> None:
    """From OGB's files to predictions for every node, at once or part by part."""
    at_once = name in ("ogbn-arxiv", "ogbn-mag")
    memory = [] if at_once else ["--out-of-core", "--parts", "3", "--memory-limit", "20GB"]
    write_ogb(tmp_path, name, tasks=112)
    runs, measure = tmp_path / "run", "rocauc" if name == "ogbn-proteins" else "acc"
    arguments = ["--data", name, "--root", str(tmp_path)]
    network = ["--model", "gcn", "--layers", "2", "--hidden", "16", "--iters", "5", "--threads", "1"]
    done = CliRunner().invoke(app, ["train", *arguments, *network, *memory, "--out", str(runs)])
    assert done.exit_code == 0, done.stderr
    summary = json.loads((runs / "result.json").read_text())
    official = summary[f"official_test_{measure}"]
    assert official == pytest.approx(summary["test_accuracy"], abs=1e-6)
    line = f"official test {measure} {official:.4f} (OGB's evaluator)"
    assert line in done.stdout.splitlines()
    if memory:
        assert "peak memory" in done.stdout
        assert summary["memory_limit_bytes"] == 20 * 10**9
    out = ["--out", str(tmp_path / "predictions.npz"), *memory[1:3]]
    done = CliRunner().invoke(app, ["predict", "--model", str(runs), *out])
    assert done.exit_code == 0, done.stderr
    assert line in done.stdout.splitlines()
    predicted = np.load(tmp_path / "predictions.npz")
    assert len(predicted["node_id"]) == len(predicted["prediction"]) == summary["num_nodes"]
