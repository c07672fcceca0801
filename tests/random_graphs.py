"""Small random graphs and their propagation matrices written out densely, as oracles in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.graph.graph import Graph


def random_graph(
    seed: int = 0,
    *,
    nodes: int = 12,
    features: int = 5,
    classes: int = 3,
    directed: bool = False,
    weighted: bool = False,
    isolated: int = 1,
    labelled: int = 6,
) -> Graph:
    """A graph whose last ``isolated`` nodes have no edge; the first ``labelled`` nodes are for training."""
    generator = torch.Generator().manual_seed(seed)
    ends = nodes - isolated
    edge_index = torch.randint(ends, (2, 3 * ends), generator=generator)
    weight = None
    if weighted:
        weight = 0.2 + torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64)
    index = torch.arange(nodes)
    return Graph.from_edges(
        edge_index,
        nodes,
        x=torch.randn(nodes, features, generator=generator),
        y=index % classes,
        train_mask=index < labelled,
        val_mask=(index >= labelled) & (index < labelled + 3),
        test_mask=index >= labelled + 3,
        edge_weight=weight,
        num_classes=classes,
        symmetrise=not directed,
        name="random",
    )


def dense_adjacency(graph: Graph) -> Tensor:
    """A ``[N, N]``, row i holding the weights of the edges into node i."""
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    for source, target, w in zip(*graph.edge_index.tolist(), weight.tolist(), strict=True):
        a[target, source] += w
    return a


def dense_propagation(graph: Graph, norm: str = "sym", self_loops: bool = True) -> Tensor:
    """S ``[N, N]`` from its definition; rows of nodes with no degree are zero."""
    a = dense_adjacency(graph)
    if self_loops:
        a = a + torch.eye(graph.num_nodes, dtype=torch.float64)
    if norm == "none":
        return a
    degree = a.sum(1)
    power = torch.where(degree > 0, degree ** (-0.5 if norm == "sym" else -1.0), torch.zeros_like(degree))
    return power[:, None] * (power[None, :] if norm == "sym" else 1.0) * a  # as symmetric as A is


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rewired(graph: Graph, edge_index: Tensor, weight: Tensor | None = None) -> Graph:
    """The nodes of ``graph`` with other edges."""
    return Graph.from_edges(
        edge_index, graph.num_nodes, x=graph.x, y=graph.y, train_mask=graph.train_mask, val_mask=graph.val_mask,
        test_mask=graph.test_mask, edge_weight=weight,
    )  # fmt: skip


def one_way(graph: Graph) -> Graph:
    """One direction of each edge of an undirected graph, with random weights."""
    kept = graph.edge_index[0] < graph.edge_index[1]
    weight = 0.1 + torch.rand(int(kept.sum()), generator=torch.Generator().manual_seed(0))
    return rewired(graph, graph.edge_index[:, kept], weight)
