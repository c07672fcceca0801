"""Blocks against dense formulas: propagation, its transpose, node weights, activation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import randn, random_graph

from gfgnn.graph.operators import build_propagation
from gfgnn.graph.propagation import Propagation
from gfgnn.model.blocks import (
    LEAKY_SLOPE,
    Block,
    activate,
    carry,
    output_of,
    propagate,
    propagate_adjoint,
    transform,
)

ALPHA, HOPS = 0.3, 3
#: kinds that may stand above the first block
INNER = ["none", "graph", "initial", "concat"]
several = settings(max_examples=12, deadline=None)


def block(kind: str, **changes: object) -> Block:
    return Block(propagate=kind, in_channels=4, out_channels=4, alpha=ALPHA, hops=HOPS, **changes)  # type: ignore[arg-type]


def setting(
    seed: int, directed: bool = True, norm: str = "sym"
) -> tuple[Propagation, torch.Tensor, torch.Tensor]:
    s = build_propagation(random_graph(seed, directed=directed, weighted=True), norm)
    return s, randn(s.num_nodes, 4, seed=seed), randn(s.num_nodes, 4, seed=seed + 1)


@pytest.mark.parametrize("directed", [False, True])
def test_propagate_equals_the_dense_formula(directed: bool) -> None:
    s, h, h0 = setting(0, directed)
    dense = s.matrix.to_dense()
    hops = [torch.linalg.matrix_power(dense, k) @ h for k in range(HOPS + 1)]
    expected = {
        "none": h,
        "graph": dense @ h,
        "initial": (1 - ALPHA) * dense @ h + ALPHA * h0,
        "concat": torch.cat(hops[:2], dim=1),
        "power": hops[-1],
        "hops": torch.cat(hops, dim=1),
    }
    before, before0 = h.clone(), h0.clone()
    for kind, value in expected.items():
        t = propagate(block(kind), s, h, h0)
        torch.testing.assert_close(t, value)
        assert t.size(1) == block(kind).fan_in
    assert torch.equal(h, before)
    assert torch.equal(h0, before0)


@several
@given(st.integers(0, 2**20), st.sampled_from(INNER), st.booleans())
def test_adjoint_identity(seed: int, kind: str, directed: bool) -> None:
    """``<propagate(h, h0), q> = <h, below> + <h0, initial>``."""
    s, h, h0 = setting(seed, directed)
    b = block(kind)
    q = randn(s.num_nodes, b.fan_in, seed=seed + 2)
    before = q.clone()
    below, initial = propagate_adjoint(b, s, q)
    assert torch.equal(q, before)
    assert (initial is not None) == (kind == "initial")
    right = (h * below).sum() + (0 if initial is None else (h0 * initial).sum())
    torch.testing.assert_close((propagate(b, s, h, h0) * q).sum(), right)


@several
@given(st.integers(0, 2**20), st.sampled_from(INNER), st.booleans(), st.sampled_from(["sym", "rw"]))
def test_carried_mass_bounds_the_shift(seed: int, kind: str, directed: bool, norm: str) -> None:
    s, h, h0 = setting(seed, directed, norm)
    mass = randn(s.num_nodes, seed=seed).abs()
    before = mass.clone()
    below, initial = carry(block(kind), s, mass)
    assert torch.equal(mass, before)
    bound = below @ h.square().sum(1) + (0.0 if initial is None else initial @ h0.square().sum(1))
    assert float(mass @ propagate(block(kind), s, h, h0).square().sum(1)) <= float(bound) * (1 + 1e-12)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "identity"])
def test_activations_are_positively_homogeneous(activation: str) -> None:
    z = randn(6, 3)
    slope = {"relu": 0.0, "leaky_relu": LEAKY_SLOPE, "identity": 1.0}[activation]
    torch.testing.assert_close(activate(z, activation), torch.where(z > 0, z, slope * z))
    torch.testing.assert_close(activate(2.5 * z, activation), 2.5 * activate(z, activation))


def test_transform_and_skip() -> None:
    t, weight, bias, below = randn(6, 4), randn(4, 3, seed=1), randn(3, seed=2), randn(6, 3, seed=3)
    torch.testing.assert_close(transform(t, weight, bias), t @ weight + bias)
    torch.testing.assert_close(transform(t, weight, None), t @ weight)
    z = transform(t, weight, bias)
    expected = below + 0.5 * z.clamp(min=0)
    torch.testing.assert_close(output_of(block("graph", skip=0.5), z.clone(), below), expected)
    torch.testing.assert_close(output_of(block("graph", activation="identity"), z.clone(), None), z)
