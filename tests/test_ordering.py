"""Training in another order of nodes: the same results in the graph's own order, and orders found once."""

from __future__ import annotations

import gc
import importlib
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_graphs import one_way

from gfgnn import ordering
from gfgnn.config import AdamConfig, AdmmConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.data import grid_graph, load
from gfgnn.forward import forward
from gfgnn.graph import order as orders
from gfgnn.graph.graph import Graph
from gfgnn.graph.order import Order, node_order
from gfgnn.loop import Run
from gfgnn.model.build import build_model, initial_weights
from gfgnn.ordering import order_of
from gfgnn.predict import predict
from gfgnn.problem import prepare
from gfgnn.result import Result
from gfgnn.solver.refresh import spread_rows
from gfgnn.train import make_solver, train


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the cache that all tests share; and parts small enough for small graphs to have several."""
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(orders, "PART_NODES", 32)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic:nodes=200,classes=3,features=8,noise=1.5,seed=4")


def images() -> Graph:
    """Cells with 9 relations."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(11, 13, 4, generator=generator)
    part = torch.arange(143) % 3
    return grid_graph(
        11, 13, x=x, y=(x[..., 0] + x[..., 1] > 0).long(), train_mask=part == 0, val_mask=part == 1,
        test_mask=part == 2, wrap="width",
    )  # fmt: skip


def both(graph: Graph, family: str, order: str, layers: int = 3, **settings: Any) -> tuple[Result, Result]:
    """Results with the order given and with another, in float64."""
    model = build_model(ModelConfig(family=family, layers=layers, hidden=8), graph)
    settings = {"iters": 5, "dtype": "float64", **settings}
    own, other = (train(model, graph, TrainConfig(order=name, **settings)) for name in ("none", order))
    return own, other


def check_same(own: Result, other: Result, graph: Graph, tolerance: float = 1e-10) -> None:
    """Weights, losses, scores and predictions agree."""
    assert own.best_iteration == other.best_iteration
    for name, weight in own.weights.items():
        torch.testing.assert_close(other.weights[name], weight, atol=tolerance, rtol=tolerance)
    for one, two in zip(own.history, other.history, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], abs=tolerance)
        assert (one["train"], one["val"], one["test"]) == (two["train"], two["val"], two["test"])
    found, wanted = predict(other, graph), predict(own, graph)
    assert torch.equal(found.node_id, wanted.node_id)
    torch.testing.assert_close(found.probability, wanted.probability, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("order", ["metis", "rcm"])
@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "sign"])
def test_the_same_network_in_any_order(graph: Graph, family: str, order: str) -> None:
    own, other = both(graph, family, order)
    check_same(own, other, graph)
    assert own.notes == ()
    assert f"nodes are stored in the order of {order}: " in other.notes[0]
    assert other.notes[0].endswith(" s")


def test_directed_weighted_graphs_and_relations(graph: Graph) -> None:
    for case, family in ((one_way(graph), "gcn"), (images(), "rgcn")):
        check_same(*both(case, family, "rcm", layers=2), case)


@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_what_is_drawn_for_nodes_is_drawn_by_their_numbers(graph: Graph, step: str) -> None:
    """Sampled dropout falls on the same nodes; both steps."""
    target = TargetConfig(step=step, sampled_dropout=0.3)
    check_same(*both(graph, "gcn", "rcm", target=target), graph)


def test_spread_is_measured_on_the_same_nodes(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgnn.solver.refresh.SPREAD_ROWS", 20)
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    own, other = (prepare(model, graph, order=node_order(graph, name)) for name in ("none", "rcm"))
    rows = other.node_ids[spread_rows(other)]
    assert torch.equal(rows.sort().values, spread_rows(own))
    assert rows.numel() == 20
    check_same(*both(graph, "gcn", "rcm"), graph)


@pytest.mark.parametrize("inside", ["admm", "target"])
def test_transductive_scores_are_in_the_order_given(graph: Graph, inside: str) -> None:
    own, other = both(graph, "gcn", "metis", solver="admm", admm=AdmmConfig(inside=inside))
    check_same(own, other, graph)
    if inside == "admm":
        assert own.embedding_scores is not None
        assert other.embedding_scores is not None
        torch.testing.assert_close(other.embedding_scores, own.embedding_scores, atol=1e-10, rtol=1e-10)
        found, wanted = (predict(result, graph, transductive=True).probability for result in (other, own))
        torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-10)


def test_pdadmm_and_adam(graph: Graph) -> None:
    """Adam without dropout: its masks are drawn row by row, and fall on other nodes in another order."""
    check_same(*both(graph, "sign", "rcm", solver="pdadmm-g"), graph)
    own, other = both(graph, "gcn", "rcm", solver="adam", adam=AdamConfig(dropout=0.0))
    check_same(own, other, graph)
    own, other = both(graph, "gcn", "rcm", solver="adam", adam=AdamConfig(dropout=0.5))
    assert not torch.equal(own.weights["block0.weight"], other.weights["block0.weight"])


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks(graph: Graph, task: str) -> None:
    assert graph.x is not None
    values = graph.x[:, :2] + graph.x[:, 2:4]
    y = values if task == "regression" else (values > 0).float()
    case = graph.replace(y=y, num_classes=2, task=task)
    own, other = both(case, "gcn", "rcm")
    scores = [predict(result, case) for result in (own, other)]
    found, wanted = ((s.value if task == "regression" else s.probability) for s in reversed(scores))
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("staleness", [0, 1])
def test_grids_of_ranks(graph: Graph, staleness: int) -> None:
    grid: dict[str, Any] = {"parts": 2, "stages": 2, "backend": "thread", "staleness": staleness}
    for case in (graph, one_way(graph)):
        own, other = both(case, "gcn", "metis", **grid)
        check_same(own, other, case)
        assert "order of metis" in other.notes[0]


def test_rows_of_a_problem_go_back_to_their_nodes(graph: Graph) -> None:
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    own, other = (
        prepare(model, graph, order=node_order(graph, name), dtype=torch.float64) for name in ("none", "rcm")
    )
    assert not torch.equal(own.node_ids, other.node_ids)
    weights = initial_weights(model, torch.Generator().manual_seed(0), torch.float64)
    torch.testing.assert_close(other.by_node(forward(other, weights)), forward(own, weights))
    assert torch.equal(other.by_node(other.y), graph.y)


def test_an_order_is_found_once_for_a_graph(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count(graph: Graph, method: str) -> Any:
        made.append(method)
        return orders.find_order(graph, method)

    monkeypatch.setattr(ordering, "find_order", count)
    mine, config = graph.replace(), TrainConfig(order="metis")
    order = order_of(mine, config)
    assert order_of(mine, config) is order
    assert order_of(mine, TrainConfig(order="none")).is_given
    assert made == ["metis"]
    same = order_of(graph.replace(), config)  # another object: from disk
    assert same is not order
    assert torch.equal(same.nodes, order.nodes)
    assert made == ["metis"]
    order_of(one_way(graph), config)
    order_of(mine, TrainConfig(order="rcm"))
    assert made == ["metis", "metis", "rcm"]


def test_what_the_cache_holds(graph: Graph, tmp_path: Path) -> None:
    """Whole files only; one that is damaged is made again."""
    order = order_of(graph.replace(), TrainConfig(order="metis"))
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name.startswith("order-metis6-")
    with np.load(file) as stored:
        assert stored["array"].dtype == np.int32
    file.write_bytes(file.read_bytes()[:100])
    again = order_of(graph.replace(), TrainConfig(order="metis"))
    assert torch.equal(again.nodes, order.nodes)
    with np.load(file) as stored:
        assert np.array_equal(stored["array"], order.nodes.numpy())


def test_orders_go_with_their_graph(graph: Graph) -> None:
    mine = graph.replace()
    order_of(mine, TrainConfig(order="rcm"))
    alive = weakref.ref(mine)
    del mine
    gc.collect()
    assert alive() is None


def test_other_devices_keep_the_order_given(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "SMALL", 0)
    monkeypatch.setattr(orders, "REACH", 20)
    mine = graph.replace()
    assert not order_of(mine, TrainConfig()).is_given
    assert order_of(mine, TrainConfig(device="cuda")).is_given
    assert not order_of(mine, TrainConfig(device="cuda", order="rcm")).is_given


def test_finding_an_order_counts_as_set_up(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    config = TrainConfig(iters=1)
    run = Run(lambda: prepare(model, graph), config, make_solver(config, model), spent=100.0)
    assert 100 < run.setup_seconds < 110

    def slowly(graph: Graph, config: TrainConfig) -> Order:
        clock.append(50.0)
        return node_order(graph, "rcm")

    clock: list[float] = []
    now = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: now() + sum(clock))
    # the module: the attribute of the package is the function
    monkeypatch.setattr(importlib.import_module("gfgnn.train"), "order_of", slowly)
    for grid in ({}, {"parts": 2, "backend": "thread"}):
        result = train(model, graph, TrainConfig(iters=1, **grid))
        assert 50 < result.setup_seconds < 60
        assert result.history[0]["seconds"] > 50
        assert result.notes[0].endswith("; 50.0 s")
