"""Edges cleaned on disk: the same as in memory, whatever the sizes of pieces and blocks, in memory for a block."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgnn import InputError
from gfgnn.data import edge_stream
from gfgnn.data.edge_stream import stream_clean_edges
from gfgnn.graph.edges import clean_edges


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    num_nodes=st.integers(1, 12),
    count=st.integers(0, 60),
    block=st.integers(1, 20),
    piece=st.integers(1, 30),
    symmetrise=st.booleans(),
    paired=st.booleans(),
)
def test_the_same_as_in_memory(
    seed: int, num_nodes: int, count: int, block: int, piece: int, symmetrise: bool, paired: bool
) -> None:
    edges = np.random.default_rng(seed).integers(0, num_nodes, (count, 2))
    if paired:  # symmetric as given
        edges = np.concatenate([edges, edges[:, ::-1]])
    expected = clean_edges(edges.T, num_nodes, symmetrise=symmetrise)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(edge_stream, "BLOCK", block)
        pieces = [edges[at : at + piece] for at in range(0, len(edges), piece)]
        path = Path(folder) / "edge_index.npy"
        found = stream_clean_edges(pieces, num_nodes, path, symmetrise=symmetrise)
        edge_index = np.load(path)
        assert list(Path(folder).iterdir()) == [path]
    assert edge_index.dtype == np.int64
    assert edge_index.tolist() == expected.edge_index.tolist()
    assert found == (expected.directed, expected.notes)


def test_memory_is_that_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_stream, "BLOCK", 5000)
    rng = np.random.default_rng(0)
    tracemalloc.start()
    path = tmp_path / "edge_index.npy"
    stream_clean_edges((rng.integers(0, 1000, (5000, 2)) for _ in range(60)), 1000, path, symmetrise=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 16 * 400_000
    assert peak < path.stat().st_size / 4


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ([[0, 3]], "names node 3"),
        ([[0, -1]], "names node -1"),
        ([[0, 1, 2]], "shape"),
        ([[0.0, 1.0]], "integers"),
    ],
)
def test_what_is_no_edge(piece: list[list[float]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        stream_clean_edges([np.array([[0, 1]]), np.array(piece)], 3, tmp_path / "edge_index.npy")
    assert list(tmp_path.iterdir()) == []
