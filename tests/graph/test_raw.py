"""Edges as given: what is kept of them, mirrored, cut, counted, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfgnn import Graph, InputError
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.raw import mirrored

#: a self-loop, a repeated edge, and the same two ends in two relations
EDGES = torch.tensor([[0, 1, 1, 0, 2], [0, 0, 0, 1, 1]])
TYPES = torch.tensor([0, 1, 1, 1, 0])
NODES, RELATIONS = 4, 3


def related(**changes: Any) -> Graph:
    return Graph.from_edges(EDGES, 3, **{"edge_type": TYPES, **changes})


def raw_of(graph: Graph) -> EdgeList:
    assert graph.raw is not None
    return graph.raw


def matrices(edges: EdgeList, num_nodes: int) -> Tensor:
    """``[R, N, N]``, entry (relation, target, source)."""
    dense = torch.zeros(edges.num_relations, num_nodes, num_nodes, dtype=torch.float64)
    weight = torch.ones(edges.num_edges) if edges.edge_weight is None else edges.edge_weight
    kind = torch.zeros(edges.num_edges, dtype=torch.long) if edges.edge_type is None else edges.edge_type
    return dense.index_put_((kind, *edges.edge_index.flip(0)), weight.double(), accumulate=True)


def test_edges_with_relations_are_kept_as_given() -> None:
    graph = related(edge_weight=[1.0, 2.0, 3.0, 4.0, 5.0])
    raw = raw_of(graph)
    assert torch.equal(raw.edge_index, EDGES)
    assert raw.edge_type is not None
    assert torch.equal(raw.edge_type, TYPES)
    assert raw.edge_weight is not None
    assert raw.edge_weight.tolist() == [1, 2, 3, 4, 5]
    assert graph.num_relations == raw.num_relations == 2
    assert graph.edge_index.tolist() == [[1, 0, 2], [0, 1, 1]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [5, 4, 5]
    assert related(num_relations=7).num_relations == 7
    assert "3 directed edges of 2 relations," in repr(graph)
    assert graph.statistics()["num_relations"] == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int16, list, torch.int32])
def test_relations_of_many_kinds(kind: Any) -> None:
    given = TYPES.to(kind) if isinstance(kind, torch.dtype) else TYPES.tolist()
    graph = related(edge_type=np.array(given, dtype=kind) if kind in (np.uint8, np.int16) else given)
    assert raw_of(graph).edge_type is not None
    assert torch.equal(raw_of(graph).edge_type, TYPES)  # type: ignore[arg-type]


def test_edges_without_relations_are_kept_on_request_where_cleaning_loses_some() -> None:
    assert Graph.from_edges(EDGES, 3).raw is None
    assert torch.equal(raw_of(Graph.from_edges(EDGES, 3, keep_raw=True)).edge_index, EDGES)
    assert Graph.from_edges(EDGES[:, [4, 3, 1]], 3, keep_raw=True).raw is None  # sorting loses nothing
    assert raw_of(Graph.from_edges(EDGES[:, :2], 3, keep_raw=True)).edge_type is None
    assert Graph.from_edges(EDGES, 3, keep_raw=True).num_relations == 1


def test_weights_keep_their_precision() -> None:
    for dtype, kept in (
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float64),
    ):
        weight = raw_of(related(edge_weight=torch.ones(5, dtype=dtype))).edge_weight
        assert weight is not None
        assert weight.dtype == kept


def test_no_edges_have_relations_too() -> None:
    graph = Graph.from_edges(
        torch.zeros(2, 0, dtype=torch.long), 2, edge_type=[], num_relations=3, symmetrise=True
    )
    assert (graph.num_relations, raw_of(graph).num_edges) == (3, 0)
    assert Graph.from_edges(torch.zeros(2, 0, dtype=torch.long), 2, edge_type=[]).num_relations == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_type": TYPES[:3]}, r"edge_type must have shape \[5\], one relation per edge; got \[3\]"),
        ({"edge_type": TYPES[:, None]}, r"edge_type must have shape \[5\].*; got \[5, 1\]"),
        ({"edge_type": TYPES.double()}, "edge_type must hold whole numbers; got float64"),
        ({"edge_type": TYPES - 1}, "edge_type holds -1; relations are numbered from 0"),
        ({"num_relations": 1}, "edge_type holds 1; relations are 0 to 0"),
        ({"num_relations": 0}, "num_relations must be at least 1; got 0"),
        ({"num_relations": 2.5}, "num_relations must be one whole number; got 2.5"),
        ({"edge_type": None, "num_relations": 2}, "num_relations=2 needs edge_type"),
    ],
)
def test_bad_relations(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        related(**changes)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (EdgeList(EDGES.int()), r"raw.edge_index must be int64 \[2, E\]; got torch.int32 \[2, 5\]"),
        (EdgeList(EDGES + 1), "raw.edge_index names node 3, which does not exist: nodes are 0 to 2"),
        (EdgeList(EDGES - 1), "raw.edge_index names node -1"),
        (
            EdgeList(EDGES, torch.ones(4)),
            r"raw.edge_weight must be float32 or float64 \[5\].*; got torch.float32 \[4\]",
        ),
        (EdgeList(EDGES, torch.ones(5).long()), "raw.edge_weight must be float32 or float64"),
        (EdgeList(EDGES, torch.full((5,), float("nan"))), "raw.edge_weight holds NaN or infinite values"),
        (EdgeList(EDGES, None, TYPES, 1), "edge_type holds 1; with num_relations=1 relations are 0 to 0"),
        (EdgeList(EDGES, None, TYPES - 1, 2), "edge_type holds -1"),
        (EdgeList(EDGES, None, TYPES.int(), 2), r"edge_type must be int64 \[5\].*; got torch.int32"),
        (EdgeList(EDGES, None, None, 2), "num_relations is 2, but there is no edge_type"),
        (EdgeList(EDGES, None, TYPES, 2.0), "num_relations must be a whole number; got 2.0"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused_by_the_constructor(raw: EdgeList, message: str) -> None:
    with pytest.raises(InputError, match=message):
        related().replace(raw=raw)


def edge_lists() -> st.SearchStrategy[list[tuple[int, int, int, int]]]:
    node = st.integers(0, NODES - 1)
    return st.lists(st.tuples(node, node, st.integers(0, RELATIONS - 1), st.integers(-3, 3)), max_size=25)


def edge_list(rows: list[tuple[int, int, int, int]], weighted: bool) -> EdgeList:
    table = torch.tensor(rows, dtype=torch.long).reshape(-1, 4).T
    return EdgeList(table[:2], table[3].double() if weighted else None, table[2], RELATIONS)


@given(rows=edge_lists(), weighted=st.booleans())
@settings(max_examples=80, deadline=None)
def test_mirrored(rows: list[tuple[int, int, int, int]], weighted: bool) -> None:
    """Every relation becomes symmetric; what was given stays in place, a symmetric list as it is."""
    edges = edge_list(rows, weighted)
    both = mirrored(edges, NODES)
    dense = matrices(both, NODES)
    assert torch.equal(dense, dense.transpose(1, 2))
    assert torch.equal(both.edge_index[:, : edges.num_edges], edges.edge_index)
    again = mirrored(both, NODES)
    assert torch.equal(again.edge_index, both.edge_index)
    assert weighted is (again.edge_weight is not None)
    if again.edge_weight is not None and both.edge_weight is not None:
        assert torch.equal(again.edge_weight, both.edge_weight)
    before, after = (
        matrices(EdgeList(e.edge_index, None, e.edge_type, RELATIONS), NODES) for e in (edges, both)
    )
    expected = torch.maximum(before, before.transpose(1, 2))  # copies; self-loops are not doubled
    assert torch.equal(after, expected)


@given(rows=edge_lists(), symmetrise=st.booleans(), weighted=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_union_is_the_sum_of_the_relations(
    rows: list[tuple[int, int, int, int]], symmetrise: bool, weighted: bool
) -> None:
    edges = edge_list(rows, weighted)
    graph = Graph.from_edges(
        edges.edge_index, NODES, edge_weight=edges.edge_weight, edge_type=edges.edge_type,
        num_relations=RELATIONS, symmetrise=symmetrise,
    )  # fmt: skip
    total = matrices(raw_of(graph), NODES).sum(0)
    total.fill_diagonal_(0)
    union = matrices(EdgeList(graph.edge_index, graph.edge_weight), NODES)[0]
    assert torch.equal(union, total if weighted else (total > 0).double())
    assert not (symmetrise and graph.directed)


def test_reverse_edges_keep_their_relation() -> None:
    raw = raw_of(Graph.from_edges([[0, 1, 2], [1, 0, 2]], 3, edge_type=[0, 1, 1], symmetrise=True))
    assert raw.edge_index.tolist() == [[0, 1, 2, 1, 0], [1, 0, 2, 0, 1]]
    assert raw.edge_type is not None
    assert raw.edge_type.tolist() == [0, 1, 1, 0, 1]


def test_symmetrising_leaves_notes_of_both_lists() -> None:
    graph = related(symmetrise=True, edge_weight=torch.arange(5, dtype=torch.float64) / 3)
    assert not graph.directed  # to the last bit, whatever the order of the sums
    assert graph.notes == (
        "symmetrised within relations: 5 given edges became 7",
        "removed 1 self-loops",
        "merged 2 duplicate edges (weights summed)",
    )


@given(rows=edge_lists(), nodes=st.lists(st.booleans(), min_size=NODES, max_size=NODES).filter(any))
@settings(max_examples=40, deadline=None)
def test_subgraphs_keep_relations(rows: list[tuple[int, int, int, int]], nodes: list[bool]) -> None:
    edges = edge_list(rows, weighted=True)
    graph = Graph.from_edges(
        edges.edge_index,
        NODES,
        edge_weight=edges.edge_weight,
        edge_type=edges.edge_type,
        num_relations=RELATIONS,
    )
    kept = torch.tensor(nodes)
    part = graph.subgraph(kept)
    expected = matrices(edges, NODES)[:, kept][:, :, kept]
    assert torch.equal(matrices(raw_of(part), part.num_nodes), expected)


def test_relations_enter_the_fingerprint_and_their_order_does_not() -> None:
    plain = Graph.from_edges(EDGES, 3)
    assert fingerprint(Graph.from_edges(EDGES, 3, keep_raw=True)) == fingerprint(plain)
    assert fingerprint(related()) != fingerprint(plain)
    assert fingerprint(related()) != fingerprint(related(num_relations=3))
    weight = torch.arange(5.0)
    order = torch.tensor([4, 2, 0, 1, 3])
    for values in (None, weight):
        shuffled = Graph.from_edges(
            EDGES[:, order], 3, edge_type=TYPES[order], edge_weight=None if values is None else values[order]
        )
        assert fingerprint(shuffled) == fingerprint(related(edge_weight=values))
    assert fingerprint(related(edge_weight=weight)) != fingerprint(related(edge_weight=weight + 1))


def test_the_fingerprint_of_a_graph_without_relations_stays_what_it_was() -> None:
    """Stored partitions carry it."""
    graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]], 3, edge_weight=[1.0, 2.0, 3.0])
    assert fingerprint(graph) == "8cc109fba166c5f0a0ac23a55c9e3c97"
