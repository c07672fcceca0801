"""Labels as inputs: what is learnt and measured is never shown, and predictions are those of a plain reference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gfgnn
from gfgnn import Graph, InputError, ModelConfig, TrainConfig
from gfgnn.graph.features import is_sparse
from gfgnn.graph.operators import build_propagation
from gfgnn.label_reuse import draw_label_inputs

MODEL = ModelConfig(family="gcn", layers=2, hidden=8, label_inputs=True, label_reuses=2)
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


def label_row(graph: Graph, node: int) -> list[float]:
    if graph.task == "multiclass":
        return [float(c == int(graph.y[node])) for c in range(graph.num_classes)]
    return [0.0 if value != value else value for value in graph.y[node].tolist()]


@each
def test_a_training_node_is_shown_or_learnt(graph: Graph) -> None:
    drawn = draw_label_inputs(graph, 3)
    x, train = dense(drawn.x), graph.labelled(graph.train_mask).tolist()
    assert torch.equal(x[:, :5], dense(graph.x))
    learnt = set(drawn.labelled(drawn.train_mask).tolist())
    assert learnt < set(train)
    assert len(learnt) == -(-len(train) // 2)
    for node in range(graph.num_nodes):
        shown = node in train and node not in learnt
        assert x[node, 5:].tolist() == (label_row(graph, node) if shown else [0.0] * 3)
    assert torch.equal(drawn.val_mask, graph.val_mask)
    assert torch.equal(drawn.test_mask, graph.test_mask)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20), task=st.sampled_from(list(GRAPHS)))
def test_labels_that_are_learnt_or_measured_are_never_inputs(seed: int, task: str) -> None:
    """Whatever labels the other nodes get, no node's inputs change."""
    graph = GRAPHS[task]()
    drawn = draw_label_inputs(graph, seed)
    hidden = (drawn.train_mask | ~graph.train_mask).nonzero().squeeze(1)
    y = graph.y.clone()
    y[hidden] = torch.roll(y[hidden], 1 + seed % (hidden.numel() - 1), dims=0)
    if graph.task == "multilabel":  # which nodes have a label decides on the draw; which label does not
        y = torch.where(torch.isnan(graph.y), torch.nan, y.nan_to_num(0.0))
    other = draw_label_inputs(graph.replace(y=y), seed)
    assert torch.equal(dense(other.x), dense(drawn.x))
    assert torch.equal(other.train_mask, drawn.train_mask)


@each
def test_predictions_as_a_plain_reference(graph: Graph) -> None:
    result = gfgnn.train(MODEL, graph, CONFIG)
    w = {name: value.double() for name, value in result.weights.items()}
    s = build_propagation(graph).to(torch.float64, "cpu").apply(torch.eye(300, dtype=torch.float64))
    train = graph.labelled(graph.train_mask).tolist()
    rows = [label_row(graph, node) if node in train else [0.0] * 3 for node in range(300)]
    labels = torch.tensor(rows, dtype=torch.float64)
    for _ in range(1 + MODEL.label_reuses):
        h = torch.cat([dense(graph.x).double(), labels], dim=1)
        h = (s @ h @ w["block0.weight"] + w["block0.bias"]).relu()
        scores = s @ h @ w["block1.weight"] + w["block1.bias"]
        said = scores.sigmoid() if graph.task == "multilabel" else scores.softmax(1)
        labels = said.clone()
        for node in train:
            labels[node] = torch.tensor(rows[node])
    found = gfgnn.predict(result, graph).probability
    assert found is not None
    torch.testing.assert_close(found.double(), said, rtol=1e-4, atol=1e-5)


def test_predictions_read_labels_of_training_nodes_alone() -> None:
    graph = classes()
    result = gfgnn.train(MODEL, graph, CONFIG)
    y = torch.where(graph.train_mask, graph.y, (graph.y + 1) % 3)
    found, expected = (gfgnn.predict(result, g).probability for g in (graph.replace(y=y), graph))
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
    shown = torch.where(graph.train_mask, (graph.y + 1) % 3, graph.y)
    other = gfgnn.predict(result, graph.replace(y=shown)).probability
    assert other is not None
    assert not torch.allclose(other, expected)


def test_labels_say_what_features_do_not() -> None:
    """On a graph whose features are mostly noise."""
    graph = classes()
    plain = gfgnn.train(
        ModelConfig(family="gcn", layers=2, hidden=8), graph, TrainConfig(iters=15, threads=1)
    )
    config = ModelConfig(family="gcn", layers=2, hidden=8, label_inputs=True)
    labelled = gfgnn.predict(gfgnn.train(config, graph, TrainConfig(iters=15, threads=1)), graph).prediction
    assert labelled is not None
    assert plain.test_accuracy is not None
    assert float((labelled == graph.y)[graph.test_mask].float().mean()) > plain.test_accuracy + 0.05


@pytest.mark.parametrize(("parts", "stages"), [(2, 1), (1, 2)])
def test_a_grid_trains_the_same(parts: int, stages: int) -> None:
    alone = gfgnn.train(MODEL, classes(), TrainConfig(iters=3, threads=1, dtype="float64"))
    grid = TrainConfig(iters=3, threads=1, dtype="float64", parts=parts, stages=stages, backend="thread")
    for name, weight in gfgnn.train(MODEL, classes(), grid).weights.items():
        torch.testing.assert_close(weight, alone.weights[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("solver", ["admm", "community-admm", "adam"])
def test_every_solver_takes_them(solver: str) -> None:
    result = gfgnn.train(MODEL, classes(), TrainConfig(solver=solver, iters=4, threads=1))
    assert result.weights["block0.weight"].shape == (5 + 3, 8)
    assert gfgnn.predict(result, classes()).prediction is not None


def test_a_saved_network_knows(tmp_path: Path) -> None:
    result = gfgnn.train(MODEL, classes(), CONFIG)
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


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="label_reuses is 2, but the network has no label_inputs"):
        ModelConfig(label_reuses=2)
    with pytest.raises(InputError, match="label_inputs is for gfgnn's own families"):
        ModelConfig(family="custom", label_inputs=True)
    values = classes().replace(y=torch.rand(300, 2), num_classes=2, task="regression")
    with pytest.raises(InputError, match="label_inputs is for classes and multi-label targets"):
        gfgnn.train(MODEL, values, CONFIG)
    one = torch.zeros(300, dtype=torch.bool)
    one[0] = True
    with pytest.raises(InputError, match="half of the training nodes, and synthetic has 1 with a label"):
        draw_label_inputs(classes().replace(train_mask=one), 0)
