"""Orders of nodes: permutations, what they promise, when the order given stays, and what reordering leaves alone."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph, rewired

import gfgnn
from gfgnn.checks import InputError
from gfgnn.data import grid_graph
from gfgnn.graph import order as orders
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.graph.order import Order, far_share, find_order, node_order, permuted, reordered
from gfgnn.graph.partition.problem import matrix_of_ones, neighbours

NUMBERS = st.integers(0, 2**20)


@pytest.fixture(scope="module")
def communities() -> Graph:
    """Beyond the size from which ``auto`` looks."""
    return gfgnn.load("synthetic:nodes=12000,classes=12,degree=8,homophily=0.9,features=0")


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with its nodes numbered at random."""
    place = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return Graph.from_edges(place[graph.edge_index], graph.num_nodes)


def slow_far_share(graph: Graph, reach: int, stream: int) -> float:
    """From the definition: read by read."""
    matrix = matrix_of_ones(*neighbours(graph))
    read: dict[int, list[int]] = {}
    far = 0
    for time, row in enumerate(matrix.indices.tolist()):
        near = any(time - before <= reach for before in read.get(row, []))
        ahead = any(time - before <= stream for before in read.get(row - 1, []))
        far += not near and not ahead
        read.setdefault(row, []).append(time)
    return far / max(1, matrix.indices.size)


@settings(deadline=None)
@given(NUMBERS, st.sampled_from(["metis", "rcm"]), st.booleans(), st.integers(2, 60))
def test_orders_are_permutations(seed: int, method: str, directed: bool, nodes: int) -> None:
    graph = random_graph(seed, nodes=nodes, directed=directed, labelled=1)
    order = node_order(graph, method)
    assert torch.equal(order.nodes.sort().values, torch.arange(nodes))
    assert torch.equal(order.places[order.nodes], torch.arange(nodes))
    assert torch.equal(node_order(graph, method).nodes, order.nodes), "the same graph gets the same order"


@settings(deadline=None)
@given(NUMBERS, st.integers(0, 9), st.integers(0, 9))
def test_far_reads_are_counted_as_defined(seed: int, reach: int, stream: int) -> None:
    graph = random_graph(seed, nodes=20, labelled=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "REACH", reach)
        patch.setattr(orders, "STREAM", stream)
        found = far_share(matrix_of_ones(*neighbours(graph)))
    assert found == pytest.approx(slow_far_share(graph, reach, stream))


@settings(deadline=None)
@given(NUMBERS, st.booleans(), st.booleans(), st.sampled_from(["sym", "rw", "none"]))
def test_a_reordered_graph_has_the_same_matrix(seed: int, directed: bool, weighted: bool, norm: str) -> None:
    graph = random_graph(seed, directed=directed, weighted=weighted)
    order = Order(torch.randperm(12, generator=torch.Generator().manual_seed(seed)), "random")
    other = reordered(graph, order)
    operator = Operator(norm=norm)
    found, wanted = (build_operator(g, operator).matrix.to_dense() for g in (other, graph))
    torch.testing.assert_close(found, wanted[order.nodes][:, order.nodes])
    assert graph.x is not None
    assert other.x is not None
    assert torch.equal(other.x, graph.x[order.nodes])
    assert torch.equal(other.y, graph.y[order.nodes])
    assert torch.equal(other.test_mask, graph.test_mask[order.nodes])
    assert other.node_ids is not None
    assert torch.equal(other.node_ids, order.nodes)


def test_relations_are_reordered_too() -> None:
    graph = grid_graph(4, 5, wrap="width")
    order = Order(torch.randperm(20, generator=torch.Generator().manual_seed(1)), "random")
    other = reordered(graph, order)
    for relation in range(9):
        operator = Operator(norm="none", loops=0.0, raw=True, relation=relation)
        found, wanted = (build_operator(g, operator).matrix.to_dense() for g in (other, graph))
        assert torch.equal(found, wanted[order.nodes][:, order.nodes])


def test_numbers_of_a_part_are_kept() -> None:
    part = random_graph(nodes=12).subgraph([1, 4, 5, 9])
    other = reordered(part, Order(torch.tensor([2, 0, 3, 1]), "random"))
    assert other.node_ids is not None
    assert other.node_ids.tolist() == [5, 1, 9, 4]


def test_a_graph_with_communities_gets_parts_of_metis(communities: Graph) -> None:
    order = node_order(communities)
    assert order.method == "metis"
    matrix = matrix_of_ones(*neighbours(communities))
    before, after = far_share(matrix), far_share(permuted(matrix, order.nodes.numpy()))
    assert after < 0.7 * before
    assert order.note is not None
    assert f"{after:.0%} of reads are far in it, {before:.0%} in the order given" in order.note
    parts = orders.metis_parts(communities)
    assert parts == 12_000 // orders.PART_NODES > 2
    assert after < 0.9 * far_share(permuted(matrix, find_order(communities, "rcm")))


def test_without_metis_breadth_first(communities: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    monkeypatch.setitem(sys.modules, "metis", None)
    order = node_order(communities)
    assert order.method == "rcm"
    assert order.note is not None
    assert "pip install pymetis" in order.note
    assert "cmeel-metis" in order.note
    assert np.array_equal(order.nodes.numpy(), find_order(communities, "rcm"))
    with pytest.raises(InputError, match="order metis needs METIS: pymetis cannot be used"):
        node_order(communities, "metis")


def test_large_graphs_do_not_wait_for_metis(communities: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "METIS_EDGES", communities.num_edges - 1)
    order = node_order(communities)
    assert order.method == "rcm"
    assert order.note is not None
    assert f"METIS would take long for {communities.num_edges:,} edges" in order.note


def test_a_good_order_stays() -> None:
    """Grids row by row, whatever their width; nobody is asked for another order."""

    def nobody(graph: Graph, method: str) -> Any:
        raise AssertionError("an order was made")

    for graph in (grid_graph(120, 120), grid_graph(60, 400, neighbours=4)):
        order = node_order(graph, find=nobody)
        assert order.is_given
        assert torch.equal(order.nodes, torch.arange(graph.num_nodes))
        assert reordered(graph, order) is graph
    mixed = node_order(shuffled(grid_graph(120, 120), 0))
    assert mixed.method == "metis"


def test_an_order_that_promises_nothing_is_not_taken(communities: Graph) -> None:
    order = node_order(communities, find=lambda graph, method: np.arange(graph.num_nodes))
    assert order.is_given
    assert order.note is not None
    assert "the order of nodes given is kept: metis does no better" in order.note


def test_small_graphs_and_graphs_without_edges_stay() -> None:
    graph = random_graph(nodes=40)
    assert node_order(graph).is_given
    assert node_order(graph).note is None
    assert node_order(graph, "none").is_given
    assert node_order(graph, "rcm").method == "rcm"
    bare = rewired(graph, torch.zeros(2, 0, dtype=torch.int64))
    assert node_order(bare, "metis").is_given


def test_orders_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="order must be one of auto, none, metis, rcm; got 'degree'"):
        node_order(random_graph(), "degree")
