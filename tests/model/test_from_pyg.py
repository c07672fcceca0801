"""Modules of PyG as blocks: every layer and model computes the same, before and after weights were written back."""

from __future__ import annotations

import math
import sys
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pyg_modules import (
    CLASSES,
    FEATURES,
    RELATIONS,
    arguments,
    check,
    close,
    evaluated,
    multigraph,
    new_weights,
    randomised,
    scores,
)  # fmt: skip
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn.models import GCN, GIN, MLP, GraphSAGE
from torch_geometric.transforms import GCNNorm

from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator
from gfgnn.model.from_pyg import from_pyg
from gfgnn.model.wiring import is_chain


class Layered(nn.Module):
    """A layer, relu, and a Linear."""

    def __init__(self, layer: nn.Module, width: int = 6) -> None:
        super().__init__()
        self.layer = layer
        self.lin = nn.Linear(width, CLASSES)


class Weighted(Layered):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.lin(self.layer(x, edge_index, edge_weight).relu())


class Unweighted(Layered):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(F.relu(self.layer(x, edge_index)))


class Related(Layered):
    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.lin(torch.relu(self.layer(x, edge_index, edge_type)))


WEIGHTED = {
    "gcn": lambda: pyg.GCNConv(FEATURES, 6),
    "gcn improved": lambda: pyg.GCNConv(FEATURES, 6, improved=True),
    "gcn without loops": lambda: pyg.GCNConv(FEATURES, 6, add_self_loops=False, bias=False),
    "gcn as given": lambda: pyg.GCNConv(FEATURES, 6, normalize=False),
    "gcn cached": lambda: pyg.GCNConv(FEATURES, 6, cached=True),
    "gcn lazy": lambda: pyg.GCNConv(-1, 6),
    "sgc": lambda: pyg.SGConv(FEATURES, 6, K=3),
    "sgc without loops": lambda: pyg.SGConv(FEATURES, 6, K=2, add_self_loops=False, bias=False),
    "graph": lambda: pyg.GraphConv(FEATURES, 6),
    "graph without bias": lambda: pyg.GraphConv(FEATURES, 6, bias=False),
}
UNWEIGHTED = {
    "gcn": lambda: pyg.GCNConv(FEATURES, 6, improved=True),
    "sage": lambda: pyg.SAGEConv(FEATURES, 6),
    "sage sum": lambda: pyg.SAGEConv(FEATURES, 6, aggr="sum"),
    "sage without root": lambda: pyg.SAGEConv(FEATURES, 6, root_weight=False, bias=False),
    "sage project": lambda: pyg.SAGEConv(FEATURES, 6, project=True),
    "sage aggregation": lambda: pyg.SAGEConv(FEATURES, 6, aggr=pyg.aggr.SumAggregation()),
    "sage lazy": lambda: pyg.SAGEConv(-1, 6),
    "graph mean": lambda: pyg.GraphConv(FEATURES, 6, aggr="mean"),
    "gin": lambda: pyg.GINConv(nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(), nn.Linear(7, 6)), eps=0.3),
    "gin of batch norm first": lambda: pyg.GINConv(
        nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 6))
    ),
    "gin train_eps": lambda: pyg.GINConv(MLP([FEATURES, 7, 6]), eps=-1.0, train_eps=True),
}
RELATED = {
    "rgcn": lambda: pyg.RGCNConv(FEATURES, 6, RELATIONS),
    "rgcn sum": lambda: pyg.RGCNConv(FEATURES, 6, RELATIONS, aggr="sum", bias=False),
    "rgcn without root": lambda: pyg.RGCNConv(FEATURES, 6, RELATIONS + 1, root_weight=False),
    "fast rgcn": lambda: pyg.FastRGCNConv(FEATURES, 6, RELATIONS),
    "fast rgcn sum": lambda: pyg.FastRGCNConv(FEATURES, 6, RELATIONS, aggr="add"),
}


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", WEIGHTED)
def test_layers_with_edge_weights(name: str, weighted: bool) -> None:
    graph = multigraph(weighted=weighted)
    if "lazy" in name:  # the first call gives it its size
        from_pyg(module := Weighted(WEIGHTED[name]()), graph)
    else:
        module = Weighted(WEIGHTED[name]())
    check(module, graph, *arguments(graph, "x", "edge_index", "edge_weight"))


@pytest.mark.parametrize("name", UNWEIGHTED)
def test_layers_without_edge_weights(name: str) -> None:
    graph, module = multigraph(), Unweighted(UNWEIGHTED[name]())
    from_pyg(module, graph)
    model = check(module, graph, *arguments(graph, "x", "edge_index"))
    assert any("edge weights of multigraph are not used" in note for note in model.notes)
    assert any("eps keeps" in note for note in model.notes) == (name == "gin train_eps")


@pytest.mark.parametrize("name", RELATED)
def test_layers_of_relations(name: str) -> None:
    graph = multigraph()
    model = check(Related(RELATED[name]()), graph, *arguments(graph, "x", "edge_index", "edge_type"))
    assert [operator.relation for operator in model.operators] == list(range(len(model.operators)))


def test_relations_of_a_graph_without_any() -> None:
    graph = multigraph(typed=False)
    kind = torch.zeros(graph.raw.num_edges, dtype=torch.int64) if graph.raw else None
    module = Related(pyg.RGCNConv(FEATURES, 6, 2))
    check(module, graph, *arguments(graph, "x", "edge_index"), kind)


def test_hetero_data() -> None:
    data, generator = HeteroData(), torch.Generator().manual_seed(0)
    for kind, count in (("paper", 6), ("author", 4)):
        data[kind].x = torch.randn(count, FEATURES, generator=generator)
    data["paper"].y = torch.arange(6) % CLASSES
    for relation in (("paper", "cites", "paper"), ("author", "writes", "paper")):
        data[relation].edge_index = torch.randint(4, (2, 9), generator=generator)
    module = randomised(Related(pyg.RGCNConv(FEATURES, 6, 2)), dtype=torch.float32)
    whole = data.to_homogeneous()
    model = from_pyg(module, data)
    out = evaluated(module, whole.x, whole.edge_index, whole.edge_type)
    close(scores(model, model.weights(), torch.float32), out, 1e-5)


def test_deep_networks() -> None:
    graph, layers = multigraph(), 300
    module = GCNII(layers=layers)
    model = from_pyg(module, graph)
    assert len(model.blocks) == layers + 2
    model.write(model.weights())


MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"dropout": 0.5},
    "batch norm": {"norm": "batch_norm"},
    "act first": {"norm": "batch_norm", "act_first": True},
    "jk last": {"jk": "last", "norm": "batch_norm"},
    "jk cat": {"jk": "cat"},
    "leaky": {"act": "leaky_relu", "act_kwargs": {"negative_slope": 0.3}},
    "no act": {"act": None},
    "no affine": {"norm": "batch_norm", "norm_kwargs": {"affine": False}},
    "no affine, act first": {"norm": "batch_norm", "norm_kwargs": {"affine": False}, "act_first": True},
    "no tracking": {"norm": "batch_norm", "norm_kwargs": {"track_running_stats": False}},
    "no tracking, act first": {
        "norm": "batch_norm", "norm_kwargs": {"track_running_stats": False}, "act_first": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GIN])
def test_models(kind: type[nn.Module], options: dict[str, Any]) -> None:
    graph = multigraph(weighted=kind is GCN)
    module = kind(FEATURES, 6, 3, CLASSES, **options)  # type: ignore[call-arg]
    names = ("x", "edge_index", "edge_weight") if kind is GCN else ("x", "edge_index")
    model = check(module, graph, *arguments(graph, *names))
    assert model.config.family == "custom"
    assert model.config.layers == 3
    assert is_chain(model.blocks) == (not options.get("act_first") and options.get("jk") != "cat")


@pytest.mark.parametrize(
    "options", [{}, {"norm": None}, {"act_first": True}, {"plain_last": True, "bias": False}]
)
def test_mlp(options: dict[str, Any]) -> None:
    graph = multigraph()
    model = check(MLP([FEATURES, 7, 6, CLASSES], dropout=0.2, **options), graph, *arguments(graph, "x"))
    assert model.config.layers == 0
    assert model.operators == (Operator(norm="none", loops=0.0, raw=True),)


def test_sequentials_of_pyg_do_not_disturb_each_other() -> None:
    """PyG puts the forward of the last one made on the class."""
    layers = [(pyg.GCNConv(FEATURES, 6), "x, edge_index -> h"), nn.ReLU(inplace=True)]
    joined = (lambda a, b: torch.cat([a, b], dim=-1), "x, h -> h")
    first = pyg.Sequential("x, edge_index", [*layers, joined, (nn.Linear(FEATURES + 6, CLASSES), "h -> h")])
    inner = pyg.Sequential("a, b", [(pyg.SAGEConv(CLASSES, 6), "a, b -> a"), nn.LeakyReLU(0.2)])
    steps = [(first, "x, edge_index -> x"), (inner, "x, edge_index -> x"), nn.Linear(6, CLASSES)]
    other = pyg.Sequential("x, edge_index", steps)
    graph = multigraph()
    check(first, graph, *arguments(graph, "x", "edge_index"))
    check(other, graph, *arguments(graph, "x", "edge_index"))


class GCNII(nn.Module):
    """PyG's examples/gcn2_cora.py."""

    def __init__(self, hidden: int = 6, layers: int = 4, alpha: float = 0.1, shared: bool = True) -> None:
        super().__init__()
        self.lins = nn.ModuleList([pyg.Linear(FEATURES, hidden), pyg.Linear(hidden, CLASSES)])
        self.convs = nn.ModuleList(
            pyg.GCN2Conv(hidden, alpha, 0.5, layer + 1, shared_weights=shared, normalize=False)
            for layer in range(layers)
        )
        self.dropout = 0.6

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, training=self.training)
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = F.dropout(x, self.dropout, training=self.training)
            x = conv(x, x_0, adj_t)
            x = x.relu()
        x = F.dropout(x, self.dropout, training=self.training)
        return self.lins[1](x).log_softmax(dim=-1)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shared", [True, False])
def test_gcnii(alpha: float, shared: bool) -> None:
    graph = multigraph(weighted=False)
    module = randomised(GCNII(alpha=alpha, shared=shared))
    model = from_pyg(module, graph)
    x, edge_index = arguments(graph, "x", "edge_index")
    close(scores(model, model.weights()).log_softmax(1), evaluated(module, x, edge_index))
    if alpha == 0.1:
        assert is_chain(model.blocks) == shared
    if alpha < 1.0 and shared:
        betas = [math.log(0.5 / layer + 1) for layer in range(1, 5)]
        assert [block.beta for block in model.blocks] == [None, *betas, None]
    wanted = new_weights(model)
    model.write(wanted)
    close(evaluated(module, x, edge_index), scores(model, wanted).log_softmax(1))
    assert any("log_softmax" in note for note in model.notes)


def test_a_second_argument_of_any_name_is_the_edges() -> None:
    def module(name: str) -> nn.Module:
        steps = [(pyg.GCNConv(FEATURES, 6), f"h, {name} -> h"), nn.ReLU(), nn.Linear(6, CLASSES)]
        return pyg.Sequential(f"h, {name}", steps)

    graph = multigraph(weighted=False, typed=False)
    check(module("ei"), graph, *arguments(graph, "x", "edge_index"))
    assert from_pyg(module("adj"), graph).call.has("adj_t")


def test_edges_normalised_beforehand_are_known_as_such() -> None:
    """As in PyG's examples, ``transforms.GCNNorm`` and ``normalize=False``: nothing grows with the degree there."""
    plain = multigraph(weighted=False, typed=False).to_pyg()
    data = GCNNorm()(plain)

    def operators(data: Data) -> tuple[Operator, ...]:
        return from_pyg(Weighted(pyg.GCNConv(FEATURES, 6, normalize=False)), data).operators

    assert [operator.norm for operator in operators(data)] == ["given"]
    data.edge_weight = 2.0 * data.edge_weight
    assert [operator.norm for operator in operators(data)] == ["none"]
    assert [operator.norm for operator in operators(plain)] == ["none"]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("loops", [True, False])
def test_adj_t(weighted: bool, loops: bool) -> None:
    """A sparse matrix has repeated edges summed, and the loops of GCN added to its diagonal."""
    graph = multigraph(weighted=weighted, typed=False, loops=loops)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gcn, self.gin = pyg.GCNConv(FEATURES, 6, improved=True), pyg.GINConv(nn.Linear(6, 6))
            self.sage, self.lin = pyg.SAGEConv(6, 6, aggr="add"), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
            return self.lin(self.sage(self.gin(self.gcn(x, adj_t).relu(), adj_t).relu(), adj_t).relu())

    x, edge_index, weight = arguments(graph, "x", "edge_index", "edge_weight")
    value = torch.ones(edge_index.size(1), dtype=torch.float64) if weight is None else weight
    adj = (
        torch.sparse_coo_tensor(edge_index.flip(0), value, (graph.num_nodes,) * 2, check_invariants=True)
        .coalesce()
        .to_sparse_csr()
    )
    check(Net(), graph, x, adj)


def test_canonical_chains() -> None:
    """Only these run on grids of devices."""
    graph = multigraph(weighted=False)
    kinds = [
        ([block.propagate for block in from_pyg(module, graph).blocks])
        for module in (
            GCN(FEATURES, 6, 3, CLASSES, norm="batch_norm"), GraphSAGE(FEATURES, 6, 3, CLASSES), GCNII(),
            pyg.Sequential("x, edge_index", [(pyg.SGConv(FEATURES, CLASSES, K=3), "x, edge_index -> x")]),
            pyg.GCNConv(FEATURES, CLASSES),
        )
    ]  # fmt: skip
    assert kinds == [["graph"] * 3, ["concat"] * 3, ["none", *["initial"] * 4, "none"], ["power"], ["graph"]]


def test_reference_of_hidden_weights() -> None:
    graph = multigraph(weighted=False)
    module = pyg.Sequential(
        "x, edge_index",
        [
            (pyg.GCNConv(FEATURES, 6), "x, edge_index -> x"), nn.ReLU(), (pyg.GCNConv(6, 6), "x, edge_index -> x"),
            nn.ReLU(), (pyg.GCNConv(6, 8), "x, edge_index -> x"), nn.ReLU(), (nn.Linear(8, CLASSES), "x -> x"),
        ],
    )  # fmt: skip
    assert [b.reference for b in from_pyg(module, graph).blocks] == ["zero", "identity", "random", "zero"]


def test_from_data_with_fewer_classes_and_without_labels() -> None:
    graph = multigraph(weighted=False)
    x, edge_index = arguments(graph, "x", "edge_index", dtype=torch.float32)
    for data in (Data(x=x, edge_index=edge_index, y=graph.y % 2), Data(x=x, edge_index=edge_index)):
        module = GCN(FEATURES, 6, 2, CLASSES)
        model = from_pyg(module, data)
        assert model.graph.num_classes == CLASSES
        close(scores(model, model.weights(), torch.float32), evaluated(module, x, edge_index), 1e-5)


def test_single_precision() -> None:
    graph = multigraph()
    module = randomised(GCN(FEATURES, 6, 3, CLASSES, norm="batch_norm"), dtype=torch.float32)
    inputs = arguments(graph, "x", "edge_index", "edge_weight", dtype=torch.float32)
    model = from_pyg(module, graph)
    assert all(weight.dtype == torch.float32 for weight in model.weights().values())
    close(scores(model, model.weights(), torch.float32), evaluated(module, *inputs), 1e-5)
    wanted = new_weights(model)
    model.write({name: weight.double() for name, weight in wanted.items()})
    close(evaluated(module, *inputs), scores(model, wanted, torch.float32), 1e-5)


def test_written_norms_know_the_statistics_of_the_nodes() -> None:
    """Who goes on training the module finds running statistics that are those of its data."""
    graph = multigraph()
    module = randomised(GCN(FEATURES, 6, 2, CLASSES, norm="batch_norm"))
    inputs = arguments(graph, "x", "edge_index", "edge_weight")
    model = from_pyg(module, graph)
    model.write(new_weights(model))
    norm = module.norms[0].module
    seen: list[Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    evaluated(module, *inputs)
    handle.remove()
    close(norm.running_mean, seen[0].mean(0))
    close(norm.running_var, seen[0].var(0, correction=0))


def test_modes_are_restored() -> None:
    graph = multigraph()
    module = GCN(FEATURES, 6, 2, CLASSES, norm="batch_norm")
    module.train()
    module.norms[0].eval()
    model = from_pyg(module, graph)
    model.write(new_weights(model))
    assert module.training
    assert module.convs[0].training
    assert not module.norms[0].module.training


def test_threads() -> None:
    call, graph, found, done = nn.Module.__call__, multigraph(), [], []

    def read() -> None:
        found.extend(from_pyg(GCN(FEATURES, 6, 12, CLASSES), graph) for _ in range(4))

    def use() -> None:
        layer = nn.Linear(3, 3)
        done.extend(layer(torch.ones(1, 3)) for _ in range(2000))

    interval = sys.getswitchinterval()
    threads = [Thread(target=task) for task in (read, read, read, read, use)]
    try:
        sys.setswitchinterval(1e-5)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 16
    assert len(done) == 2000
    assert nn.Module.__call__ is call


def test_own_layers() -> None:
    import gfgnn.nn as own

    graph = multigraph()
    weighted, plain = arguments(graph, "x", "edge_index", "edge_weight"), arguments(graph, "x", "edge_index")
    check(own.GCN(FEATURES, 6, 3, CLASSES), graph, *weighted)
    check(own.GraphSAGE(FEATURES, 6, 3, CLASSES), graph, *plain)
    check(own.GIN(FEATURES, 6, 3, CLASSES), graph, *plain)
    assert is_chain(check(own.GCNII(FEATURES, 6, 3, CLASSES, norm="batch_norm"), graph, *weighted).blocks)
    model = check(own.SIGN(FEATURES, 6, CLASSES, 3), graph, *weighted)
    assert [block.terms[0].hops for block in model.blocks[:4]] == [0, 1, 2, 3]
    assert isinstance(model.graph, Graph)
