"""What the product cannot do gives PyTorch Geometric's results, and its errors."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from nn_cases import LAYERS, NAMED, NODES, WIDTH, Layer, assert_alike, features, graph, in_form, weights
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.explain.algorithm.utils import set_masks

import gfgnn.nn as ours
from gfgnn.nn import conv as module

Build = Callable[[Any], torch.nn.Module]


@pytest.fixture
def no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("this case is meant to fall back")

    monkeypatch.setattr(module, "product", refuse)


def built(build: Build) -> tuple[torch.nn.Module, torch.nn.Module]:
    return Layer("", build).pair()


@pytest.mark.usefixtures("no_product")
@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.SAGEConv(WIDTH, 3, aggr="max"),
        lambda nn: nn.SAGEConv(WIDTH, 3, aggr=["mean", "max"]),
        lambda nn: nn.SAGEConv(WIDTH, 3, aggr="lstm"),
        lambda nn: nn.GCNConv(WIDTH, 3, aggr="mean"),
        lambda nn: nn.GCNConv(WIDTH, 3, decomposed_layers=2),
        lambda nn: nn.GCNConv(WIDTH, 3, node_dim=0),
    ],
)
def test_ways_of_aggregation(build: Build) -> None:
    mine, theirs = built(build)
    x, edges = features(torch.float64).requires_grad_(), graph("loops")
    edges = edges[:, edges[1].sort(stable=True).indices]  # as the lstm wants
    assert_alike(mine, theirs, (x, edges), x, tolerance=1e-12)


@pytest.mark.usefixtures("no_product")
def test_hooks_explanations_and_subclasses() -> None:
    x, edges = features(torch.float64), graph("plain")
    mine, theirs = NAMED["GCN narrow"].pair()
    handles = [
        conv.register_message_forward_hook(lambda _conv, _inputs, out: out * 2.0) for conv in (mine, theirs)
    ]
    assert_alike(mine, theirs, (x, edges), tolerance=1e-12)
    for handle in handles:
        handle.remove()
    for conv in (mine, theirs):
        conv.explain = True
        conv._edge_mask = torch.linspace(-1, 1, edges.size(1), dtype=torch.float64)
        conv._loop_mask = edges[0] != edges[1]
    assert_alike(mine, theirs, (x, edges), tolerance=1e-12)

    class Doubled(ours.GCNConv):
        def message(self, x_j: Tensor, edge_weight: Tensor | None) -> Tensor:
            return 2.0 * super().message(x_j, edge_weight)

    doubled = Doubled(WIDTH, 3).double()
    doubled.load_state_dict(theirs.state_dict())
    theirs.explain = False
    torch.testing.assert_close(doubled(x, edges) - doubled.bias, 2.0 * (theirs(x, edges) - theirs.bias))


@pytest.mark.parametrize("name", ["GCNConv", "GCN2Conv", "SGConv", "SAGEConv", "GINConv"])
def test_masks_of_an_explanation_count_whatever_was_made_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"GINConv": (torch.nn.Linear(WIDTH, 3),), "GCN2Conv": (WIDTH, 0.1)}.get(name, (WIDTH, 3))
    getattr(pyg, name)(*arguments)  # PyTorch Geometric compiles a class when it is first used
    spec = importlib.util.spec_from_file_location("gfgnn.nn.fresh", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, fresh.__name__, fresh)
    spec.loader.exec_module(fresh)
    conv = getattr(fresh, name)(*arguments)
    x, edges = features(torch.float32), graph("plain")
    mask = torch.nn.Parameter(torch.rand(edges.size(1)))
    set_masks(conv, mask, edges)
    out = conv(x, x, edges) if name == "GCN2Conv" else conv(x, edges)
    (gradient,) = torch.autograd.grad(out.square().sum(), mask)
    assert bool((gradient != 0).any())


def test_after_an_explanation_the_product_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = NAMED["GCN narrow"].pair()
    mine.explain = True
    mine.explain = None
    calls: list[int] = []
    product = module.product
    monkeypatch.setattr(module, "product", lambda matrix, x: calls.append(1) or product(matrix, x))
    assert_alike(mine, theirs, (features(torch.float64), graph("plain")), tolerance=1e-12)
    assert calls


@pytest.mark.usefixtures("no_product")
def test_numbers_and_shapes() -> None:
    edges = graph("plain")
    mine, theirs = NAMED["GCN narrow"].pair(torch.bfloat16)
    x = features(torch.bfloat16)
    assert torch.equal(mine(x, edges), theirs(x, edges))
    mine, theirs = NAMED["GCN narrow"].pair(torch.float32)
    for weight in (weights(edges, torch.float64), weights(edges, torch.float32)[:, None][:, 0].double()):
        assert torch.equal(
            mine(features(torch.float32), edges, weight), theirs(features(torch.float32), edges, weight)
        )
    batch = torch.stack([features(torch.float32), features(torch.float32, seed=4)])
    assert torch.equal(mine(batch, edges), theirs(batch, edges))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mine(features(torch.float32), edges), theirs(features(torch.float32), edges))


@pytest.mark.usefixtures("no_product")
def test_graphs_left_to_pyg() -> None:
    edges, x = graph("plain"), features(torch.float64)
    adj_t, _ = in_form("csr", edges, None, torch.float64)
    mine, theirs = NAMED["GCN without normalisation"].pair()
    learnt = adj_t.detach().clone().requires_grad_()
    assert_alike(mine, theirs, (x, learnt), tolerance=1e-12)
    mine, theirs = NAMED["SAGE wide"].pair()
    value = torch.rand(edges.size(1) + 7, dtype=torch.float64)
    doubled = torch.cat([edges, edges[:, :7]], 1).flip(0)
    with pytest.warns(UserWarning, match="Converting sparse tensor"):
        assert_alike(
            mine, theirs,
            (x, torch.sparse_coo_tensor(doubled, value, (NODES, NODES), check_invariants=False)),
            tolerance=1e-12,
        )  # fmt: skip
    mine, theirs = built(lambda nn: nn.SAGEConv((WIDTH, WIDTH), 3, root_weight=False))
    assert_alike(mine, theirs, ((x, None), edges), tolerance=1e-12)


@pytest.mark.usefixtures("no_product")
@pytest.mark.parametrize(
    "arguments",
    [
        (features(torch.float64), torch.tensor([[0, NODES], [1, 2]])),
        (features(torch.float64), torch.tensor([[0, -1], [1, 2]])),
        (features(torch.float64), torch.tensor([[0, 1], [1, NODES]])),
        (features(torch.float64), torch.tensor([[0.0, 1.0], [1.0, 2.0]])),
        (features(torch.float64), torch.tensor([[0, 1, 2]])),
        (features(torch.float64), graph("plain"), torch.ones(3, dtype=torch.float64)),
        ((features(torch.float64), features(torch.float64)), graph("plain")),
        (features(torch.float64), EdgeIndex(graph("plain"), sparse_size=(NODES + 1, NODES + 1))),
        (features(torch.float64), torch.eye(NODES + 1, dtype=torch.float64).to_sparse_csr()),
        (features(torch.float64), torch.eye(NODES, dtype=torch.float64).to_sparse_csc()),
        (features(torch.float64), "graph"),
        (features(torch.float64).to("meta"), graph("plain")),
    ],
    ids=range(12),
)
def test_errors_are_pygs(arguments: tuple[Any, ...]) -> None:
    mine, theirs = NAMED["GCN narrow"].pair()
    with pytest.raises(Exception) as wanted:  # noqa: PT011 - whatever it is, ours must be the same
        theirs(*arguments)
    with pytest.raises(type(wanted.value)) as found:
        mine(*arguments)
    assert str(found.value) == str(wanted.value)


@pytest.mark.usefixtures("no_product")
def test_sizes_that_contradict_the_features() -> None:
    for name in ("SAGE wide", "GIN"):
        found = []
        for conv in NAMED[name].pair():
            with pytest.raises(ValueError, match="expected size") as error:
                conv(features(torch.float64), graph("plain"), (NODES + 1, NODES))
            found.append(str(error.value))
        assert found[0] == found[1]


def test_wrong_width_is_an_error() -> None:
    for layer in LAYERS:
        mine, theirs = layer.pair()
        x = features(torch.float64, width=WIDTH + 1)
        for conv in (mine, theirs):
            with pytest.raises(RuntimeError):
                conv(*layer.inputs(x), graph("plain"))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript() -> None:
    x, edges = features(torch.float64), graph("loops")
    for layer in (NAMED["GCN narrow"], NAMED["GCN2"], NAMED["SG narrow"], NAMED["SAGE narrow"], NAMED["GIN"]):
        mine, theirs = layer.pair()
        arguments = (*layer.inputs(x), edges)
        torch.testing.assert_close(torch.jit.script(mine)(*arguments), theirs(*arguments))
    traced = torch.jit.trace(NAMED["GCN narrow"].pair()[0], (x, edges))
    other = graph("plain", 5)
    torch.testing.assert_close(traced(x, other), NAMED["GCN narrow"].pair()[1](x, other))


def test_torch_func() -> None:
    mine, theirs = NAMED["GCN narrow"].pair()
    x, edges = features(torch.float64), graph("plain")
    weight = weights(edges, torch.float64)
    slopes = [
        torch.func.grad(lambda x, w, conv=conv: conv(x, edges, w).square().sum(), (0, 1))(x, weight)
        for conv in (mine, theirs)
    ]
    torch.testing.assert_close(*slopes)
    batch = torch.stack([x, x.flip(0)])
    many = [torch.func.vmap(lambda x, conv=conv: conv(x, edges))(batch) for conv in (mine, theirs)]
    torch.testing.assert_close(*many)


def test_pyg_is_used_at_all() -> None:
    """The layers compared with are PyTorch Geometric's, not ours under its names."""
    assert ours.Linear is pyg.Linear
    for name in ("GCNConv", "GCN2Conv", "SGConv", "SAGEConv", "GINConv"):
        theirs = getattr(pyg, name)
        assert getattr(ours, name) is not theirs
        assert theirs.__module__.startswith("torch_geometric.")
