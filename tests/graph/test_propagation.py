"""Propagation matrices against their definition and PyG; adjoint and mass bound on random graphs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import dense_propagation, randn, random_graph

from gfgnn.graph.operators import build_propagation
from gfgnn.graph.propagation import given_scale, make_propagation

NORMS = ["sym", "rw", "none"]
KINDS = [(False, False), (False, True), (True, False), (True, True)]
several = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**20)
any_kind = st.tuples(st.booleans(), st.booleans())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize(("directed", "weighted"), KINDS)
def test_equals_the_definition(norm: str, self_loops: bool, directed: bool, weighted: bool) -> None:
    graph = random_graph(3, directed=directed, weighted=weighted, isolated=2)
    s = build_propagation(graph, norm, self_loops)
    expected = dense_propagation(graph, norm, self_loops)
    torch.testing.assert_close(s.matrix.to_dense(), expected)
    torch.testing.assert_close(s.matrix_t.to_dense(), expected.t())
    assert (s.matrix_t is s.matrix) == torch.equal(expected, expected.t())


@pytest.mark.parametrize(("directed", "weighted"), KINDS)
def test_symmetric_normalisation_is_pygs(directed: bool, weighted: bool) -> None:
    gcn_conv = pytest.importorskip("torch_geometric.nn.conv.gcn_conv")
    graph = random_graph(4, directed=directed, weighted=weighted)
    weight = None if graph.edge_weight is None else graph.edge_weight.double()
    index, value = gcn_conv.gcn_norm(graph.edge_index, weight, graph.num_nodes, dtype=torch.float64)
    expected = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    expected.index_put_((index[1], index[0]), value, accumulate=True)
    torch.testing.assert_close(build_propagation(graph).matrix.to_dense(), expected)


@several
@given(seeds, any_kind, st.sampled_from(NORMS), st.booleans())
def test_adjoint_identity(seed: int, kind: tuple[bool, bool], norm: str, loops: bool) -> None:
    s = build_propagation(random_graph(seed, directed=kind[0], weighted=kind[1]), norm, loops)
    x, y = randn(s.num_nodes, 3, seed=seed), randn(s.num_nodes, 3, seed=seed + 1)
    torch.testing.assert_close((s.apply(x) * y).sum(), (x * s.adjoint(y)).sum())


@several
@given(seeds, any_kind, st.sampled_from(NORMS), st.booleans())
def test_carried_mass_bounds_the_propagated_shift(
    seed: int, kind: tuple[bool, bool], norm: str, loops: bool
) -> None:
    """``sum_i m_i |(S d)_i|^2 <= sum_j carry(m)_j |d_j|^2``, for the worst ``d`` too."""
    s = build_propagation(random_graph(seed, directed=kind[0], weighted=kind[1]), norm, loops)
    mass = randn(s.num_nodes, seed=seed).abs()
    carried = s.carry(mass)
    d = randn(s.num_nodes, 3, seed=seed + 1)
    assert float(mass @ s.apply(d).square().sum(1)) <= float(carried @ d.square().sum(1)) * (1 + 1e-12)
    dense = s.matrix.to_dense()
    gap = torch.diag(carried) - dense.t() @ torch.diag(mass) @ dense
    assert float(torch.linalg.eigvalsh(gap).min()) >= -1e-10 * float(carried.max())


@pytest.mark.parametrize(("directed", "weighted"), KINDS)
def test_random_walk_conserves_mass(directed: bool, weighted: bool) -> None:
    s = build_propagation(random_graph(5, directed=directed, weighted=weighted), "rw")
    mass = randn(s.num_nodes, seed=1).abs()
    total = mass.sum()
    for _ in range(30):
        mass = s.carry(mass)
    torch.testing.assert_close(mass.sum(), total)


@pytest.mark.parametrize("weighted", [False, True])
def test_symmetric_normalisation_conserves_mass_times_degree(weighted: bool) -> None:
    """So mass stays bounded at any depth: in the end every node has the same, the degree-weighted mean."""
    graph = random_graph(6, weighted=weighted, isolated=0)
    s = build_propagation(graph, "sym")
    degree = s.scale.square()
    mass = randn(s.num_nodes, seed=1).abs()
    conserved = mass @ degree
    for _ in range(400):
        mass = s.carry(mass)
        torch.testing.assert_close(mass @ degree, conserved)
    torch.testing.assert_close(mass, torch.full_like(mass, float(conserved / degree.sum())))


def test_negative_weights_are_bounded_by_their_size() -> None:
    graph = random_graph(7, directed=True, weighted=True)
    assert graph.edge_weight is not None
    signs = torch.where(torch.arange(graph.num_edges) % 2 == 0, 1.0, -1.0)
    s = build_propagation(graph.replace(edge_weight=graph.edge_weight * signs), "none")
    mass, d = randn(s.num_nodes, seed=2).abs(), randn(s.num_nodes, 2, seed=3)
    carried = s.carry(mass)
    assert bool((carried >= 0).all())
    assert float(mass @ s.apply(d).square().sum(1)) <= float(carried @ d.square().sum(1))


@pytest.mark.parametrize("norm", NORMS)
def test_isolated_nodes_keep_themselves_or_get_zero(norm: str) -> None:
    graph = random_graph(8, isolated=3)
    x = randn(graph.num_nodes, 2)
    with_loops, without = (build_propagation(graph, norm, loops) for loops in (True, False))
    assert torch.equal(with_loops.apply(x)[-3:], x[-3:])
    assert not bool(without.apply(x)[-3:].any())
    for s in (with_loops, without):
        mass = s.carry(torch.ones(graph.num_nodes, dtype=torch.float64))
        assert bool(torch.isfinite(mass).all())


def test_graphs_without_edges() -> None:
    graph = random_graph(9, nodes=6, labelled=3)
    bare = graph.replace(edge_index=graph.edge_index[:, :0])
    x = randn(6, 2)
    assert torch.equal(build_propagation(bare, "sym").apply(x), x)
    assert not bool(build_propagation(bare, "rw", False).apply(x).any())


def test_precision_is_converted_and_symmetry_kept() -> None:
    s = build_propagation(random_graph(10)).to(torch.float32, "cpu")
    assert s.matrix.dtype == s.scale.dtype == torch.float32
    assert s.matrix_t is s.matrix
    directed = build_propagation(random_graph(10, directed=True)).to(torch.float32, "cpu")
    torch.testing.assert_close(directed.matrix_t.to_dense(), directed.matrix.to_dense().t())


@pytest.mark.parametrize(
    ("norm", "self_loops", "directed"),
    [
        ("sym", True, True),
        ("sym", True, False),
        ("sym", False, False),
        ("rw", True, True),
        ("rw", False, True),
    ],
)
def test_weights_that_are_normalised_already(norm: str, self_loops: bool, directed: bool) -> None:
    graph = random_graph(5, directed=directed, isolated=2)
    s = build_propagation(graph, norm, self_loops)
    target, source = s.matrix.to_sparse_coo().indices()
    weight = s.matrix.to_sparse_coo().values()
    again = make_propagation(source, target, weight.float().double(), graph.num_nodes, "given")
    torch.testing.assert_close(again.matrix.to_dense(), s.matrix.to_dense())
    mass = torch.rand(graph.num_nodes, dtype=torch.float64)
    torch.testing.assert_close(again.carry(mass), s.carry(mass), rtol=1e-5, atol=1e-6)
    for other in (1.1 * weight, -weight, weight[:0]):
        assert given_scale(source[: len(other)], target[: len(other)], other, graph.num_nodes) is None
