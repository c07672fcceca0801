"""Micro-batches of a graph: clusters of its nodes, without the edges between them, as in Cluster-GCN."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gfgnn.graph.graph import Graph
from gfgnn.graph.propagation import Propagation
from gfgnn.model.inputs import make_inputs
from gfgnn.ops.spmm import from_parts, rows_of
from gfgnn.problem import Problem
from gfgnn.shards import GraphShard


def without_cut_edges(graph: Graph, cluster: Tensor) -> Graph:
    """``graph`` with the edges inside of clusters only.

    Args:
        cluster: of each node, ``[N]``.
    """
    source, target = graph.edge_index
    kept = cluster[source] == cluster[target]
    weight = None if graph.edge_weight is None else graph.edge_weight[kept]
    return graph.replace(edge_index=graph.edge_index[:, kept], edge_weight=weight)


def micro_problems(problem: Problem, shard: GraphShard, cluster: Tensor) -> list[Problem]:
    """A problem for each cluster: this rank's blocks on the cluster's nodes, its S that of the graph without cut edges.

    All have as many rows, those of the largest cluster: the others get rows of zeros at the end, which no node gathers
    from and no label lies on, since a pipeline's messages must all be of one shape.

    Args:
        problem: of this rank, all nodes; with the features on the first stage.
        shard: all nodes of the graph without cut edges, stored in the same order.
        cluster: of each node of the graph, by its own number, ``[N]``.
    """
    assert torch.equal(shard.nodes, problem.node_ids), "nodes are stored in one order"
    cluster = cluster[problem.node_ids]
    rows = int(torch.bincount(cluster).max())
    return [
        _micro_problem(problem, shard, (cluster == number).nonzero().squeeze(1), rows)
        for number in range(int(cluster.max()) + 1)
    ]


def _micro_problem(problem: Problem, shard: GraphShard, nodes: Tensor, rows: int) -> Problem:
    n = problem.node_ids.numel()
    local = torch.full((n,), -1).index_copy_(0, nodes, torch.arange(nodes.numel()))
    matrix = _square(shard.matrix.owned, nodes, local, rows)
    symmetric = shard.matrix_t is shard.matrix
    matrix_t = matrix if symmetric else _square(shard.matrix_t.owned, nodes, local, rows)
    scale = torch.ones(rows, dtype=problem.dtype)
    scale[: nodes.numel()] = shard.scale[nodes]
    propagation = Propagation(matrix, matrix_t, scale).to(problem.dtype, problem.device)
    inputs = {}
    if problem.is_first:
        features = _padded(problem.inputs.features, nodes, rows)
        inputs[0] = make_inputs(problem.model.blocks[0], propagation, features)
    known = local[problem.train_index] >= 0
    return replace(
        problem,
        propagations=(propagation,),
        block_inputs=inputs,
        y=problem.y[nodes],
        node_ids=problem.node_ids[nodes],
        targets=problem.targets[known],
        train_index=local[problem.train_index[known]],
        val_index=problem.val_index[:0],
        test_index=problem.test_index[:0],
    )


def _square(matrix: Tensor, nodes: Tensor, local: Tensor, rows: int) -> Tensor:
    """Rows and columns ``nodes`` of a matrix without non-zeros in others, ``[rows, rows]``."""
    part = rows_of(matrix, nodes)
    column = local[part.col_indices().long()]
    assert bool((column >= 0).all()), "no edge leaves a cluster"
    return from_parts(_longer(part, rows), column, part.values(), (rows, rows))


def _padded(features: Tensor, nodes: Tensor, rows: int) -> Tensor:
    """The features of ``nodes`` and rows of zeros."""
    if features.layout == torch.sparse_csr:
        part = rows_of(features, nodes)
        return from_parts(_longer(part, rows), part.col_indices(), part.values(), (rows, features.size(1)))
    padded = features.new_zeros(rows, features.size(1))
    padded[: nodes.numel()] = features[nodes]
    return padded


def _longer(matrix: Tensor, rows: int) -> Tensor:
    """Row pointers with empty rows at the end."""
    crow = matrix.crow_indices().long()
    return torch.cat([crow, crow[-1:].expand(rows - matrix.size(0))])


__all__ = ["micro_problems", "without_cut_edges"]
