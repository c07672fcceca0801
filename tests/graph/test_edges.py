"""Cleaning of edge lists against SciPy and against its own promises."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgnn import InputError
from gfgnn.graph.edges import clean_edges

NODES = 7


def edge_lists(weighted: bool = False) -> st.SearchStrategy[list[tuple[int, ...]]]:
    node = st.integers(0, NODES - 1)
    parts = (node, node, st.integers(-3, 3)) if weighted else (node, node)
    return st.lists(st.tuples(*parts), max_size=30)


def dense(edge_index: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Matrix with entry (target, source)."""
    values = np.ones(edge_index.shape[1]) if weight is None else weight
    return sp.coo_array((values, (edge_index[1], edge_index[0])), shape=(NODES, NODES)).toarray()


@given(edges=edge_lists(), symmetrise=st.booleans())
@settings(max_examples=60, deadline=None)
def test_unweighted(edges: list[tuple[int, int]], symmetrise: bool) -> None:
    edge_index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    clean = clean_edges(edge_index, NODES, symmetrise=symmetrise)
    expected = dense(edge_index, None) > 0
    np.fill_diagonal(expected, False)
    if symmetrise:
        expected = expected | expected.T
    assert clean.edge_weight is None
    assert np.array_equal(dense(clean.edge_index, None), expected)  # equal with 1s: no duplicates
    key = clean.edge_index[1] * NODES + clean.edge_index[0]
    assert (np.diff(key) > 0).all()
    assert clean.directed == (not np.array_equal(expected, expected.T))


@given(edges=edge_lists(weighted=True))
@settings(max_examples=60, deadline=None)
def test_weights_are_summed_and_symmetrising_twice_changes_nothing(edges: list[tuple[int, int, int]]) -> None:
    table = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    edge_index, weight = table[:2], table[2].astype(float)
    clean = clean_edges(edge_index, NODES, weight)
    expected = dense(edge_index, weight)
    np.fill_diagonal(expected, 0)
    assert np.array_equal(dense(clean.edge_index, clean.edge_weight), expected)
    assert clean.directed == (
        not np.array_equal(expected, expected.T)
        or not np.array_equal(dense(clean.edge_index, None), dense(clean.edge_index, None).T)
    )

    once = clean_edges(edge_index, NODES, weight, symmetrise=True)
    twice = clean_edges(once.edge_index, NODES, once.edge_weight, symmetrise=True)
    assert not once.directed
    assert np.array_equal(once.edge_index, twice.edge_index)
    assert np.array_equal(once.edge_weight, twice.edge_weight)
    matrix = dense(once.edge_index, once.edge_weight)
    assert np.array_equal(matrix, matrix.T)


def test_says_what_it_did() -> None:
    notes = clean_edges(np.array([[0, 0, 1, 2, 1], [1, 1, 1, 0, 0]]), 3, symmetrise=True).notes
    assert notes == (
        "removed 1 self-loops",
        "merged 1 duplicate edges",
        "symmetrised: 3 stored edges became 4",
    )
    assert clean_edges(np.array([[0, 1], [1, 0]]), 2).notes == ()


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0, 1], [1, 5]], "names node 5, which does not exist: nodes are 0 to 2"),
        ([[0, -1], [1, 2]], "names node -1"),
        ([[0, 1, 2]], r"shape \[2, E\]; got \[1, 3\]"),
        ([[0.5], [1.0]], "must hold integers; got float64"),
    ],
)
def test_bad_edges(edge_index: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clean_edges(np.array(edge_index), 3)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0], r"shape \[2\], one per edge; got \[1\]"), ([1.0, np.nan], "1 NaN or infinite")],
)
def test_bad_weights(weight: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        clean_edges(np.array([[0, 1], [1, 0]]), 2, np.array(weight))
