"""The graph: what it refuses, subgraphs, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse as sp
import torch

from gfgnn import Graph, InputError
from gfgnn.graph.validate import check_trainable

SQUARE = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def square(**changes: Any) -> Graph:
    """Four nodes in a ring, two classes, and an isolated fifth node."""
    fields: dict[str, Any] = {
        "x": torch.arange(10.0).reshape(5, 2),
        "y": torch.tensor([0, 1, 0, 1, 0]),
        "train_mask": [0, 1],
        "val_mask": [2],
        "test_mask": [3, 4],
        "symmetrise": True,
    }
    return Graph.from_edges(SQUARE, 5, **{**fields, **changes})


def test_from_edges() -> None:
    g = square()
    assert (g.num_nodes, g.num_edges, g.num_features, g.num_classes) == (5, 8, 2, 2)
    assert not g.directed
    assert g.train_mask.tolist() == [True, True, False, False, False]
    assert g.labelled(g.train_mask).tolist() == [0, 1]
    assert square(symmetrise=False).directed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.full((5, 2), float("nan"))}, "x holds 10 NaN or infinite values"),
        ({"x": torch.tensor([[1.0], [float("inf")], [0.0], [0.0], [0.0]])}, "x holds 1 NaN or infinite"),
        ({"x": torch.ones(4, 2)}, r"one row per node, \[5, F\]; got \[4, 2\]"),
        ({"x": torch.ones(5, 0)}, "x has no columns"),
        ({"y": torch.tensor([0, 1, 0, 7, 0]), "num_classes": 2}, "label 7; labels must be 0 to 1, or -1"),
        ({"y": torch.tensor([0, 1, 0, -2, 0])}, "label -2"),
        ({"y": torch.zeros(4, dtype=torch.long)}, r"y must have one row per node, \[5\]"),
        ({"y": torch.full((5, 2), 0.5), "task": "multilabel"}, "must hold 0, 1 or NaN"),
        ({"y": torch.full((5, 2), float("inf"))}, "y holds infinite values"),
        ({"y": torch.tensor([0.5, 1, 0, 1, 0]), "task": "multiclass"}, "one whole class number per node"),
        ({"task": "ranking"}, "task must be one of multiclass, multilabel, regression; got 'ranking'"),
        ({"val_mask": [1, 2]}, "1 nodes are in both train_mask and val_mask"),
        ({"train_mask": [0, 0, 1]}, "train split repeats 1 node numbers"),
        ({"train_mask": [1, 1, 0, 0, 1]}, "train split repeats 3 node numbers; .* or a mask of type bool"),
        ({"train_mask": torch.ones(5)}, r"train must be a bool mask \[5\].*; got torch.float32 \[5\]"),
        ({"x": [["a"]] * 5}, "x must hold numbers; got <U1"),
        ({"x": [[1.0], [2.0, 3.0], [1.0], [1.0], [1.0]]}, "x must be an array or nested lists of one length"),
        ({"x": torch.zeros(5)}, r"one row per node, \[5, F\]; got \[5\]"),
        ({"x": torch.ones(5, 1) * 1j}, "x must hold real numbers; got torch.complex64"),
        ({"y": ["a", "b", "a", "b", "a"]}, "y must hold numbers; got <U1"),
        ({"y": [0, 1, float("inf"), 0, 1], "task": "multiclass"}, "one whole class number per node"),
        ({"num_classes": -1}, "num_classes must be at least 0; got -1"),
        ({"edge_weight": ["heavy"] * 4}, "edge_weight must hold one number per edge; got <U5"),
        ({"edge_weight": [1j] * 4}, "edge_weight must hold real numbers"),
        ({"train_mask": [9]}, "train split names node 9, which does not exist"),
        ({"train_mask": torch.ones(3, dtype=torch.bool)}, r"train_mask must have shape \[5\]; got \[3\]"),
    ],
)
def test_bad_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        square(**changes)


@pytest.mark.parametrize("count", [5.0, "5", None, [5, 5]])
def test_the_number_of_nodes_is_one_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match="num_nodes must be one whole number; got"):
        Graph.from_edges(SQUARE, count)
    assert Graph.from_edges(SQUARE, torch.tensor(5)).num_nodes == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_matrix, pandas.DataFrame])
def test_features_of_many_kinds(form: Any) -> None:
    x = square(x=form(np.eye(5, 30))).x
    assert x is not None
    assert torch.equal(x.to_dense(), torch.eye(5, 30))


def test_nobody_for_training_is_an_empty_list_too() -> None:
    assert not square(train_mask=[]).train_mask.any()


def test_empty_graph() -> None:
    with pytest.raises(InputError, match="the graph is empty"):
        Graph.from_edges(torch.zeros(2, 0, dtype=torch.long), 0)


def test_edge_to_a_node_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="names node 3, which does not exist: nodes are 0 to 2"):
        Graph.from_edges(SQUARE, 3)


def test_unsorted_edges_are_refused_by_the_constructor() -> None:
    g = square()
    with pytest.raises(InputError, match=r"Graph\.from_edges brings any edge list into that form"):
        g.replace(edge_index=g.edge_index.flip(1))
    with pytest.raises(InputError, match="names node 9"):
        g.replace(edge_index=torch.tensor([[9], [0]]))


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_edges_are_checked_in_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = square()
    monkeypatch.setattr("gfgnn.graph.validate.PIECE", piece)
    g.replace(edge_index=g.edge_index)
    for place in range(g.num_edges - 1):
        order = torch.arange(g.num_edges)
        order[[place, place + 1]] = order[[place + 1, place]]
        with pytest.raises(InputError, match="sorted by"):
            g.replace(edge_index=g.edge_index[:, order])
    assert g.x is not None
    for place in range(g.num_nodes):
        x = g.x.clone()
        x[place, 1] = torch.nan
        with pytest.raises(InputError, match="x holds 1 NaN"):
            g.replace(x=x)
    g.replace(x=torch.full((5, 2), 6e4, dtype=torch.float16))  # whose sum would overflow


def test_replace_reads_what_changes_only() -> None:
    g = square()
    assert g.x is not None
    g.x[0, 0] = torch.nan
    assert g.replace(y=g.y).x is g.x
    for changes in ({"x": g.x}, {"num_nodes": 5}):
        with pytest.raises(InputError, match="x holds 1 NaN"):
            g.replace(**changes)
    with pytest.raises(TypeError, match="a graph has no colour"):
        g.replace(colour=1)


def test_graph_without_edges_or_labels() -> None:
    g = Graph.from_edges(torch.zeros(2, 0, dtype=torch.long), 3, x=torch.ones(3, 1))
    assert (g.num_edges, g.num_classes, g.y.tolist()) == (0, 0, [-1, -1, -1])
    assert g.statistics()["isolated_nodes"] == 3


def test_tasks_are_read_off_the_labels() -> None:
    assert square(y=torch.tensor([[0.0, 1.0]] * 5)).task == "multilabel"
    assert square(y=torch.tensor([0.5, 1.0, 2.0, 0.0, float("nan")])).task == "regression"
    one = square(y=torch.tensor([[1.0], [0.0], [float("nan")], [1.0], [0.0]]))
    assert (one.task, one.y.tolist()) == ("multiclass", [1, 0, -1, 1, 0])
    partly = square(y=torch.tensor([[0.0, float("nan")], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]))
    assert partly.labelled(partly.train_mask).tolist() == [0, 1], "one label of several is enough"


def test_trainable_isolated_nodes_are_fine() -> None:
    check_trainable(square())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "has no node features. Load it with features='structure'"),
        ({"train_mask": None}, "has no training nodes. Give it a split"),
        ({"y": torch.tensor([-1, -1, 0, 1, 0])}, "none of the 2 training nodes of graph has a label"),
        ({"train_mask": [0], "test_mask": [3]}, "are of class 0; two classes are needed"),
        ({"y": torch.zeros(5, dtype=torch.long)}, "are of class 0; two classes are needed"),
    ],
)
def test_not_trainable(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_trainable(square(**changes))


def test_class_absent_from_train_warns() -> None:
    with pytest.warns(UserWarning, match="1 of 3 classes have no training node.*class 2"):
        check_trainable(square(y=torch.tensor([0, 1, 2, 1, 0])))


@pytest.mark.parametrize("nodes", [torch.tensor([3, 0, 2]), torch.tensor([True, False, True, True, False])])
def test_subgraph(nodes: torch.Tensor) -> None:
    part = square().subgraph(nodes)
    assert part.node_ids is not None
    assert part.node_ids.tolist() == [0, 2, 3]
    assert part.x is not None
    assert part.x[:, 0].tolist() == [0.0, 4.0, 6.0]
    edges = {(int(part.node_ids[s]), int(part.node_ids[t])) for s, t in part.edge_index.T}
    assert edges == {(2, 3), (3, 2), (3, 0), (0, 3)}
    assert part.subgraph(torch.tensor([1, 2])).node_ids.tolist() == [2, 3]  # type: ignore[union-attr]
    assert part.y.tolist() == [0, 0, 1]


def test_subgraph_of_nodes_that_do_not_exist() -> None:
    for node in (-1, 5):
        with pytest.raises(InputError, match=f"there is no node {node}; nodes are numbered 0 to 4"):
            square().subgraph([0, node])


def test_subgraph_keeps_weights() -> None:
    g = square(edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]), symmetrise=False)
    part = g.subgraph(torch.tensor([0, 2, 3]))
    assert part.edge_weight is not None
    assert sorted(part.edge_weight.tolist()) == [3.0, 4.0]


def test_a_graph_is_shown_in_one_line() -> None:
    assert repr(square()) == "Graph(graph: 5 nodes, 8 edges, 2 features, 2 classes, multiclass)"
    targets = square(y=torch.rand(5, 3), symmetrise=False)
    assert repr(targets) == "Graph(graph: 5 nodes, 4 directed edges, 2 features, 3 outputs, regression)"


def test_statistics() -> None:
    found = square().statistics()
    expected = {
        "num_nodes": 5,
        "num_edges": 8,
        "isolated_nodes": 1,
        "edge_homophily": 0.0,
        "mean_degree": 1.6,
        "max_degree": 2,
        "train_nodes": 2,
        "val_nodes": 1,
        "test_nodes": 2,
        "labelled_nodes": 5,
        "class_counts": [3, 2],
        "feature_density": 0.9,
    }
    assert expected.items() <= found.items()
