"""The forward pass of every family against a plain dense one, and against PyG's layers with the same weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from random_graphs import dense_propagation, randn, random_graph
from torch import Tensor

from gfgnn.config import FAMILIES, ModelConfig
from gfgnn.data import grid_graph
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model, initial_weights
from gfgnn.problem import prepare, training_targets

L, D = 3, 6


def setting(family: str, graph: Graph, **changes: Any) -> tuple[Model, dict[str, Tensor]]:
    """A network with random weights and biases in float64."""
    model = build_model(ModelConfig(family=family, layers=L, hidden=D, **changes), graph)
    weights = {}
    for index, block in enumerate(model.blocks):
        weights[f"block{index}.weight"] = randn(block.fan_in, block.out_channels, seed=index) / 2
        if block.bias:
            weights[f"block{index}.bias"] = randn(block.out_channels, seed=100 + index)
    return model, weights


def scores(model: Model, graph: Graph, weights: dict[str, Tensor]) -> Tensor:
    return forward(prepare(model, graph, dtype=torch.float64), weights)


def dense_scores(config: ModelConfig, graph: Graph, weights: dict[str, Tensor]) -> Tensor:
    """The networks as their papers write them."""
    assert graph.x is not None
    x = graph.x.to_dense().double()
    s = dense_propagation(graph, config.norm, config.self_loops)
    act = {"relu": torch.relu, "leaky_relu": torch.nn.LeakyReLU(0.01), "identity": lambda z: z}[
        config.activation
    ]

    def linear(t: Tensor, index: int) -> Tensor:
        bias = weights.get(f"block{index}.bias")
        return t @ weights[f"block{index}.weight"] + (0.0 if bias is None else bias)

    if config.family == "gcn":
        return linear(s @ act(linear(s @ act(linear(s @ x, 0)), 1)), 2)
    if config.family == "gcnii":
        h = h0 = act(linear(x, 0))
        for layer in range(1, L + 1):
            h = act(((1 - config.alpha) * s @ h + config.alpha * h0) @ weights[f"block{layer}.weight"])
        return linear(h, L + 1)
    if config.family == "resgcn":
        h = act(linear(x, 0))
        for layer in range(1, L + 1):
            h = h + act(linear(s @ h, layer)) / math.sqrt(L)
        return linear(h, L + 1)
    if config.family == "sage":
        mean, h = dense_propagation(graph, "rw", False), x
        for layer in range(L):
            z = linear(torch.cat([h, mean @ h], dim=1), layer)
            h = act(z) if layer < L - 1 else z
        return h
    if config.family == "rgcn":  # one relation, unweighted
        mean, h = dense_propagation(graph.replace(edge_weight=None), "rw", False), x
        for layer in range(L):
            z = linear(torch.cat([mean @ h, h], dim=1), layer)
            h = act(z) if layer < L - 1 else z
        return h
    hops = [torch.linalg.matrix_power(s, k) @ x for k in range(L + 1)]
    if config.family == "sgc":
        return linear(hops[-1], 0)
    return linear(act(linear(act(linear(torch.cat(hops, dim=1), 0)), 1)), 2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("directed", "changes"),
    [
        (False, {}),
        (True, {"norm": "rw", "activation": "leaky_relu"}),
        (True, {"bias": False, "norm": "none", "activation": "identity"}),
        (False, {"self_loops": False}),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_the_dense_network(family: str, directed: bool, changes: dict[str, Any], sparse: bool) -> None:
    graph = random_graph(1, directed=directed, weighted=True)
    if sparse:
        assert graph.x is not None
        graph = graph.replace(x=(graph.x * (graph.x.abs() > 1)).to_sparse_csr())
    model, weights = setting(family, graph, **changes)
    torch.testing.assert_close(scores(model, graph, weights), dense_scores(model.config, graph, weights))


def pyg(graph: Graph) -> tuple[Any, Tensor, Tensor, Tensor | None]:
    nn = pytest.importorskip("torch_geometric.nn")
    assert graph.x is not None
    weight = None if graph.edge_weight is None else graph.edge_weight.double()
    return nn, graph.x.double(), graph.edge_index, weight


@pytest.mark.parametrize("directed", [False, True])
def test_gcn_equals_pyg(directed: bool) -> None:
    graph = random_graph(2, directed=directed, weighted=True)
    model, weights = setting("gcn", graph)
    nn, h, edges, weight = pyg(graph)
    for index, block in enumerate(model.blocks):
        layer = nn.GCNConv(block.in_channels, block.out_channels).double()
        layer.lin.weight.data = weights[f"block{index}.weight"].t().contiguous()
        layer.bias.data = weights[f"block{index}.bias"]
        h = layer(h, edges, weight)
        h = h.relu() if index < len(model.blocks) - 1 else h
    torch.testing.assert_close(scores(model, graph, weights), h.detach())


@pytest.mark.parametrize("directed", [False, True])
def test_gcnii_equals_pyg(directed: bool) -> None:
    graph = random_graph(3, directed=directed, weighted=True)
    model, weights = setting("gcnii", graph)
    nn, x, edges, weight = pyg(graph)
    h = h0 = torch.relu(x @ weights["block0.weight"] + weights["block0.bias"])
    for number, block in enumerate(model.blocks[1:-1], start=1):
        layer = nn.GCN2Conv(D, alpha=block.alpha, theta=model.config.theta, layer=number).double()
        assert block.beta is not None
        assert layer.beta == pytest.approx(block.beta)
        layer.weight1.data = (weights[f"block{number}.weight"] - (1 - block.beta) * torch.eye(D)) / block.beta
        h = layer(h, h0, edges, weight).relu()
    expected = h @ weights[f"block{L + 1}.weight"] + weights[f"block{L + 1}.bias"]
    torch.testing.assert_close(scores(model, graph, weights), expected.detach())


@pytest.mark.parametrize("directed", [False, True])
def test_sage_equals_pyg(directed: bool) -> None:
    graph = random_graph(4, directed=directed)  # PyG's mean takes no weights
    model, weights = setting("sage", graph)
    nn, h, edges, _ = pyg(graph)
    for index, block in enumerate(model.blocks):
        layer = nn.SAGEConv(block.in_channels, block.out_channels, aggr="mean").double()
        own, gathered = weights[f"block{index}.weight"].split(block.in_channels)
        layer.lin_r.weight.data, layer.lin_l.weight.data = own.t().contiguous(), gathered.t().contiguous()
        layer.lin_l.bias.data = weights[f"block{index}.bias"]
        h = layer(h, edges)
        h = h.relu() if index < len(model.blocks) - 1 else h
    torch.testing.assert_close(scores(model, graph, weights), h.detach())


def test_single_precision_agrees() -> None:
    graph = random_graph(5)
    model, weights = setting("gcnii", graph)
    single = forward(prepare(model, graph), {name: w.float() for name, w in weights.items()})
    torch.testing.assert_close(single.double(), scores(model, graph, weights), rtol=1e-4, atol=1e-4)


def test_targets_of_every_task() -> None:
    graph = random_graph(6, nodes=6, labelled=3)
    model, _ = setting("gcn", graph)
    classes = training_targets(model, graph.y[[2, 0]])
    assert classes.tolist() == [[0, 0, 1], [1, 0, 0]]
    values = randn(6, 2).float()
    other = graph.replace(y=values, task="regression", num_classes=2)
    assert torch.equal(training_targets(setting("gcn", other)[0], values[[2, 0]]), values[[2, 0]])


@pytest.mark.parametrize("wrap", [False, True])
def test_rgcn_on_a_grid_is_a_convolutional_network(wrap: bool) -> None:
    """Nine relations and one weight for each, in every layer: three 3 x 3 convolutions."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(6, 8, 4, generator=generator)
    graph = grid_graph(6, 8, x=image, y=torch.arange(48).view(6, 8) % 3, wrap=wrap)
    model = build_model(ModelConfig(family="rgcn", layers=3, hidden=D), graph)
    assert [block.fan_in for block in model.blocks] == [9 * 4, 9 * D, 9 * D]
    weights = {
        name: torch.randn(w.shape, generator=generator, dtype=torch.float64)
        for name, w in initial_weights(model, generator, torch.float64).items()
    }
    h = image.double().permute(2, 0, 1)[None]
    for index, block in enumerate(model.blocks):
        kernel = weights[f"block{index}.weight"].view(3, 3, -1, block.out_channels).permute(3, 2, 0, 1)
        padded = torch.nn.functional.pad(h, (1, 1, 1, 1), mode="circular" if wrap else "constant")
        h = torch.nn.functional.conv2d(padded, kernel, weights[f"block{index}.bias"])
        h = h.relu() if index < 2 else h
    torch.testing.assert_close(scores(model, graph, weights), h[0].permute(1, 2, 0).reshape(48, 3))
