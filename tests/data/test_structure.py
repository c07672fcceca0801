"""Features from the graph alone, against dense eigendecompositions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gfgnn import Graph, InputError, load
from gfgnn.data import structure, structure_features


def matrix_of(graph: Graph) -> np.ndarray:
    """The matrix whose eigenvectors are taken, dense float64."""
    adjacency = structure._symmetric_adjacency(graph.edge_index.numpy(), graph.num_nodes)
    degree = np.diff(adjacency.indptr).astype(np.float64)
    return structure._normalised(adjacency, degree).toarray().astype(np.float64)


def test_dense_and_iterative_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the leading eigenvalues stand apart, both find the same vectors with the same signs."""
    graph = load("synthetic:nodes=600,classes=8,degree=40,homophily=0.9,features=0,skew=0")
    exact = structure_features(graph.edge_index, 600, k=8, ranked=False)
    monkeypatch.setattr(structure, "DENSE_NODES", 10)
    found = structure_features(graph.edge_index, 600, k=8, seed=5, ranked=False)
    torch.testing.assert_close(found, exact, atol=2e-3, rtol=0)


def test_leading_eigenvalues_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "DENSE_NODES", 10)
    graph = load("synthetic:nodes=1200,classes=8,degree=6,features=0")
    x = structure_features(graph.edge_index, 1200, k=16, ranked=False)
    assert x.shape == (1200, 17)
    assert x.dtype == torch.float32
    matrix = matrix_of(graph)
    vectors = x[:, :16].double().numpy() / np.sqrt(1200)
    assert np.allclose(vectors.T @ vectors, np.eye(16), atol=1e-5)
    found = np.einsum("ij,ij->j", vectors, matrix @ vectors)
    exact = np.linalg.eigvalsh(matrix)[::-1][:16]
    assert np.allclose(found[:8], exact[:8], atol=1e-5)  # the communities stand apart
    assert np.allclose(found, exact, atol=0.02)  # the bulk below them is crowded
    assert (found <= exact + 1e-6).all()
    torch.testing.assert_close(x.square().mean(0), torch.ones(17), atol=1e-4, rtol=0)
    assert (x[:, :16].double() ** 3).sum(0).min() >= 0


def test_ranks_keep_the_order_and_have_unit_scale() -> None:
    edges = load("synthetic:nodes=300,degree=5,features=0").edge_index
    raw = structure_features(edges, 300, 4, ranked=False)
    ranks = structure_features(edges, 300, 4)
    order = raw[:, 0].argsort()
    assert (ranks[order, 0].diff() >= 0).all()
    assert float(ranks[:, 0].abs().max()) < 3**0.5
    torch.testing.assert_close(ranks.square().mean(0), torch.ones(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(ranks[:, -1], raw[:, -1])


def test_the_matrix_is_symmetric_with_eigenvalues_of_at_most_one() -> None:
    graph = load("synthetic:nodes=300,degree=3,features=0")
    matrix = matrix_of(graph)
    assert np.array_equal(matrix, matrix.T)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > -1
    assert values[-1] <= 1 + 1e-6


def test_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "DENSE_NODES", 10)
    graph = load("citeseer")
    one, same, other = (structure_features(graph.edge_index, graph.num_nodes, 16, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_direction_does_not_matter() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    assert torch.equal(structure_features(edges, 6, 3), structure_features(edges.flip(0), 6, 3))


def test_regular_graph_and_no_edges() -> None:
    ring = torch.stack([torch.arange(5), (torch.arange(5) + 1) % 5])
    assert not structure_features(ring, 5, 2)[:, -1].any()
    assert torch.isfinite(structure_features(torch.zeros(2, 0, dtype=torch.long), 5, 2)).all()


@pytest.mark.parametrize(
    ("k", "message"), [(0, "must be at least 1"), (5, "k must be below the number of nodes, 5")]
)
def test_bad_k(k: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        structure_features(torch.tensor([[0], [1]]), 5, k)


def test_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path))
    first = load("citeseer", features="structure:8")
    (entry,) = tmp_path.iterdir()
    monkeypatch.setattr("gfgnn.data.registry.structure_features", None)  # would fail if called
    again = load("citeseer", features="structure:8")
    assert first.x is not None
    assert again.x is not None
    assert torch.equal(first.x, again.x)
    monkeypatch.undo()
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path))
    entry.write_bytes(b"damaged")
    repaired = load("citeseer", features="structure:8").x
    assert repaired is not None
    assert torch.equal(repaired, first.x)


def test_unwritable_cache_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "file" / "inside"))
    assert load("synthetic:nodes=60,features=0", features="structure:4").num_features == 5
