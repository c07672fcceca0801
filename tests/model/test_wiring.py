"""Who feeds whom: T of a block from the outputs of others, and the transposes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import branched, with_terms
from random_graphs import randn, random_graph
from torch import Tensor

from gfgnn.config import ModelConfig
from gfgnn.forward import forward
from gfgnn.model.blocks import FEATURES, Block, Term
from gfgnn.model.build import build_model, initial_weights, model_from_dict
from gfgnn.model.wiring import (
    add_shares,
    gather,
    is_chain,
    is_homogeneous,
    is_input,
    scatter,
    sources,
    spread,
)
from gfgnn.problem import Problem, prepare
from gfgnn.solver.state import rescaled

WIDTHS = {0: 3, 1: 4, 2: 4}


def term(seed: int, width: int | None = None) -> Term:
    """A random one; only of the two sources of one width can the second be added."""
    draw = torch.Generator().manual_seed(seed)

    def pick(high: int) -> int:
        return int(torch.randint(high, (1,), generator=draw))

    source = pick(3) if width is None else 1 + pick(2)
    initial = {0: None, 1: 2, 2: 1}[source] if pick(2) else None
    return Term(
        source=source, width=WIDTHS[source], hops=pick(3), operator=pick(2), scale=[1.0, 0.7, -2.0][pick(3)],
        initial=initial, initial_scale=0.3 if initial is not None else 0.0,
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans(), st.booleans())
def test_scatter_is_the_transpose_of_gather(
    seed: int, count: int, side_by_side: bool, directed: bool
) -> None:
    p = problem(directed)
    width = None if side_by_side else 4
    terms = tuple(term(seed + k, width) for k in range(count))
    block = Block(propagate="terms" if side_by_side else "sum", terms=terms, in_channels=4, out_channels=4)
    values = {source: randn(12, columns, seed=source) for source, columns in WIDTHS.items()}
    t = gather(block, 3, p.propagations, values.__getitem__)
    assert t.shape == (12, block.fan_in)
    q = randn(12, block.fan_in, seed=9)
    total = 1.0 if side_by_side else block.total_scale
    shares = scatter(block, 3, p.propagations, q)
    back = sum(float((share * values[source]).sum()) for source, share in shares) * total**2
    assert back == pytest.approx(float((t * q).sum()), rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_spread_bounds_the_shift_of_a_term(seed: int, directed: bool) -> None:
    """A term of convex factors moves, in the weights of T, by no more than its sources in theirs."""
    p = problem(directed)
    base = term(seed)
    scale = 0.7 if base.initial is not None else 1.0
    one = Term(**{**vars(base), "scale": scale})
    block = Block(propagate="terms", terms=(one,), in_channels=one.width, out_channels=4)
    mass = randn(12, 1, seed=seed).squeeze(1).abs()
    values = {source: randn(12, columns, seed=source) for source, columns in WIDTHS.items()}
    moved = float(mass @ gather(block, 3, p.propagations, values.__getitem__).square().sum(1))
    shares = spread(block, 3, p.propagations, mass)
    assert moved <= sum(float(share @ values[s].square().sum(1)) for s, share in shares) * (1 + 1e-9)


def problem(directed: bool) -> Problem:
    graph = random_graph(3, nodes=12, directed=directed, weighted=True)
    return prepare(branched(graph), graph, dtype=torch.float64)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "sgc", "sign"])
@pytest.mark.parametrize("sparse", [False, True])
def test_chains_are_the_same_with_sources_named(family: str, sparse: bool) -> None:
    graph = random_graph(1, directed=True, weighted=True)
    assert graph.x is not None
    if sparse:
        graph = graph.replace(x=(graph.x * (graph.x.abs() > 0.7)).to_sparse_csr())
    chain = build_model(ModelConfig(family=family, layers=3, hidden=5), graph)
    named = with_terms(chain)
    assert is_chain(chain.blocks)
    assert not is_chain(named.blocks)
    for index, (block, other) in enumerate(zip(chain.blocks, named.blocks, strict=True)):
        assert sources(block, index) == sources(other, index)
        assert is_input(chain.blocks, index) == is_input(named.blocks, index) == (index == 0)
    weights = initial_weights(chain, torch.Generator().manual_seed(0), torch.float64)
    scores = [forward(prepare(model, graph, dtype=torch.float64), weights) for model in (chain, named)]
    torch.testing.assert_close(*scores)


def dense_branched(p: Problem, w: dict[str, Tensor]) -> Tensor:
    """What :func:`networks.branched` says, written out."""
    s, r = (matrix.matrix.to_dense() for matrix in p.propagations)  # type: ignore[attr-defined]
    assert p.features is not None
    x = p.features

    def linear(index: int, *parts: Tensor) -> Tensor:
        return torch.cat(parts, dim=1) @ w[f"block{index}.weight"] + w[f"block{index}.bias"]

    h0 = linear(0, s @ x).relu()
    h1 = torch.nn.functional.leaky_relu(linear(1, x, r @ r @ x), 0.2)
    h2 = linear(2, s @ h0, r @ h1).relu() + 0.5 * h0 + h1
    h3 = torch.nn.functional.batch_norm(h2, None, None, training=True, eps=1e-5).relu()
    h4 = linear(4, s @ h3).relu()
    h5 = (h2 + 2 * h0).relu()
    return linear(6, s @ h4, h5, x)


@pytest.mark.parametrize("directed", [False, True])
def test_a_branched_network_computes_what_it_says(directed: bool) -> None:
    p = problem(directed)
    weights = initial_weights(p.model, torch.Generator().manual_seed(0), torch.float64)
    fitted: dict[str, Tensor] = {}
    scores = forward(p, weights, fitted)
    torch.testing.assert_close(scores, dense_branched(p, weights))
    assert set(fitted) == {"block3.scale", "block3.shift"}
    torch.testing.assert_close(forward(p, weights | fitted), scores)


def test_a_branched_network_survives_json() -> None:
    model = problem(False).model
    assert model_from_dict(model.to_dict()) == model


def test_shares_of_what_is_added_come_back_as_one() -> None:
    """Sent down through all sources of one ancestor and up again, a shift is what it was."""
    block = Block(propagate="none", in_channels=4, out_channels=4, adds=((0, 0.5), (1, 1.5)), branch=2.0)
    own, others = add_shares(block)
    assert own + sum(share for _, share in others) == pytest.approx(
        1 / 4
    )  # a quarter, and up again four times that
    assert block.branch + sum(factor for _, factor in block.adds) == 4.0


def test_homogeneous_networks_can_be_rescaled() -> None:
    graph = random_graph(1)
    for family in ("gcn", "gcnii", "sage", "sign"):
        named = with_terms(build_model(ModelConfig(family=family, layers=3, hidden=5), graph))
        assert is_homogeneous(named.blocks)
        p = prepare(named, graph, dtype=torch.float64)
        weights = initial_weights(named, torch.Generator().manual_seed(0), torch.float64)
        weights = {name: w + 0.1 for name, w in weights.items()}
        torch.testing.assert_close(forward(p, rescaled(weights, 3.0, named.blocks)), forward(p, weights))
    assert not is_homogeneous(branched(graph).blocks)


def test_features_beside_other_sources_are_dense() -> None:
    p = problem(False)
    assert p.features is not None
    assert FEATURES in sources(p.model.blocks[-1], 6)
    assert set(p.block_inputs) == {0, 1}
