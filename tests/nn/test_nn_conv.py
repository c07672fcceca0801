"""Layers against PyTorch Geometric's: results, gradients, parameters, what is kept, what is copied."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from nn_cases import (
    FORMS,
    KINDS,
    LAYERS,
    NAMED,
    NODES,
    WIDTH,
    Layer,
    assert_alike,
    features,
    graph,
    in_form,
    mlp,
    weights,
)

import gfgnn.nn as ours
from gfgnn.nn import conv as module
from gfgnn.nn.product import product

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
every_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the products: a layer that fell back would agree with PyTorch Geometric for the wrong reason."""
    calls: list[int] = []

    def count(matrix: object, x: torch.Tensor) -> torch.Tensor:
        calls.append(x.size(1))
        return product(matrix, x)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "product", count)
    return calls


@every_layer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:Converting sparse tensor")
def test_equals_pyg(layer: Layer, kind: str, form: str, counted: list[int]) -> None:
    for dtype, tolerance in TOLERANCE.items():
        for weighted in (False, True) if layer.weighted or form in ("csr", "coo") else (False,):
            edges = graph(kind)
            mine, theirs = layer.pair(dtype)
            x = features(dtype).requires_grad_()
            given, weight = in_form(form, edges, weights(edges, dtype) if weighted else None, dtype)
            arguments = (*layer.inputs(x), given, *([weight] if weight is not None else []))
            assert_alike(mine, theirs, arguments, x, tolerance=tolerance)
    assert counted


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.weighted], ids=lambda layer: layer.name)
@pytest.mark.parametrize("kind", KINDS[:-1])
def test_gradient_of_the_edge_weights(layer: Layer, kind: str, counted: list[int]) -> None:
    edges = graph(kind)
    mine, theirs = layer.pair()
    x, weight = features(torch.float64).requires_grad_(), weights(edges, torch.float64).requires_grad_()
    for _ in range(2):
        assert_alike(mine, theirs, (*layer.inputs(x), edges, weight), x, weight, tolerance=1e-11)
    assert counted


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(LAYERS), st.sampled_from(KINDS), st.integers(0, 2**20), st.booleans())
def test_random_graphs_either_way(layer: Layer, kind: str, seed: int, backwards: bool) -> None:
    edges = graph(kind, seed)
    mine, theirs = layer.pair()
    for conv in (mine, theirs):
        conv.flow = "target_to_source" if backwards else "source_to_target"
    x = features(torch.float64, seed=seed).requires_grad_()
    assert_alike(mine, theirs, (*layer.inputs(x), edges), x, tolerance=1e-11)


@every_layer
def test_parameters_are_pygs(layer: Layer) -> None:
    mine, theirs = layer.pair()
    assert isinstance(mine, type(theirs))
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict(), strict=True)
    for conv in (mine, theirs):
        torch.manual_seed(7)
        conv.reset_parameters()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


@every_layer
def test_copies(layer: Layer) -> None:
    mine, _ = layer.pair()
    arguments = (*layer.inputs(features(torch.float64)), graph("plain"))
    result = mine(*arguments)
    for again in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert type(again) is type(mine)
        assert torch.equal(again(*arguments), result)


@pytest.mark.parametrize("name", ["GCN narrow", "SG narrow", "SAGE narrow"])
def test_the_narrower_side_is_multiplied(name: str, counted: list[int]) -> None:
    mine, _ = NAMED[name].pair()
    mine(features(torch.float64), graph("plain"))
    assert set(counted) == {3}


def test_gcn_counts_both_directions(counted: list[int]) -> None:
    """Features without a gradient are multiplied once, in the forward pass only."""
    conv, edges, x = ours.GCNConv(6, 4), graph("plain"), features(torch.float32)
    conv(x, edges)
    conv(x.requires_grad_(), edges)
    with torch.no_grad():
        conv(x.detach(), edges)
    assert counted == [6, 4, 4]


def test_lazy_sizes(counted: list[int]) -> None:
    x, edges = features(torch.float32), graph("plain")
    pairs = [
        (ours.GCNConv(-1, 3), pyg.GCNConv(-1, 3)),
        (ours.SAGEConv(-1, 3), pyg.SAGEConv(-1, 3)),
        (ours.SGConv(-1, 3), pyg.SGConv(-1, 3)),
    ]
    for mine, theirs in pairs:
        for conv in (mine, theirs):
            torch.manual_seed(1)
            conv(x, edges)
        assert_alike(mine, theirs, (x, edges), tolerance=2e-6)
    assert len(counted) == 6


@pytest.mark.filterwarnings("ignore:Converting sparse tensor")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["GCNConv", "GCN2Conv", "SGConv"])
def test_cached_keeps_the_first_graph(name: str, form: str) -> None:
    def build(nn: object) -> torch.nn.Module:
        arguments = (WIDTH, 0.1) if name == "GCN2Conv" else (WIDTH, 3)
        return getattr(nn, name)(*arguments, cached=True)

    layer = Layer(name.replace("Conv", ""), build)
    mine, theirs = layer.pair()
    x = features(torch.float64)
    first, second = (in_form(form, graph("plain", seed), None, torch.float64)[0] for seed in (0, 9))
    for edges in (first, second):
        assert_alike(mine, theirs, (*layer.inputs(x), edges), tolerance=1e-12)
    kept = mine(*layer.inputs(x), second)
    torch.testing.assert_close(kept, mine(*layer.inputs(x), first))
    mine.reset_parameters()
    mine.load_state_dict(theirs.state_dict())
    assert not torch.allclose(mine(*layer.inputs(x), second), kept)


def test_sparse_features_of_the_first_layer(counted: list[int]) -> None:
    mine, theirs = NAMED["GCN wide"].pair()
    x = features(torch.float64) * (features(torch.float64) > 0.5)
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        assert_alike(mine, theirs, (sparse, graph("plain")), tolerance=1e-12)
    assert len(counted) == 2


@pytest.mark.parametrize(("name", "targets"), [("SAGE", NODES), ("SAGE", 9), ("GIN", 9), ("GIN", NODES)])
def test_sources_and_targets(name: str, targets: int, counted: list[int]) -> None:
    edges = graph("plain")
    edges = edges[:, edges[1] < targets]
    layer = Layer(name, lambda nn: nn.GINConv(mlp()) if name == "GIN" else nn.SAGEConv((WIDTH, WIDTH), 3))
    mine, theirs = layer.pair()
    x, y = (
        features(torch.float64).requires_grad_(),
        features(torch.float64, seed=8)[:targets].requires_grad_(),
    )
    assert_alike(mine, theirs, ((x, y), edges), x, y, tolerance=1e-12)
    assert_alike(mine, theirs, ((x, y), edges, (NODES, targets)), x, y, tolerance=1e-12)
    assert len(counted) == 2


def test_second_derivatives() -> None:
    mine, theirs = NAMED["GCN narrow"].pair()
    edges, found = graph("plain"), []
    for conv in (mine, theirs):
        x = features(torch.float64).requires_grad_()
        (slope,) = torch.autograd.grad(conv(x, edges).pow(3).sum(), x, create_graph=True)
        slope.square().sum().backward()
        found += [x.grad, conv.lin.weight.grad]
    torch.testing.assert_close(found[:2], found[2:], rtol=1e-11, atol=1e-11)
