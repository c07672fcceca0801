"""partition_nodes: quality, balance, shares, seeds, odd graphs and odd requests, with every method."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_graphs import nasty, planted, undirected

import gfgnn
from gfgnn.checks import InputError
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import COUNTED, check_partition, partition_nodes, with_metis, with_pymetis

METHODS = ("pymetis", "metis", "ldg")
NASTY = nasty()


@pytest.fixture(scope="module")
def citeseer() -> Graph:
    return gfgnn.load("citeseer")


@pytest.fixture(scope="module")
def communities() -> Graph:
    return planted()


@pytest.fixture(scope="module")
def few_communities() -> Graph:
    return planted(5_000)


@pytest.mark.parametrize(("method", "most"), [("pymetis", 0.06), ("metis", 0.06), ("ldg", 0.15)])
def test_citeseer_is_cut_far_below_random(citeseer: Graph, method: str, most: float) -> None:
    partition = partition_nodes(citeseer, 8, method=method)
    assert partition.method == method
    assert partition.report.cut_share < most  # random: 0.875
    assert partition.report.balance["nodes"] <= 1.031


@pytest.mark.parametrize(("method", "most"), [("pymetis", 0.27), ("metis", 0.27), ("ldg", 0.28)])
def test_communities_are_found(communities: Graph, method: str, most: float) -> None:
    report = partition_nodes(communities, 4, method=method).report
    assert report.cut_share < most  # random: 0.75
    assert report.balance["nodes"] <= 1.031


@pytest.mark.parametrize("parts", [4, 12])  # recursive bisection and k-way
@pytest.mark.parametrize("method", METHODS)
def test_seeds(citeseer: Graph, method: str, parts: int) -> None:
    one, same, other = (partition_nodes(citeseer, parts, method=method, seed=s) for s in (1, 1, 2))
    assert torch.equal(one.assignment, same.assignment)
    assert not torch.equal(one.assignment, other.assignment)


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("method", ["metis", "ldg"])
def test_several_constraints_hold_at_once(communities: Graph, method: str, parts: int) -> None:
    nobody = torch.zeros(communities.num_nodes, dtype=torch.bool)
    graph = communities.replace(train_mask=communities.y < 10, val_mask=nobody, test_mask=nobody)
    several = partition_nodes(graph, parts, method=method, balance=COUNTED).report
    assert max(several.balance.values()) <= 1.04
    assert several.cut_share < 0.65 * (1 - 1 / parts)  # random: 1 - 1 / parts
    one = partition_nodes(graph, parts, method=method).report
    assert one.balance["labelled"] > 1.1  # so the constraints had something to do


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("method", METHODS)
def test_one_constraint(citeseer: Graph, method: str, kind: str) -> None:
    report = partition_nodes(citeseer, 4, method=method, balance=kind, imbalance=0.1).report
    assert report.balance[kind] <= 1.101


@pytest.mark.parametrize("balance", [("nodes",), ("nodes", "edges")])
@pytest.mark.parametrize("method", METHODS)
def test_unequal_shares(few_communities: Graph, method: str, balance: tuple[str, ...]) -> None:
    if method == "pymetis" and len(balance) > 1:
        pytest.skip("pymetis takes one constraint")
    partition = partition_nodes(few_communities, 3, method=method, balance=balance, target_shares=[2, 1, 5])
    assert partition.target_shares == (0.25, 0.125, 0.625)
    for kind in balance:
        counts = np.array(getattr(partition.report, kind))
        assert partition.report.balance[kind] <= 1.031
        assert (counts > 0.7 * counts.sum() * np.array(partition.target_shares)).all()


@pytest.mark.parametrize("method", METHODS)
def test_directions_and_weights_do_not_matter(few_communities: Graph, method: str) -> None:
    """A directed, weighted graph is cut like its undirected structure."""
    source, target = few_communities.edge_index
    once = source < target
    weight = torch.rand(int(once.sum()), generator=torch.Generator().manual_seed(0))
    directed = Graph.from_edges(
        few_communities.edge_index[:, once], few_communities.num_nodes, edge_weight=weight
    )
    assert directed.directed
    one, other = (partition_nodes(g, 4, method=method) for g in (few_communities, directed))
    assert torch.equal(one.assignment, other.assignment)
    assert one.report.edge_cut == other.report.edge_cut
    assert sum(one.report.halo) > sum(other.report.halo)
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("balance", [("nodes",), ("edges",), ("labelled",), COUNTED])
@pytest.mark.parametrize("name", list(NASTY))
def test_odd_graphs(name: str, balance: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """Every part gets a node whatever is asked, and METIS has nothing to complain about."""
    graph = NASTY[name]
    n = graph.num_nodes
    requests = [(parts, None) for parts in (1, 2, 3, 9, n - 1, n)] + [(3, [1, 2, 3]), (9, list(range(1, 10)))]
    for method in METHODS if len(balance) == 1 else ("metis", "ldg"):
        for parts, shares in requests:
            partition = partition_nodes(graph, parts, method=method, balance=balance, target_shares=shares)
            check_partition(partition, graph, parts)
            if balance == ("nodes",) and shares is None:
                assert max(partition.report.nodes) <= math.ceil(n / parts) + 1  # METIS may be one off
    assert capfd.readouterr().out == ""


def test_best_cuts_of_graphs_where_they_are_known() -> None:
    for method in METHODS:
        assert partition_nodes(NASTY["components"], 3, method=method).report.edge_cut == 0
        assert partition_nodes(NASTY["complete"], 2, method=method).report.edge_cut == 36
        assert partition_nodes(NASTY["path"], 2, method=method).report.edge_cut <= 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_graph(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 25), "nodes")
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60), "edges")
    parts = data.draw(st.integers(1, n), "parts")
    balance = data.draw(st.lists(st.sampled_from(COUNTED), min_size=1, unique=True), "balance")
    method = data.draw(st.sampled_from(["auto", "metis", "ldg"]), "method")
    graph = undirected(pairs, n)
    partition = partition_nodes(graph, parts, method=method, balance=balance)
    check_partition(partition, graph, parts)
    assert sum(partition.report.nodes) == n


def test_auto_says_what_it_took_and_why(citeseer: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    one = partition_nodes(citeseer, 2)
    assert (one.method, one.notes) == ("pymetis", ("auto took pymetis, for one constraint",))
    assert partition_nodes(citeseer, 2, balance=("nodes", "edges")).method == "metis"

    monkeypatch.setitem(sys.modules, "pymetis", None)
    other = partition_nodes(citeseer, 2)
    assert other.method == "metis"
    assert "pip install pymetis" in other.notes[0]

    monkeypatch.setitem(sys.modules, "metis", None)
    floor = partition_nodes(citeseer, 2)
    assert floor.method == "ldg"
    assert "pip install pymetis" in floor.notes[0]
    assert "cmeel-metis" in floor.notes[0]
    for method, install in (("pymetis", "pip install pymetis"), ("metis", "cmeel-metis")):
        with pytest.raises(InputError, match=install):
            partition_nodes(citeseer, 2, method=method)


def test_a_metis_package_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package raises RuntimeError, not ImportError."""
    monkeypatch.delitem(sys.modules, "metis", raising=False)
    monkeypatch.setenv("METIS_DLL", "nowhere/libmetis.so")
    with pytest.raises(InputError, match="libmetis5"):
        with_metis.load()


def test_graphs_beyond_the_integers_of_a_metis(citeseer: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (with_pymetis, with_metis):
        monkeypatch.setattr(module, "index_dtype", lambda library: np.dtype(np.int8))
    floor = partition_nodes(citeseer, 2)
    assert floor.method == "ldg"
    assert "exceed the 127 of its int8 integers" in floor.notes[0]
    with pytest.raises(InputError, match="exceed the 127"):
        partition_nodes(citeseer, 2, method="pymetis")


def test_a_constraint_under_which_nothing_falls_is_left_out(citeseer: Graph) -> None:
    nobody = torch.zeros(citeseer.num_nodes, dtype=torch.bool)
    unlabelled = citeseer.replace(train_mask=nobody)
    partition = partition_nodes(unlabelled, 2, balance=("nodes", "labelled"))
    assert partition.notes[0] == "citeseer has no labelled training nodes to balance"
    assert partition.report.balance["nodes"] <= 1.031


def test_an_imbalance_that_cannot_be_kept_is_said() -> None:
    partition = partition_nodes(NASTY["star"], 4, balance=("edges",))
    assert any("of its share of edges; 1.03 was asked for" in note for note in partition.notes)


def test_both_libraries_in_the_other_order(citeseer: Graph) -> None:
    """Each brings a METIS of its own; loading one first must not change what the other does."""
    code = (
        "import gfgnn; from gfgnn.graph.partition import partition_nodes; g = gfgnn.load('citeseer');"
        "print(*[partition_nodes(g, 4, method=m).report.edge_cut for m in ('metis', 'pymetis')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [partition_nodes(citeseer, 4, method=m).report.edge_cut for m in ("pymetis", "metis")]
    assert [int(cut) for cut in done.stdout.split()] == here[::-1]


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        (0, {}, "num_parts must be at least 1; got 0"),
        (2.5, {}, "num_parts must be a whole number; got 2.5"),
        (26, {}, "num_parts must be at most 25, the number of nodes of small; got 26"),
        (2, {"method": "kahip"}, "method must be one of auto, pymetis, metis, ldg; got 'kahip'"),
        (2, {"balance": ("rows",)}, "balance must be one of nodes, edges, labelled, work; got 'rows'"),
        (2, {"balance": ()}, "balance must name some of"),
        (2, {"balance": ("nodes", "nodes")}, "each once"),
        (2, {"method": "pymetis", "balance": ("nodes", "edges")}, "Use metis or ldg"),
        (3, {"target_shares": [1, 1]}, "one number for each of 3 parts; got 2"),
        (2, {"target_shares": [1, 0]}, r"target_shares must be positive numbers; got \[1, 0\]"),
        (2, {"target_shares": [1, float("nan")]}, "must be positive"),
        (2, {"target_shares": ["1", "2"]}, "must be positive numbers"),
        (2, {"imbalance": -0.1}, "imbalance must lie between 0.0 and 1.0; got -0.1"),
        (2, {"seed": -1}, "seed must be at least 0; got -1"),
        (2, {"seed": 2**31}, "seed must be at most"),
    ],
)
def test_bad_requests(parts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        partition_nodes(NASTY["path"], parts, **options)


def test_a_graph_that_only_claims_to_be_undirected() -> None:
    graph = NASTY["path"].replace(edge_index=torch.tensor([[0, 3], [1, 5]]), directed=False)
    with pytest.raises(InputError, match="node 1 has neighbour 0, but not back"):
        partition_nodes(graph, 2)
