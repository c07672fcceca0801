"""Models: PyTorch Geometric's results and parameters, GCNII and SIGN against their definitions, torch.fx, training."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from nn_cases import FORMS, NODES, WIDTH, assert_alike, features, graph, in_form, weights
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import SIGN as HopsOfPyg

import gfgnn.nn as ours
from gfgnn.checks import InputError
from gfgnn.nn import sign

NAMES = ["GCN", "GraphSAGE", "GIN"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"act": "elu", "norm": "BatchNorm", "act_first": True},
    {"jk": "cat"},
    {"out_channels": None, "norm": "layer_norm"},
]


def both(
    name: str, dtype: torch.dtype = torch.float64, **options: Any
) -> tuple[torch.nn.Module, torch.nn.Module]:
    options = {"out_channels": 3, **options}
    models = []
    for nn in (ours, pyg):
        torch.manual_seed(0)
        models.append(getattr(nn, name)(WIDTH, 8, 3, **options).to(dtype))
    return models[0], models[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_models_are_pygs(name: str, options: dict[str, Any]) -> None:
    mine, theirs = both(name, **options)
    assert repr(mine) == repr(theirs)
    for conv in mine.convs:
        assert type(conv).__module__ == "gfgnn.nn.conv"
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), "the same seed gives the same parameters"
    mine.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(mine.state_dict(), strict=True)
    x, edges = features(torch.float64).requires_grad_(), graph("duplicates")
    assert_alike(mine, theirs, (x, edges), x, tolerance=1e-11)
    for model in (mine, theirs):
        torch.manual_seed(4)
        model.reset_parameters()
    assert_alike(mine, theirs, (x, edges), x, tolerance=1e-11)


def test_edge_weights_and_forms_of_graphs() -> None:
    mine, theirs = both("GCN")
    x, edges = features(torch.float64), graph("plain")
    weight = weights(edges, torch.float64).requires_grad_()
    assert_alike(mine, theirs, (x, edges, weight), weight, tolerance=1e-11)
    for form in FORMS:
        given, value = in_form(form, edges, weight.detach(), torch.float64)
        torch.testing.assert_close(mine(x, given, value), theirs(x, edges, weight.detach()))


def gcnii_by_hand(model: ours.GCNII, x: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    """PyTorch Geometric's layers in a row, as in its example."""
    x = x_0 = model.lins[0](x).relu()
    for number, conv in enumerate(model.convs):
        shared = conv.weight2 is None
        theirs = pyg.GCN2Conv(model.hidden_channels, 0.2, 0.7, number + 1, shared_weights=shared).to(x.dtype)
        theirs.load_state_dict(conv.state_dict())
        x = theirs(x, x_0, edges, weight).relu()
    return model.lins[1](x)


@pytest.mark.parametrize("shared", [True, False])
def test_gcnii(shared: bool) -> None:
    model = (
        ours.GCNII(WIDTH, 8, 4, 3, alpha=0.2, theta=0.7, shared_weights=shared, dropout=0.5).double().eval()
    )
    x, edges = features(torch.float64), graph("loops")
    for weight in (None, weights(edges, torch.float64)):
        torch.testing.assert_close(model(x, edges, weight), gcnii_by_hand(model, x, edges, weight))
    keys = {key.split(".")[0] for key in model.state_dict()}
    assert keys == {"lins", "convs"}
    assert repr(model) == f"GCNII({WIDTH}, 8, num_layers=4, out_channels=3)"
    assert not torch.equal(model.train()(x, edges), model.eval()(x, edges))


def test_gcnii_options() -> None:
    x, edges = features(torch.float32), graph("plain")
    model = ours.GCNII(-1, 8, 2, act="elu", norm="batch_norm", cached=True, add_self_loops=False)
    assert model(x, edges).shape == (NODES, 8)
    assert model.convs[0].cached
    assert not model.convs[0].add_self_loops
    before = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    assert not torch.equal(before["convs.0.weight1"], model.state_dict()["convs.0.weight1"])
    for wrong in (
        {"num_layers": 0},
        {"alpha": 1.5},
        {"dropout": -0.1},
        {"theta": -1.0},
        {"hidden_channels": 0},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ours.GCNII(**{"in_channels": 4, "hidden_channels": 8, "num_layers": 2, **wrong})


@pytest.mark.parametrize("kind", ["plain", "loops", "duplicates", "undirected"])
@pytest.mark.parametrize("weighted", [False, True])
def test_hops_are_pygs(kind: str, weighted: bool) -> None:
    edges, x = graph(kind), features(torch.float32)
    weight = weights(edges, torch.float32) if weighted else None
    data = HopsOfPyg(3)(Data(x=x, edge_index=edges, edge_weight=weight, num_nodes=NODES))
    hops = ours.Hops(3)(x, edges, weight)
    assert hops[0] is x
    for k in (1, 2, 3):
        torch.testing.assert_close(hops[k], data[f"x{k}"], rtol=1e-5, atol=1e-6)


def test_sign() -> None:
    torch.manual_seed(0)
    model = ours.SIGN(WIDTH, 8, 3, num_hops=2).double().eval()
    x, edges = features(torch.float64).requires_grad_(), graph("plain")
    xs = ours.Hops(2)(x, edges)
    by_hand = model.lin(torch.cat([F.relu(lin(h)) for lin, h in zip(model.lins, xs, strict=True)], dim=-1))
    torch.testing.assert_close(model(x, edges), by_hand)
    assert {key.split(".")[0] for key in model.state_dict()} == {"lins", "lin"}
    assert repr(model) == f"SIGN({WIDTH}, 8, 3, num_hops=2)"
    (slope,) = torch.autograd.grad(model(x, edges).sum(), x)
    assert slope.shape == x.shape
    torch.manual_seed(3)
    model.reset_parameters()
    assert not torch.equal(model(x, edges), by_hand)
    assert ours.SIGN(-1, 8, 3, num_hops=0)(features(torch.float32), edges).shape == (NODES, 3)
    for wrong in ({"num_hops": -1}, {"hidden_channels": 0}, {"dropout": 2.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ours.SIGN(**{"in_channels": 4, "hidden_channels": 8, "out_channels": 2, "num_hops": 2, **wrong})


def test_hops_are_kept_and_never_stale() -> None:
    x, edges = features(torch.float64), graph("plain")
    weight = weights(edges, torch.float64)
    hops = ours.Hops(2)

    def check(x: Tensor) -> None:
        fresh = hops(x.clone(), edges.clone(), weight.clone())
        for kept, new in zip(hops(x, edges, weight), fresh, strict=True):
            assert torch.equal(kept, new)

    assert hops(x, edges, weight)[2] is hops(x, edges, weight)[2]
    check(x)
    x.mul_(2.0)
    check(x)
    edges[0, 0] = 11
    check(x)
    weight[0] = 9.0
    check(x)
    hops(x, edges, weight)[1].zero_()  # whoever was given the hops may spoil them
    check(x)
    sign._hops.clear()
    hops(x, edges, weight)
    del x
    gc.collect()
    assert len(sign._hops) == 0
    with torch.inference_mode():
        made = features(torch.float64)
        first = hops(made, edges)[1]
        made.mul_(2.0)
        torch.testing.assert_close(hops(made, edges)[1], 2.0 * first)


def test_hops_of_bad_input() -> None:
    x, edges = features(torch.float32), graph("plain")
    for wrong in (
        (x.to_sparse(), edges),
        (x[0], edges),
        (x.half(), edges),
        (x, edges + NODES),
        (x, edges, x),
    ):
        with pytest.raises(InputError):
            ours.Hops(2)(*wrong)


class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        leaf = isinstance(module, pyg.MessagePassing | ours.Hops | ours.Linear)
        return leaf or super().is_leaf_module(module, name)


@pytest.mark.parametrize(
    "model",
    [
        ours.GCN(WIDTH, 8, 3, 2, dropout=0.5),
        ours.GraphSAGE(WIDTH, 8, 2, 2, norm="BatchNorm"),
        ours.GIN(WIDTH, 8, 2, 2, jk="cat"),
        ours.GCNII(WIDTH, 8, 3, 2, dropout=0.5),
        ours.SIGN(WIDTH, 8, 2, 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_traced_by_fx(model: torch.nn.Module) -> None:
    names = model.forward.__code__.co_varnames[1 : model.forward.__code__.co_argcount]
    fixed = {name: None for name in names if name not in ("x", "edge_index")}
    traced = torch.fx.GraphModule(model, Tracer().trace(model.eval(), concrete_args=fixed))
    x, edges = features(torch.float32), graph("plain")
    torch.testing.assert_close(traced(x, edges, *fixed.values()), model(x, edges))


@pytest.mark.parametrize("name", [*NAMES, "GCNII", "SIGN"])
def test_trains(name: str) -> None:
    torch.manual_seed(0)
    arguments = (WIDTH, 16, 3, 2) if name == "SIGN" else (WIDTH, 16, 2, 3)
    model = getattr(ours, name)(*arguments)
    x, edges, y = features(torch.float32), graph("undirected"), torch.arange(NODES) % 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    again = pickle.loads(pickle.dumps(model.eval()))
    assert torch.equal(again(x, edges), model(x, edges))


def test_inside_pygs_sequential() -> None:
    results = []
    for nn in (ours, pyg):
        torch.manual_seed(0)
        layers = [
            (nn.GCNConv(WIDTH, 8), "x, edge_index -> x"),
            torch.nn.ReLU(inplace=True),
            (nn.SAGEConv(8, 8), "x, edge_index -> x"),
            (nn.GINConv(torch.nn.Linear(8, 4)), "x, edge_index -> x"),
            (nn.SGConv(4, 2), "x, edge_index -> x"),
        ]
        results.append(pyg.Sequential("x, edge_index", layers)(features(torch.float32), graph("plain")))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_importing_gfgnn_does_not_import_the_layers() -> None:
    code = "import sys, gfgnn; print('gfgnn.nn' in sys.modules, 'torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False"]
    assert all(hasattr(ours, name) for name in ours.__all__)
