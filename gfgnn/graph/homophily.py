"""How far edges join nodes of the same class."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.graph.graph import Graph
from gfgnn.graph.pieces import pieces

#: Edges between training nodes that the belief in a homophilous graph is worth.
PRIOR_EDGES = 20


def label_homophily(graph: Graph, train_index: Tensor) -> float:
    """Adjusted homophily of the training labels: 1 where all edges join equal classes, 0 where edges ignore them.

    ``(h - sum p_c^2) / (1 - sum p_c^2)`` with h the share of edges between training nodes whose ends agree and p_c the
    share of edge ends in class c (Platonov et al. 2023); drawn towards 1 as if by PRIOR_EDGES further edges, since few
    labels are seldom neighbours. 1 for targets other than classes.
    """
    if graph.task != "multiclass":
        return 1.0
    known = torch.zeros(graph.num_nodes, dtype=torch.bool)
    known[train_index] = True
    ends, same = torch.zeros(graph.num_classes, dtype=torch.int64), 0
    for piece in pieces(graph.num_edges):
        source, target = graph.edge_index[:, piece]
        inside = known[source] & known[target]
        one, other = graph.y[source[inside]], graph.y[target[inside]]
        ends += torch.bincount(torch.cat([one, other]), minlength=graph.num_classes)
        same += int((one == other).sum())
    count = int(ends.sum()) // 2
    if count == 0:
        return 1.0
    agree, shares = same / count, ends.double() / (2 * count)
    chance = float(shares.square().sum())
    adjusted = (agree - chance) / (1.0 - chance) if chance < 1.0 else 1.0
    return (count * adjusted + PRIOR_EDGES) / (count + PRIOR_EDGES)
