"""Predictions: they are those of training, carry original ids, and refuse other inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gfgnn.checkpoint import EMBEDDINGS_FILE, save_embedding_scores, save_model
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.fit import fit
from gfgnn.forward_parts import forward_parts, scores_in_turns
from gfgnn.graph.graph import Graph
from gfgnn.model.build import build_model, initial_weights
from gfgnn.ops.memory import is_lean
from gfgnn.planning import needs_of
from gfgnn.predict import predict
from gfgnn.train import train

MODEL, CONFIG = ModelConfig(family="gcn", layers=2, hidden=8), TrainConfig(solver="adam", iters=8)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic:nodes=120,classes=3,features=6")


def test_predictions_are_those_of_training(tmp_path: Path, graph: Graph) -> None:
    result = train(MODEL, graph, CONFIG)
    save_model(tmp_path / "model.safetensors", result.model, result.weights)
    unknown = graph.replace(y=torch.full_like(graph.y, -1), node_ids=torch.arange(120) + 1000)
    found = predict(tmp_path, unknown)
    assert found.prediction is not None
    right = (found.prediction == graph.y)[graph.test_mask].double().mean()
    assert float(right) == pytest.approx(result.test_accuracy)
    found.save(tmp_path / "p.npz")
    arrays = dict(np.load(tmp_path / "p.npz"))
    assert set(arrays) == {"node_id", "prediction", "probability"}
    assert arrays["node_id"].tolist() == list(range(1000, 1120))
    np.testing.assert_allclose(arrays["probability"].sum(1), 1.0, rtol=1e-5)
    assert (arrays["probability"].argmax(1) == arrays["prediction"]).all()


def test_a_network_that_begins_without_weights(tmp_path: Path, graph: Graph) -> None:
    layers = pytest.importorskip("torch_geometric.nn")
    module = layers.Sequential(
        "x, edge_index", [(torch.nn.BatchNorm1d(6), "x -> x"), (layers.GCNConv(6, 3), "x, edge_index -> x")]
    )
    result = fit(module, graph, iters=2)
    save_model(tmp_path / "model.safetensors", result.model, result.weights)
    found = predict(tmp_path, graph).probability
    assert graph.x is not None
    with torch.no_grad():
        torch.testing.assert_close(found, module.eval()(graph.x, graph.edge_index).softmax(1))


def test_multilabel_and_regression(graph: Graph) -> None:
    labels = torch.nn.functional.one_hot(graph.y, 3).float()
    multi = graph.replace(y=labels, task="multilabel")
    found = predict(train(MODEL, multi, CONFIG), multi)
    assert found.prediction is not None
    assert found.prediction.shape == (120, 3)
    regression = graph.replace(y=labels, task="regression")
    found = predict(train(MODEL, regression, CONFIG), regression)
    assert found.prediction is None
    assert found.value is not None
    assert found.value.shape == (120, 3)


def test_other_features_or_classes_are_refused(graph: Graph) -> None:
    result = train(MODEL, graph, CONFIG)
    with pytest.raises(InputError, match="6 features a node; synthetic has 5"):
        predict(result, load("synthetic:nodes=120,classes=3,features=5"))
    with pytest.raises(InputError, match="predicts 3 outputs"):
        predict(result, load("synthetic:nodes=120,classes=4,features=6"))
    with pytest.raises(InputError, match="predicts 3 outputs"):
        predict(result, graph.replace(y=torch.rand(120, 3), task="regression"))


def test_a_graph_where_the_last_class_does_not_occur(graph: Graph) -> None:
    result = train(MODEL, graph, CONFIG)
    found = predict(result, load("synthetic:nodes=50,classes=2,features=6"))
    assert found.probability is not None
    assert found.probability.shape == (50, 3)


@pytest.mark.parametrize("device", ["abacus", "meta", "cuda:99"])
def test_devices_that_are_not_there(graph: Graph, device: str) -> None:
    with pytest.raises(InputError, match="device"):
        predict(train(MODEL, graph, CONFIG), graph, device=device)


@pytest.mark.parametrize("solver", ["admm", "community-admm"])
def test_transductive_predictions_are_those_of_the_embeddings(tmp_path: Path, solver: str) -> None:
    """From the result and from the folder, for that graph only."""
    graph = load("synthetic:nodes=200,classes=3,features=8,noise=1.5")
    model = ModelConfig(family="gcn", layers=2, hidden=8)
    result = train(model, graph, TrainConfig(solver=solver, iters=25))
    found = predict(result, graph, transductive=True)
    assert found.prediction is not None
    right = (found.prediction == graph.y)[graph.test_mask].double().mean()
    line = result.history[result.best_iteration - 1]
    assert float(right) == pytest.approx(line["extra"]["auxiliary_test"])
    assert not torch.equal(found.probability, predict(result, graph).probability)  # type: ignore[arg-type]
    save_model(tmp_path / "model.safetensors", result.model, result.weights)
    assert result.embedding_scores is not None
    save_embedding_scores(tmp_path / EMBEDDINGS_FILE, result.embedding_scores, graph)
    again = predict(tmp_path, graph, transductive=True)
    torch.testing.assert_close(again.probability, found.probability)
    other = load("synthetic:nodes=200,classes=3,features=8,noise=1.5,seed=9")
    for trained in (result, tmp_path):
        with pytest.raises(InputError, match="other nodes or edges"):
            predict(trained, other, transductive=True)
    plain = train(model, graph, TrainConfig(iters=2))
    with pytest.raises(InputError, match="solver target left no embeddings"):
        predict(plain, graph, transductive=True)
    with pytest.raises(InputError, match="network alone"):
        predict((result.model, result.weights), graph, transductive=True)
    (tmp_path / EMBEDDINGS_FILE).unlink()
    with pytest.raises(InputError, match="does not exist"):
        predict(tmp_path, graph, transductive=True)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "sgc", "sign"])
def test_parts_one_after_the_other_predict_the_same(graph: Graph, family: str) -> None:
    """Unlike numbers of columns, a bias, the graph's ids: what one device predicts to float32 rounding."""
    given = graph.replace(node_ids=torch.arange(120) * 2)
    model = build_model(ModelConfig(family=family, layers=3, hidden=10), given)
    weights = initial_weights(model, torch.Generator().manual_seed(1), torch.float32)
    whole = predict((model, weights), given)
    scores = scores_in_turns(model, weights, given, 4)
    torch.testing.assert_close(torch.softmax(scores, 1), whole.probability, rtol=1e-5, atol=1e-6)


def test_a_memory_limit_takes_parts(tmp_path: Path) -> None:
    graph = load("synthetic:nodes=2000,classes=3,features=6")
    model = build_model(ModelConfig(family="gcn", layers=3, hidden=4096), graph)
    weights = initial_weights(model, torch.Generator().manual_seed(1), torch.float32)
    whole = predict((model, weights), graph)
    needed = needs_of(model, graph, 4).held
    limit = f"{needed + 60_000_000}B"  # a layer of all nodes has 33 MB, and there are three at once
    assert forward_parts(model, graph, limit, 4) in (2, 4, 8)
    found = predict((model, weights), graph, memory_limit=limit)
    assert torch.equal(found.node_id, whole.node_id)
    torch.testing.assert_close(found.probability, whole.probability, rtol=1e-4, atol=1e-5)
    found.save(tmp_path / "p.npz")
    assert (np.load(tmp_path / "p.npz")["prediction"] == found.prediction.numpy()).all()  # type: ignore[union-attr]
    assert forward_parts(model, graph, f"{needed + 10**9}B", 4) == 1
    with pytest.raises(
        InputError, match=r"memory_limit is 1 MB, and a forward pass needs .* Raise the limit"
    ):
        predict((model, weights), graph, memory_limit="1MB")
    with pytest.raises(InputError, match=r"memory_limit must be an amount of memory.*got 'much'"):
        predict((model, weights), graph, memory_limit="much")


def test_probabilities_can_be_changed(graph: Graph) -> None:
    found = predict(train(MODEL, graph, CONFIG), graph)
    assert found.probability is not None
    found.probability.mul_(0.5)


def test_a_run_out_of_core_predicts_on_its_own_parts(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = train(MODEL, graph, TrainConfig(iters=2, parts=3, out_of_core=True))
    whole = predict(result, graph)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the graph is partitioned anew")

    monkeypatch.setattr("gfgnn.forward_parts.partition_of", never)
    found = predict(result, graph, parts=3)
    torch.testing.assert_close(found.probability, whole.probability, rtol=1e-5, atol=1e-6)
    with pytest.raises(AssertionError, match="anew"):
        predict(result, graph, parts=2)


def test_embeddings_have_no_parts(graph: Graph) -> None:
    result = train(MODEL, graph, TrainConfig(solver="admm", iters=2))
    with pytest.raises(InputError, match="leave out parts and memory_limit"):
        predict(result, graph, transductive=True, parts=2)


def test_memory_is_kept_afterwards_where_it_was_before(graph: Graph) -> None:
    result = train(MODEL, graph, TrainConfig(iters=2))
    assert not is_lean()
    predict(result, graph, parts=2)
    assert not is_lean()
