"""Labels as inputs: what is learnt and measured is never shown, and predictions are those of a plain reference."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from typer.testing import CliRunner

import gfgnn
from gfgnn import Graph, InputError, ModelConfig, TrainConfig
from gfgnn.cli import app
from gfgnn.graph.features import is_sparse
from gfgnn.graph.operators import build_propagation
from gfgnn.label_reuse import training_inputs
from gfgnn.predict import Room, earlier_network

MODEL = ModelConfig(family="gcn", layers=2, hidden=8, label_inputs=True)
REUSED = replace(MODEL, label_reuse=True)
CONFIG = TrainConfig(iters=5, threads=1)


@cache
def classes() -> Graph:
    """Features say little of the classes, neighbours much."""
    return gfgnn.load(
        "synthetic:nodes=300,classes=3,features=5,noise=8,degree=12,seed=1", split="train=0.5,val=0.2"
    )


@cache
def multilabel() -> Graph:
    """Three labels a node, a fifth of the entries unknown."""
    y = torch.nn.functional.one_hot(classes().y, 3).float()
    y[torch.rand(300, 3, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
    return classes().replace(y=y, task="multilabel")


@cache
def sparse() -> Graph:
    graph = classes()
    assert graph.x is not None
    return graph.replace(x=torch.where(graph.x.abs() > 1, graph.x, 0.0).to_sparse_csr())


GRAPHS = {"multiclass": classes, "multilabel": multilabel, "sparse": sparse}
each = pytest.mark.parametrize("graph", [make() for make in GRAPHS.values()], ids=list(GRAPHS))


def dense(x: Tensor | None) -> Tensor:
    assert x is not None
    return x.to_dense() if is_sparse(x) else x


def known_rows(graph: Graph, nodes: list[int]) -> tuple[Tensor, Tensor]:
    """Labels of all nodes less the mean of those of ``nodes``, zeros where unknown; and that mean."""
    y = torch.nn.functional.one_hot(graph.y, 3).float() if graph.task == "multiclass" else graph.y
    mean = torch.zeros(3)
    for c in range(3):
        known = [v for v in y[nodes, c].tolist() if v == v]
        mean[c] = sum(known) / len(known)
    return torch.where(torch.isnan(y), 0.0, y - mean), mean


@each
def test_a_training_node_is_shown_or_learnt(graph: Graph) -> None:
    train = graph.labelled(graph.train_mask).tolist()
    first = training_inputs(graph, 3)
    second = training_inputs(graph, 3, lambda g: torch.full((300, 3), 0.25))
    learnt = [set(drawn.labelled(drawn.train_mask).tolist()) for drawn in (first, second)]
    assert learnt[0] | learnt[1] == set(train)
    assert not learnt[0] & learnt[1]
    for drawn, own, fill in ((first, learnt[0], None), (second, learnt[1], 0.25)):
        shown = sorted(set(train) - own)
        rows, mean = known_rows(graph, shown)
        expected = torch.zeros(300, 3) if fill is None else (fill - mean).expand(300, 3).clone()
        expected[shown] = rows[shown]
        torch.testing.assert_close(dense(drawn.x)[:, 5:], expected)
        assert torch.equal(dense(drawn.x)[:, :5], dense(graph.x))
        assert torch.equal(drawn.val_mask, graph.val_mask)
        assert torch.equal(drawn.test_mask, graph.test_mask)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20), task=st.sampled_from(list(GRAPHS)), reuse=st.booleans())
def test_labels_that_are_learnt_or_measured_are_never_inputs(seed: int, task: str, reuse: bool) -> None:
    """Whatever labels the other nodes get, no node's inputs change: nor do those that a given first network makes."""
    graph = GRAPHS[task]()

    def earlier(inputs: Graph) -> Tensor:
        return dense(inputs.x) @ torch.linspace(0.0, 1.0, 24).reshape(8, 3)

    def inputs_of(graph: Graph) -> Graph:
        return training_inputs(graph, seed, earlier if reuse else None)

    drawn = inputs_of(graph)
    hidden = (drawn.train_mask | ~graph.train_mask).nonzero().squeeze(1)
    y = graph.y.clone()
    y[hidden] = torch.roll(y[hidden], 1 + seed % (hidden.numel() - 1), dims=0)
    if graph.task == "multilabel":  # which nodes have a label decides on the draw; which label does not
        y = torch.where(torch.isnan(graph.y), torch.nan, y.nan_to_num(0.0))
    assert not torch.equal(y.nan_to_num(2.0), graph.y.nan_to_num(2.0))
    other = inputs_of(graph.replace(y=y))
    assert torch.equal(dense(other.x), dense(drawn.x))
    assert torch.equal(other.train_mask, drawn.train_mask)


@each
@pytest.mark.parametrize("reuse", [False, True])
def test_predictions_as_a_plain_reference(graph: Graph, reuse: bool) -> None:
    result = gfgnn.train(REUSED if reuse else MODEL, graph, CONFIG)
    w = {name: value.double() for name, value in result.weights.items()}
    s = build_propagation(graph).to(torch.float64, "cpu").apply(torch.eye(300, dtype=torch.float64))
    train = graph.labelled(graph.train_mask).tolist()
    rows, mean = known_rows(graph, train)
    columns = torch.zeros(300, 3, dtype=torch.float64)
    for before in ("earlier.", "") if reuse else ("",):
        columns[train] = rows[train].double()
        h = torch.cat([dense(graph.x).double(), columns], dim=1)
        h = (s @ h @ w[f"{before}block0.weight"] + w[f"{before}block0.bias"]).relu()
        scores = s @ h @ w[f"{before}block1.weight"] + w[f"{before}block1.bias"]
        said = scores.sigmoid() if graph.task == "multilabel" else scores.softmax(1)
        columns = said - mean
    found = gfgnn.predict(result, graph).probability
    assert found is not None
    torch.testing.assert_close(found.double(), said, rtol=1e-4, atol=1e-5)


def test_the_second_network_learns_the_other_half() -> None:
    """Its inputs are those that the first one's weights, kept in the result, make."""
    graph = classes()
    result = gfgnn.train(REUSED, graph, CONFIG)
    model, first = gfgnn.build_model(MODEL, graph), gfgnn.train(MODEL, graph, CONFIG)
    for name, weight in first.weights.items():
        assert torch.equal(result.weights[f"earlier.{name}"], weight)
    inputs = training_inputs(graph, CONFIG.seed, earlier_network(model, first.weights, Room()))
    alone = gfgnn.train(replace(model, config=replace(MODEL, label_inputs=False)), inputs, CONFIG)
    for name, weight in alone.weights.items():
        assert torch.equal(result.weights[name], weight)
    assert result.test_accuracy == alone.test_accuracy
    assert result.setup_seconds > first.seconds * 0.1
    assert result.seconds_to_best > result.setup_seconds


@pytest.mark.parametrize("model", [MODEL, REUSED])
def test_predictions_read_labels_of_training_nodes_alone(model: ModelConfig) -> None:
    graph = classes()
    result = gfgnn.train(model, graph, CONFIG)
    y = torch.where(graph.train_mask, graph.y, (graph.y + 1) % 3)
    found, expected = (gfgnn.predict(result, g).probability for g in (graph.replace(y=y), graph))
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
    shown = torch.where(graph.train_mask, (graph.y + 1) % 3, graph.y)
    other = gfgnn.predict(result, graph.replace(y=shown)).probability
    assert other is not None
    assert not torch.allclose(other, expected)


@pytest.mark.parametrize("model", [MODEL, REUSED])
def test_labels_say_what_features_do_not(model: ModelConfig) -> None:
    """On a graph whose features are mostly noise."""
    graph, config = classes(), TrainConfig(iters=15, threads=1)
    plain = gfgnn.train(replace(model, label_inputs=False, label_reuse=False), graph, config)
    labelled = gfgnn.predict(gfgnn.train(model, graph, config), graph).prediction
    assert labelled is not None
    assert plain.test_accuracy is not None
    assert float((labelled == graph.y)[graph.test_mask].float().mean()) > plain.test_accuracy + 0.05


@pytest.mark.parametrize(("parts", "stages"), [(2, 1), (1, 2)])
def test_a_grid_trains_the_same(parts: int, stages: int) -> None:
    alone = gfgnn.train(REUSED, classes(), TrainConfig(iters=3, threads=1, dtype="float64"))
    grid = TrainConfig(iters=3, threads=1, dtype="float64", parts=parts, stages=stages, backend="thread")
    for name, weight in gfgnn.train(REUSED, classes(), grid).weights.items():
        torch.testing.assert_close(weight, alone.weights[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["admm", "community-admm", "adam"])
def test_every_solver_takes_them(solver: str) -> None:
    result = gfgnn.train(REUSED, classes(), TrainConfig(solver=solver, iters=4, threads=1))
    assert result.weights["block0.weight"].shape == (5 + 3, 8)
    assert gfgnn.predict(result, classes()).prediction is not None


def test_lines_go_on_where_the_first_network_ends() -> None:
    """Only the second one's are told, with the seconds of both; either gets half of the time."""
    lines: list[float] = []
    config = TrainConfig(iters=10, threads=1, max_seconds=0.0)
    result = gfgnn.train(REUSED, classes(), config, on_iteration=lambda line: lines.append(line["seconds"]))
    assert lines == [line["seconds"] for line in result.history]
    assert len(lines) == 1
    assert lines[0] > result.setup_seconds


@pytest.mark.parametrize("model", [MODEL, REUSED])
def test_a_saved_network_knows(model: ModelConfig, tmp_path: Path) -> None:
    result = gfgnn.train(model, classes(), CONFIG)
    gfgnn.save_model(tmp_path / "model.safetensors", result.model, result.weights)
    found, expected = (gfgnn.predict(trained, classes()).probability for trained in (tmp_path, result))
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
    nobody = torch.zeros(300, dtype=torch.bool)
    with pytest.raises(
        InputError, match="takes the labels of training nodes as inputs, and synthetic has none"
    ):
        gfgnn.predict(tmp_path, classes().replace(train_mask=nobody))
    with pytest.raises(InputError, match="trained on 5 features a node; synthetic has 4"):
        gfgnn.predict(tmp_path, classes().replace(x=dense(classes().x)[:, :4]))


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "run"
    data = "synthetic:nodes=300,classes=3,features=5,noise=8,degree=12,seed=1"
    arguments = [
        "--data",
        data,
        "--split",
        "train=0.5,val=0.2",
        "--model",
        "gcn",
        "--layers",
        "2",
        "--iters",
        "4",
    ]
    more = ["--label-inputs", "--label-reuse", "--post", "correct-and-smooth", "--out", str(out)]
    ran = CliRunner().invoke(app, ["train", *arguments, *more])
    assert ran.exit_code == 0, ran.output
    assert "with all labels put in" in ran.output
    summary = json.loads((out / "result.json").read_text())
    predicted = CliRunner().invoke(app, ["predict", "--model", str(out), "--out", str(tmp_path / "p.npz")])
    assert predicted.exit_code == 0, predicted.output
    graph = classes()
    right = torch.from_numpy(np.load(tmp_path / "p.npz")["prediction"]) == graph.y
    for split, mask in (("val", graph.val_mask), ("test", graph.test_mask)):
        score = summary["label_reuse"][f"{split}_accuracy"]
        assert score == pytest.approx(float(right[mask].double().mean()))
        assert 0 < summary["post"][f"{split}_accuracy"] <= 1


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="label_reuse is for networks with label_inputs"):
        ModelConfig(label_reuse=True)
    with pytest.raises(InputError, match="label_inputs is for gfgnn's own families"):
        ModelConfig(family="custom", label_inputs=True)
    values = classes().replace(y=torch.rand(300, 2), num_classes=2, task="regression")
    with pytest.raises(InputError, match="label_inputs is for classes and multi-label targets"):
        gfgnn.train(MODEL, values, CONFIG)
    one = torch.zeros(300, dtype=torch.bool)
    one[0] = True
    with pytest.raises(InputError, match="half of the training nodes, and synthetic has 1 with a label"):
        training_inputs(classes().replace(train_mask=one), 0)
