"""PyG, NetworkX and SciPy: what goes in comes out."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from gfgnn import Graph, InputError, load


def dense(graph: Graph) -> np.ndarray:
    """Entry (source, target)."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    weight = 1.0 if graph.edge_weight is None else graph.edge_weight.numpy()
    matrix[graph.edge_index[0], graph.edge_index[1]] = weight
    return matrix


def test_pyg_round_trip() -> None:
    graph = load("citeseer")
    data = graph.to_pyg()
    assert data.validate()
    assert not data.is_directed()
    assert not data.has_self_loops()
    assert data.is_coalesced() or data.coalesce().num_edges == graph.num_edges
    back = Graph.from_pyg(data)
    assert torch.equal(back.edge_index, graph.edge_index)
    assert torch.equal(back.y, graph.y)
    assert torch.equal(back.test_mask, graph.test_mask)
    assert back.x is not None
    assert graph.x is not None
    assert torch.equal(back.x.to_dense(), graph.x.to_dense())


def test_pyg_directed_weighted_with_several_splits() -> None:
    edge_index = torch.tensor([[2, 0, 0], [1, 1, 0]])
    masks = torch.tensor([[True, False], [False, True], [False, False]])
    data = Data(
        edge_index=edge_index, x=torch.ones(3, 2), edge_weight=torch.tensor([3.0, 2.0, 1.0]), train_mask=masks
    )
    graph = Graph.from_pyg(data, split_index=1)
    assert graph.directed
    assert dense(graph).tolist() == [[0, 2, 0], [0, 0, 0], [0, 3, 0]]
    assert graph.train_mask.tolist() == [False, True, False]
    assert graph.notes == ("removed 1 self-loops",)
    with pytest.raises(InputError, match="split_index must lie between 0 and 1"):
        Graph.from_pyg(data, split_index=2)


def test_pyg_transposed_adjacency() -> None:
    adj_t = torch.eye(2)[[1, 0]].tril().to_sparse_csr()  # one edge, 0 to 1: row is the target
    graph = Graph.from_pyg(Data(x=torch.ones(2, 1), adj_t=adj_t))
    assert graph.edge_index.tolist() == [[0], [1]]


def test_pyg_without_edges() -> None:
    with pytest.raises(InputError, match="must have edge_index or adj_t"):
        Graph.from_pyg(Data(x=torch.ones(2, 1)))


def test_networkx_undirected() -> None:
    g = nx.karate_club_graph()
    for i, node in enumerate(g):
        g.nodes[node].update(x=[1.0, i], y=int(g.nodes[node]["club"] == "Officer"), train_mask=i < 5)
    graph = Graph.from_networkx(g)
    assert np.array_equal(dense(graph), nx.to_numpy_array(g))
    assert (graph.num_features, graph.num_classes, graph.directed) == (2, 2, False)
    assert int(graph.train_mask.sum()) == 5
    assert Graph.from_networkx(g, weight=None).edge_weight is None


def test_networkx_directed_with_names_and_gaps() -> None:
    g = nx.DiGraph([("a", "b"), ("c", "b"), ("b", "b")])
    g.nodes["a"]["label"] = 1
    graph = Graph.from_networkx(g, label="label")
    assert dense(graph).tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert graph.y.tolist() == [1, -1, -1]
    assert graph.x is None


def test_networkx_multigraph_merges() -> None:
    graph = Graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1), (1, 2)]))
    assert graph.num_edges == 4


def test_networkx_missing_features() -> None:
    g = nx.path_graph(3)
    g.nodes[0]["x"] = [1.0]
    with pytest.raises(InputError, match="2 nodes have no attribute 'x', for example 1"):
        Graph.from_networkx(g)


@pytest.mark.parametrize("weight", ["heavy", [1.0, 2.0]])
def test_networkx_weights_that_are_no_numbers(weight: object) -> None:
    g = nx.path_graph(3)
    g.edges[0, 1]["weight"] = weight
    with pytest.raises(InputError, match="edge attribute 'weight' must be one number per edge"):
        Graph.from_networkx(g)


def test_networkx_wants_a_graph() -> None:
    with pytest.raises(InputError, match="must be a NetworkX graph; got dict"):
        Graph.from_networkx({0: [1]})


def test_networkx_empty() -> None:
    with pytest.raises(InputError, match="the graph is empty"):
        Graph.from_networkx(nx.Graph())


@pytest.mark.parametrize("form", ["csr", "coo", "lil", "csc"])
def test_scipy(form: str) -> None:
    matrix = np.array([[0, 2, 0], [0, 0, 1], [1, 0, 0.5]])
    graph = Graph.from_scipy(
        sp.coo_array(matrix).asformat(form), x=sp.eye_array(3, 40), y=[0, 1, 1], train_mask=[0]
    )
    assert np.array_equal(dense(graph), matrix - np.diag(np.diag(matrix)))
    assert graph.directed
    assert graph.x is not None
    assert torch.equal(graph.x.to_dense(), torch.eye(3, 40))
    assert graph.num_classes == 2


@pytest.mark.parametrize("form", ["coo", "csr"])
def test_scipy_sums_entries_stored_twice(form: str) -> None:
    twice = sp.coo_array(([1.0, 1.0, 1.0], ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    assert dense(Graph.from_scipy(twice.asformat(form))).tolist() == [[0, 2, 0], [0, 0, 1], [0, 0, 0]]
    assert twice.nnz == 3


def test_scipy_refuses_what_is_no_square_sparse_matrix() -> None:
    with pytest.raises(InputError, match="must be a SciPy sparse matrix; got ndarray"):
        Graph.from_scipy(np.eye(3))
    with pytest.raises(InputError, match=r"must be square; got shape \[2, 3\]"):
        Graph.from_scipy(sp.coo_array((2, 3)))
