"""What cannot be trained is said before any training, all of it, by the layers' names; nothing is touched."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pyg_modules import CLASSES, FEATURES, RELATIONS, multigraph, new_weights, randomised
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN, GraphSAGE

from gfgnn.checks import InputError
from gfgnn.graph.graph import Graph
from gfgnn.model.from_pyg import from_pyg

GRAPH = multigraph()


class Net(nn.Module):
    """conv1, what is under test, lin."""

    def __init__(self, step: Callable[..., Any] | None = None, **layers: nn.Module) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(FEATURES, 6)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.lin = nn.Linear(6, CLASSES)
        self.step = step or (lambda net, h, edge_index, edge_weight: net.layer(h))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.conv1(x, edge_index).relu()
        return self.lin(self.step(self, h, edge_index, edge_weight))


class OwnConv(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j.square()


class OwnGCN(pyg.GCNConv):
    pass


def on_graph(net: Any, h: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    return net.layer(h, edge_index)


def refused(module: nn.Module, graph: Any = GRAPH) -> str:
    """The message with which a module is refused; it is left as it was."""
    before = copy.deepcopy(module.state_dict())
    modes = [m.training for m in module.modules()]
    with pytest.raises(InputError) as error:
        from_pyg(module, graph)
    assert [m.training for m in module.modules()] == modes
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    return str(error.value)


CONVOLUTIONS = {
    "attention": (lambda: pyg.GATConv(6, 6), "GATConv", "attention coefficients depend on the features"),
    "attention 2": (lambda: pyg.TransformerConv(6, 6), "TransformerConv", "attention"),
    "own": (lambda: OwnConv(), "OwnConv", "messages gfgnn does not know"),
    "subclass": (lambda: OwnGCN(6, 6), "OwnGCN", "messages gfgnn does not know"),
    "other": (lambda: pyg.ChebConv(6, 6, 2), "ChebConv", "not among the convolutions"),
    "max": (lambda: pyg.SAGEConv(6, 6, aggr="max"), "SAGEConv", "aggregates by 'max'"),
    "several": (lambda: pyg.SAGEConv(6, 6, aggr=["mean", "max"]), "SAGEConv", "aggregates by"),
    "mean": (lambda: pyg.GCNConv(6, 6, aggr="mean"), "GCNConv", "aggregates by 'mean'"),
    "length": (lambda: pyg.SAGEConv(6, 6, normalize=True), "SAGEConv", "normalize=True"),
    "backwards": (lambda: pyg.GCNConv(6, 6, flow="target_to_source"), "GCNConv", "flow"),
    "node_dim": (lambda: pyg.GCNConv(6, 6, node_dim=1), "GCNConv", "node_dim"),
    "inner": (lambda: pyg.GINConv(nn.Sequential(nn.Linear(6, 6), nn.PReLU())), "PReLU", "slope is learnt"),
    "width": (lambda: pyg.GCNConv(5, 6), "GCNConv", "takes 5 columns and is given 6"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    make, kind, why = CONVOLUTIONS[name]
    message = refused(Net(on_graph, layer=make()))
    place = "layer.nn.1" if name == "inner" else "layer"
    assert f"{place} ({kind}): " in message
    assert why in message
    assert "If it were frozen, these could be trained: conv1, " in message
    assert message.endswith("lin.")


LAYERS = {
    "prelu": (nn.PReLU, "slope is learnt"),
    "elu": (nn.ELU, "relu, leaky_relu"),
    "gelu": (nn.GELU, "relu, leaky_relu"),
    "tanh": (nn.Tanh, "relu, leaky_relu"),
    "sigmoid": (nn.Sigmoid, "only at the very end"),
    "layer norm": (lambda: nn.LayerNorm(6), "normalises by values of single nodes"),
    "pyg layer norm": (lambda: pyg.LayerNorm(6), "normalises by values of single nodes"),
    "graph norm": (lambda: pyg.GraphNorm(6), "normalises by values of single nodes"),
    "batch norm of nothing": (
        lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False), "keeps neither gains nor statistics",
    ),
    "batch norm of others": (lambda: nn.BatchNorm1d(7), "takes 7 columns and is given 6"),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), "not"),
    "bilinear": (lambda: nn.Conv1d(6, 6, 1), "not a layer gfgnn can train"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    make, why = LAYERS[name]
    layer = make()
    message = refused(Net(layer=layer))
    assert f"layer ({type(layer).__name__}): " in message
    assert why in message


@pytest.mark.parametrize("mode", ["max", "lstm"])
def test_jumping_knowledge(mode: str) -> None:
    message = refused(GCN(FEATURES, 6, 2, CLASSES, jk=mode))
    assert "jk (JumpingKnowledge): " in message
    assert "convs.0, convs.1, lin" in message


OPERATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "view": (lambda net, h, *_: h.view(-1, 6), "x.view(...): is not an operation"),
    "reshape": (lambda net, h, *_: torch.reshape(h, (-1, 6)), "reshape"),
    "index": (lambda net, h, *_: h[:, [0, 1, 2, 3, 4, 5]], "x[...]"),
    "size": (lambda net, h, *_: h.new_zeros(h.size(0), 6) + h, "x.size(...)"),
    "tanh": (lambda net, h, *_: torch.tanh(h), "tanh"),
    "elu": (lambda net, h, *_: F.elu(h), "elu"),
    "product": (lambda net, h, *_: h * h, "only numbers can multiply"),
    "quotient": (lambda net, h, *_: 1 / h, "only numbers"),
    "zero": (lambda net, h, *_: 0.0 * h, "multiplies by 0.0"),
    "number": (lambda net, h, *_: h + 1, "adds a number"),
    "cancel": (lambda net, h, *_: h - h, "cancel out"),
    "broadcast": (lambda net, h, *_: h + net.layer(h), "6 and 1 columns"),
    "rows": (lambda net, h, *_: torch.cat([h, h]), "dim is 0"),
    "softmax": (lambda net, h, *_: F.log_softmax(h, dim=1), "only at the very end"),
    "parameter": (lambda net, h, *_: h + net.lin.bias[0], "lin.bias: is used as it is"),
    "weights": (lambda net, h, e, w: net.conv2(h, e, w * 2), "operator.mul(...): makes something of edge_weight"),
    "edges": (lambda net, h, e, w: net.conv2(h, e.flip(0), w), "x.flip(...): makes something of edge_index"),
    "edges as weights": (lambda net, h, e, w: net.conv2(h, e, e), "edge weights made inside"),
    "features as edges": (lambda net, h, e, w: net.conv2(h, h, w), "edges made inside"),
    "weighted mean": (lambda net, h, e, w: net.mean(h, e, w), "divides the weighted sum by the number"),
    "twice": (lambda net, h, e, w: net.conv2(net.conv2(h, e, w), e, w), "conv2 (GCNConv): is used twice"),
    "norm twice": (lambda net, h, *_: net.norm(net.norm(h).relu()), "norm (BatchNorm): is used twice"),
    "size of a layer": (lambda net, h, e, w: net.mean(h, e, None, (3, 3)), "is given a size"),
    "pair": (lambda net, h, e, w: net.gin((h, net.lin2(h)), e), "is given tuple"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    step, why = OPERATIONS[name]
    layers = {
        "layer": nn.Linear(6, 1), "conv2": pyg.GCNConv(6, 6), "mean": pyg.GraphConv(6, 6, aggr="mean"),
        "norm": pyg.BatchNorm(6), "gin": pyg.GINConv(nn.Linear(6, 6)), "lin2": nn.Linear(6, 6),
    }  # fmt: skip
    assert why in refused(Net(step, **layers))


def test_shared_memory() -> None:
    net = Net(lambda net, h, *_: net.second(net.first(h)), first=nn.Linear(6, 6), second=nn.Linear(6, 6))
    net.second.weight.data = net.first.weight.data
    assert "second (Linear): shares second.weight with first" in refused(net)


def test_hooks() -> None:
    net = Net(layer=nn.Linear(6, 6))
    net.layer.register_forward_hook(lambda layer, inputs, output: 2.0 * output)
    assert "layer (Linear): has forward hooks" in refused(net)


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "function": (lambda: on_graph, "must be a torch.nn.Module; got function"),
    "parallel": (lambda: nn.DataParallel(Net()), "give its .module"),
    "traced": (lambda: torch.jit.trace(nn.Linear(FEATURES, 3), torch.ones(1, FEATURES)), "TorchScript"),
    "meta": (lambda: Net().to("meta"), "is on the meta device"),
    "inference": (lambda: torch.inference_mode()(Net)(), "was made in torch.inference_mode"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_module_with_weights_of_its_own(name: str) -> None:
    make, why = OTHERS[name]
    with pytest.raises(InputError, match=why):
        from_pyg(make(), GRAPH)


def test_forward_without_names() -> None:
    class Nameless(Net):
        def forward(self, *inputs: Tensor) -> Tensor:
            return super().forward(*inputs)

    assert "takes no features; it takes []" in refused(Nameless())


def test_shared_parameters() -> None:
    net = Net(lambda net, h, *_: net.b(net.a(h).relu()), a=nn.Linear(6, 6), b=nn.Linear(6, 6))
    net.b.weight = net.a.weight
    assert "b (Linear): shares b.weight with a" in refused(net)


def test_weights_that_are_computed() -> None:
    assert "layer (Linear): its weight is computed" in refused(
        Net(layer=nn.utils.weight_norm(nn.Linear(6, 6)))
    )


def test_gcn2_without_weights() -> None:
    step: Any = lambda net, h, e, w: net.layer(h, h, e)  # noqa: E731
    assert "theta is 0" in refused(Net(step, layer=pyg.GCN2Conv(6, 0.1, 0.0, 1)))


@pytest.mark.parametrize("options", [{"num_bases": 2}, {"num_blocks": 2}])
def test_relations_made_from_others(options: dict[str, int]) -> None:
    class Related(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = pyg.RGCNConv(FEATURES + 1, 6, RELATIONS, **options), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.lin(self.conv(x, edge_index, edge_type).relu())

    assert "conv (RGCNConv): weights of relations are made from others" in refused(Related())


def test_relations_that_the_module_does_not_have() -> None:
    class Related(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.RGCNConv(FEATURES, CLASSES, RELATIONS - 1)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.conv(x, edge_index, edge_type)

    assert "Related has 2 relations; multigraph has 3" in refused(Related())


def test_all_problems_come_in_one_message() -> None:
    step: Any = lambda net, h, e, w: net.act(net.gat(torch.tanh(h), e)).view(-1, 6)  # noqa: E731
    message = refused(Net(step, gat=pyg.GATConv(6, 6), act=nn.PReLU()))
    lines = message.split("\n")
    assert lines[0] == "Net cannot be trained:"
    assert [line.split(":")[0] for line in lines[1:5]] == [
        "- torch.tanh(...)", "- gat (GATConv)", "- act (PReLU)", "- x.view(...)",
    ]  # fmt: skip
    assert lines[5] == "If they were frozen, these could be trained: conv1, lin."


class Ending(nn.Module):
    def __init__(self, end: Callable[..., Any]) -> None:
        super().__init__()
        self.conv, self.lin = pyg.GCNConv(FEATURES, CLASSES), nn.Linear(CLASSES, CLASSES)
        self.norm, self.gin = nn.BatchNorm1d(CLASSES), pyg.GINConv(nn.Identity())
        self.end = end

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.end(self, self.conv(x, edge_index), x, edge_index)


ENDS: dict[str, tuple[Callable[..., Any], str]] = {
    "activation": (lambda net, h, x, e: h.relu(), "ends in an activation (relu)"),
    "sum": (lambda net, h, x, e: net.lin(h.relu()) + h.relu(), "ends in a sum"),
    "norm": (lambda net, h, x, e: net.norm(h.relu()), "ends in a BatchNorm"),
    "cat": (lambda net, h, x, e: torch.cat([h, net.lin(h)], 1), "ends in a concatenation"),
    "multiple": (lambda net, h, x, e: h.relu() * 2, "ends in a multiple"),
    "features": (lambda net, h, x, e: x, "ends in the features themselves"),
    "propagated": (lambda net, h, x, e: net.gin(h.relu(), e), "ends in propagated values"),
    "edges": (lambda net, h, x, e: e, "ends in edge_index"),
    "two": (lambda net, h, x, e: (h, x), "returns tuple"),
    "none": (lambda net, h, x, e: None, "returns NoneType"),
    "softmax over nodes": (lambda net, h, x, e: h.softmax(0), "only at the very end, over the columns"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str) -> None:
    end, why = ENDS[name]
    assert why in refused(Ending(end))


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (lambda net, h, x, e: F.dropout(net.norm(h).softmax(-1), training=net.training), True),
        (lambda net, h, x, e: torch.sigmoid(h), True),
        (lambda net, h, x, e: h, False),
    ],
)
def test_ends_that_are_left_out(end: Callable[..., Any], kept: bool) -> None:
    assert any("at the end is left out" in note for note in from_pyg(Ending(end), GRAPH).notes) == kept


def test_dropout_in_evaluation_is_noted() -> None:
    notes = from_pyg(Net(lambda net, h, *_: F.dropout(h, 0.5)), GRAPH).notes
    assert any("training=self.training is missing" in note for note in notes)


def test_control_flow() -> None:
    class Branching(Net):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv1(x, edge_index)
            return self.lin(h if h.sum() > 0 else -h)

    message = refused(Branching())
    assert "branches or loops on the values of tensors" in message
    assert "test_from_pyg_errors.py, line" in message
    assert "return self.lin(h if h.sum() > 0 else -h)" in message


def test_forward_that_fails() -> None:
    message = refused(Net(lambda net, h, *_: net.nothing(h)))
    assert "cannot be traced (test_from_pyg_errors.py, line" in message
    assert "AttributeError" in message


@pytest.mark.parametrize("name", ["batch", "pos"])
def test_arguments_that_no_graph_has(name: str) -> None:
    net = pyg.Sequential(f"x, edge_index, {name}", [(pyg.GCNConv(FEATURES, CLASSES), "x, edge_index -> x")])
    assert f"Sequential.forward needs '{name}'" in refused(net)

    class Whole(Net):
        def forward(self, data: Any) -> Tensor:
            return self.lin(self.conv1(data.x, data.edge_index) + getattr(data, name))

    assert f"forward reads data.{name}" in refused(Whole())


def test_graphs_that_do_not_fit() -> None:
    module = GraphSAGE(FEATURES, 6, 2, CLASSES)
    assert "has no node features" in refused(module, Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2))
    assert "takes 5 columns and is given 3" in refused(
        module, Data(x=torch.ones(3, 3), edge_index=torch.tensor([[0], [1]]))
    )
    many = Graph.from_edges([[0], [1]], 9, x=torch.ones(9, FEATURES), y=torch.arange(9))
    assert "has 4 outputs; graph has 9 classes" in refused(module, many)
    values = Graph.from_edges([[0], [1]], 9, x=torch.ones(9, FEATURES), y=torch.rand(9, 2))
    assert "has 4 outputs; graph has 2 targets (regression)" in refused(module, values)


def test_degrees_below_zero() -> None:
    graph = multigraph(typed=False, loops=False).to_pyg()
    graph.edge_weight = graph.edge_weight - 0.9

    class Weighted(Net):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.lin(self.conv1(x, edge_index, edge_weight).relu())

    assert "sums to less than 0 at " in refused(Weighted(), graph)
    from_pyg(Weighted(), multigraph())
    module = Weighted()
    module.conv1 = pyg.GraphConv(FEATURES, 6)
    from_pyg(module, graph)


def test_lazy_layers_that_cannot_be_run() -> None:
    steps = [(pyg.Linear(-1, 6), "x -> x"), nn.Linear(5, 6)]
    with pytest.raises(InputError, match="has lazy layers, and running it on multigraph"):
        from_pyg(Net(on_graph, layer=pyg.Sequential("x, edge_index", steps)), GRAPH)


WRONG: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "shape": (lambda w: w | {"block0.weight": w["block0.weight"].t()}, "block0.weight must have shape [5, 6]"),
    "nan": (lambda w: w | {"block1.bias": w["block1.bias"] * float("nan")}, "block1.bias holds NaN"),
    "missing": (lambda w: {k: v for k, v in w.items() if k != "block1.weight"}, "missing ['block1.weight']"),
    "unknown": (lambda w: w | {"block9.weight": w["block0.weight"]}, "unknown ['block9.weight']"),
    "too large": (lambda w: w | {"block0.weight": w["block0.weight"].double() * 1e200}, "would not be finite"),
    "scale": (lambda w: w | {"block1.scale": -w["block1.scale"]}, "cannot multiply by"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_failed_write_leaves_the_module_alone(name: str) -> None:
    change, why = WRONG[name]
    if name == "scale":
        options: dict[str, Any] = {"norm": "batch_norm", "norm_kwargs": {"affine": False}, "act_first": True}
    else:
        options = {"norm": "batch_norm"}
    module = randomised(GCN(FEATURES, 6, 2, CLASSES, **options), dtype=torch.float32)
    module.train()
    model = from_pyg(module, GRAPH)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(InputError) as error:
        model.write(change(new_weights(model)))
    assert why in str(error.value)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert all(m.training and not m._forward_pre_hooks for m in module.modules())
