"""Who does what on a grid of ranks: the part of every node and the blocks of every stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition
from gfgnn.model.build import Model
from gfgnn.plan.cost import Rates, Sizes, block_costs, seconds
from gfgnn.plan.stages import StagePlan


@dataclass(frozen=True)
class Plan:
    """A grid's division of work. A joint planner may make one in another way; nothing else asks where it came from.

    Attributes:
        partition: the part of every node; None for a single part.
        stages: the blocks of every stage.
    """

    partition: Partition | None
    stages: StagePlan

    def assignment(self, num_nodes: int) -> Tensor:
        """The part of every node, ``[N]``."""
        if self.partition is None:
            return torch.zeros(num_nodes, dtype=torch.int64)
        return self.partition.assignment

    def describe(self) -> str:
        """What was chosen and why, in a few lines."""
        texts = [self.partition.describe()] if self.partition is not None else []
        if len(self.stages.bounds) > 2:
            texts.append(self.stages.describe())
        return "\n".join(texts)


def sizes_of(model: Model, graph: Graph, itemsize: int) -> Sizes:
    """The :class:`Sizes` of training ``model`` on ``graph``."""
    degree = _gathered(model, graph)
    train = graph.labelled(graph.train_mask)
    sparse = graph.x is not None and graph.x.layout == torch.sparse_csr
    return Sizes(
        num_nodes=graph.num_nodes,
        nnz=int(degree.sum()),
        num_train=max(1, train.numel()),  # predictions need none
        head_nnz=int(degree[train].sum()),
        feature_nnz=graph.x.values().numel() if sparse and graph.x is not None else None,
        itemsize=itemsize,
    )


def node_work(model: Model, graph: Graph, sizes: Sizes, step: str, rates: Rates | None = None) -> Tensor:
    """Predicted seconds per iteration that each node costs, over all blocks, ``[N]``.

    The prediction is linear in nodes, non-zeros and labelled rows, up to what a whole network costs but no node does;
    so the share of each comes from predictions for other sizes.
    """
    rates = rates or Rates()

    def predicted(**changes: int) -> float:
        return sum(seconds(c, rates) for c in block_costs(model, replace(sizes, **changes), step))

    n, k = sizes.num_nodes, sizes.num_train
    base = predicted()
    per_node = (predicted(num_nodes=2 * n) - base) / n
    per_edge = (predicted(nnz=2 * sizes.nnz) - base) / max(1, sizes.nnz)
    per_label = (base - predicted(num_train=k // 2)) / (k - k // 2) if k > 1 else 0.0
    degree = _gathered(model, graph).double()
    work = max(per_node, 1e-15) + max(per_edge, 0.0) * degree
    work[graph.labelled(graph.train_mask)] += max(per_label, 0.0)
    if sizes.feature_nnz:
        assert graph.x is not None
        per_feature = (predicted(feature_nnz=2 * sizes.feature_nnz) - base) / sizes.feature_nnz
        work += max(per_feature, 0.0) * graph.x.crow_indices().diff()
    return work


def _gathered(model: Model, graph: Graph) -> Tensor:
    """Non-zeros in each row of S, ``[N]``."""
    loops = int(model.operators[0].loops != 0)
    return torch.bincount(graph.edge_index[1], minlength=graph.num_nodes) + loops


__all__ = ["Plan", "node_work", "sizes_of"]
