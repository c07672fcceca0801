"""The first block's inputs as a linear map: sparse and dense features give the same products."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import randn, random_graph
from torch import Tensor

from gfgnn.graph.operators import build_propagation
from gfgnn.model import inputs as module
from gfgnn.model.blocks import Block
from gfgnn.model.inputs import Inputs, make_inputs

KINDS = ["none", "graph", "concat", "power", "hops"]
F, HOPS = 7, 3


def both(kind: str, seed: int = 0) -> tuple[Inputs, Inputs, Tensor]:
    """The same features dense and sparse, and T written out; S is directed and weighted."""
    s = build_propagation(random_graph(seed, directed=True, weighted=True, nodes=15))
    x = randn(15, F, seed=seed) * (randn(15, F, seed=seed + 1) > 0.5)
    block = Block(propagate=kind, in_channels=F, out_channels=4, hops=HOPS)
    dense = s.matrix.to_dense()
    hops = [torch.linalg.matrix_power(dense, k) @ x for k in range(HOPS + 1)]
    t = {
        "none": x,
        "graph": hops[1],
        "concat": torch.cat(hops[:2], 1),
        "power": hops[-1],
        "hops": torch.cat(hops, 1),
    }[kind]
    return make_inputs(block, s, x), make_inputs(block, s, x.to_sparse_csr()), t


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**20), st.integers(1, 5))
def test_products_of_every_kind(kind: str, seed: int, columns: int) -> None:
    dense, sparse, t = both(kind, seed)
    assert dense.table is not None
    assert sparse.table is None
    weight, r = randn(t.size(1), columns, seed=seed), randn(15, columns, seed=seed + 2)
    for inputs in (dense, sparse):
        assert inputs.fan_in == t.size(1)
        torch.testing.assert_close(inputs.matmul(weight), t @ weight)
        torch.testing.assert_close(inputs.adjoint(r), t.t() @ r)
        torch.testing.assert_close((inputs.matmul(weight) * r).sum(), (weight * inputs.adjoint(r)).sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse_below", [0.0, 1.0])
def test_second_moments_of_every_kind(
    kind: str, sparse_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in chunks of rows, and by the sparse as well as the dense sum."""
    monkeypatch.setattr(module, "SPARSE_GRAM_BELOW", sparse_below)
    monkeypatch.setattr(module, "CHUNK", 4)
    dense, sparse, t = both(kind)
    c = randn(15, seed=3).abs()
    c[::4] = 0.0
    for inputs in (dense, sparse):
        torch.testing.assert_close(inputs.gram(c), t.t() @ torch.diag(c) @ t)
        torch.testing.assert_close(inputs.square_sums(c), c @ t.square())
        torch.testing.assert_close(
            inputs.gram(torch.zeros_like(c)), torch.zeros(t.size(1), t.size(1)).double()
        )


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_stays_single(kind: str) -> None:
    _, sparse, t = both(kind)
    single = make_inputs(sparse.block, sparse.propagation.to(torch.float32, "cpu"), sparse.features.float())
    c = torch.ones(15)
    weight = torch.ones(t.size(1), 2)
    for value in (
        single.matmul(weight),
        single.adjoint(torch.ones(15, 2)),
        single.gram(c),
        single.square_sums(c),
    ):
        assert value.dtype == torch.float32
    torch.testing.assert_close(single.matmul(weight).double(), t @ weight.double(), rtol=1e-4, atol=1e-5)
