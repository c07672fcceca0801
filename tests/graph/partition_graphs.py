"""Graphs that partitioners stumble over, and a planted one that they should cut well."""

from __future__ import annotations

import numpy as np
import torch

from gfgnn.data.synthetic import parse_synthetic, synthetic_graph
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition.problem import PartitionProblem, neighbours, node_weights


def undirected(edges: object, nodes: int, **options: object) -> Graph:
    """A graph from pairs of nodes; every third node is a labelled training node."""
    index = torch.arange(nodes)
    pairs = torch.as_tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return Graph.from_edges(
        pairs, nodes, y=index % 2, train_mask=index % 3 == 0, symmetrise=True, name="small", **options
    )


def nasty() -> dict[str, Graph]:
    """Name to graph; all have 12 to 40 nodes."""
    ring = [(10 * c + i, 10 * c + (i + 1) % 10) for c in range(3) for i in range(10)]
    return {
        "no edges": undirected([], 20),
        "star": undirected([(0, i) for i in range(1, 30)], 30),
        "isolated": undirected([(i, j) for i in range(5) for j in range(i)], 40),
        "one edge": undirected([(0, 1)], 24),
        "components": undirected(ring, 30),
        "complete": undirected([(i, j) for i in range(12) for j in range(i)], 12),
        "path": undirected([(i, i + 1) for i in range(24)], 25),
    }


def planted(nodes: int = 20_000) -> Graph:
    """Communities of about 500 nodes, power-law degrees; four fifths of the edges stay inside."""
    return synthetic_graph(parse_synthetic(f"nodes={nodes},classes={max(2, nodes // 500)},features=0"))


def problem_of(
    graph: Graph,
    shares: object,
    balance: tuple[str, ...] = ("nodes",),
    imbalance: float = 0.03,
    seed: int = 0,
) -> PartitionProblem:
    indptr, indices = neighbours(graph)
    values = np.asarray(shares, dtype=np.float64)
    return PartitionProblem(
        indptr=indptr,
        indices=indices,
        weights=node_weights(graph, balance),
        shares=values / values.sum(),
        imbalance=imbalance,
        seed=seed,
    )
