"""Hand-written modules as blocks: operations on tensors, sums with what came before, layers that keep their input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pyg_modules import (
    CLASSES,
    FEATURES,
    arguments,
    check,
    close,
    evaluated,
    multigraph,
    new_weights,
    randomised,
    scores,
)
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from gfgnn.graph.graph import Graph
from gfgnn.model.build import model_from_dict
from gfgnn.model.from_pyg import from_pyg


class Everything(nn.Module):
    """Reads ``data``, drops, adds in place, scales, and ends in a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(FEATURES, 6), pyg.SAGEConv(6, 6)
        self.lin, self.out = nn.Linear(FEATURES, 6), nn.Linear(18, CLASSES)
        self.act, self.end, self.idle = nn.ReLU(inplace=True), nn.LogSoftmax(dim=1), nn.Linear(2, 2)
        self.same = nn.Identity()

    def forward(self, data: Any) -> Tensor:
        x, edge_index = F.dropout(data.x, training=self.training), data["edge_index"]
        a = self.conv1(x, edge_index, data.edge_weight)
        b = self.same(a)
        self.act(a)  # changes a and b
        h = 2 * b - self.conv2(a, edge_index) / 4
        h += self.lin(x).mul(-0.5)
        c = torch.add(h, a, alpha=3)
        c.relu_()
        return self.end(self.same(self.out(torch.cat((-a, c, sum([a, b, c])), 1))))


def test_operations_of_a_hand_written_module() -> None:
    graph, module = multigraph(), randomised(Everything())
    model = from_pyg(module, graph)
    x, edge_index, weight = arguments(graph, "x", "edge_index", "edge_weight")
    data = Data(x=x, edge_index=edge_index, edge_weight=weight)
    close(scores(model, model.weights()).log_softmax(1), evaluated(module, data))
    wanted = new_weights(model)
    idle = module.idle.weight.clone()
    model.write(wanted)
    close(evaluated(module, data), scores(model, wanted).log_softmax(1))
    assert torch.equal(module.idle.weight, idle)
    assert any("idle.weight, idle.bias" in note for note in model.notes)


class Residual(nn.Module):
    def __init__(self, before: bool) -> None:
        super().__init__()
        self.first, self.conv = pyg.GCNConv(FEATURES, 6), pyg.GCNConv(6, 6)
        self.norm, self.out, self.before = pyg.BatchNorm(6), nn.Linear(6, CLASSES), before

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.first(x, edge_index, edge_weight).relu()
        h = self.norm(self.conv(x, edge_index, edge_weight))
        x = (x + h).relu() if self.before else x + 0.5 * h.relu()
        return self.out(x)


def test_residual_blocks_add_their_input() -> None:
    graph = multigraph()
    inputs = arguments(graph, "x", "edge_index", "edge_weight")
    after = check(Residual(False), graph, *inputs).blocks[1]
    assert (after.activation, after.branch, after.adds) == ("relu", 0.5, ((0, 1.0),))
    model = check(Residual(True), graph, *inputs)
    linear, relu = model.blocks[1:3]
    assert (linear.activation, linear.adds, linear.weighted) == ("identity", ((0, 1.0),), True)
    assert (relu.activation, relu.adds, relu.weighted) == ("relu", (), False)


class OfFeatures(nn.Module):
    """A block of features alone, to which other things are added."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.conv, self.lin, self.out = (
            pyg.GCNConv(FEATURES, FEATURES),
            nn.Linear(FEATURES, FEATURES),
            nn.Linear(5, CLASSES),
        )
        self.before = before

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        other = self.lin(x).relu() if self.before else x
        return self.out(other + self.conv(x, edge_index, edge_weight).relu())


@pytest.mark.parametrize("before", [True, False])
def test_blocks_of_features_add_others(before: bool) -> None:
    graph = multigraph()
    model = check(OfFeatures(before), graph, *arguments(graph, "x", "edge_index", "edge_weight"))
    assert [block.adds for block in model.blocks] == ([(), ((0, 1.0),), ()] if before else [((-1, 1.0),), ()])


class Deep(nn.Module):
    """A propagation that keeps its input, which other weights change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = nn.Linear(FEATURES, 6), pyg.SGConv(6, 6, K=2, cached=True)
        self.norm, self.out = pyg.BatchNorm(6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.norm(self.conv(self.first(x).relu(), edge_index)).relu())


def test_layers_that_keep_their_input() -> None:
    graph = multigraph()
    check(Deep(), graph, *arguments(graph, "x", "edge_index"))


@pytest.mark.parametrize("adjacency", [True, False])
def test_layers_that_keep_the_edges_of_another_graph(adjacency: bool) -> None:
    graph, other = multigraph(weighted=False), multigraph(1, weighted=False)
    name = "adj_t" if adjacency else "edge_index"
    steps = [(pyg.GCNConv(FEATURES, 6, cached=True), f"x, {name} -> x"), nn.ReLU(), nn.Linear(6, CLASSES)]
    module = randomised(pyg.Sequential(f"x, {name}", steps))
    model = from_pyg(module, graph)

    def given(graph: Graph) -> list[Tensor]:
        return list(model.call.actual(graph, torch.float64, torch.device("cpu")).values())

    evaluated(module, *given(other))
    weights = new_weights(model)
    model.write(weights)
    close(evaluated(module, *given(graph)), scores(model, weights))


def test_blocks_survive_a_dictionary() -> None:
    model = from_pyg(Residual(True), multigraph())
    read = model_from_dict(model.to_dict())
    assert (read.blocks, read.operators, read.config) == (model.blocks, model.operators, model.config)


def test_repr_is_a_line_for_each_block() -> None:
    """However deep: parts name their sources, which name theirs."""
    model = from_pyg(Deep(), multigraph())
    assert repr(model).startswith("PygModel(Deep, ")
    assert len(repr(model).splitlines()) == 1 + len(model.blocks)
    assert "[S0^2 H0] 6 -> 6 relu" in repr(model)
