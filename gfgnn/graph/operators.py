"""Which sparse matrix a layer multiplies by: the settings, and the matrix built from a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError, check_choice
from gfgnn.graph.graph import Graph
from gfgnn.graph.propagation import Propagation, make_propagation

NORMS = ("sym", "rw", "none", "given")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A propagation matrix S ``[N, N]`` as settings; :func:`build_operator` makes it from a graph's edges.

    Attributes:
        norm: ``sym``: D^-1/2 A D^-1/2 with D the weighted in-degree (Kipf and Welling 2017); ``rw``: D^-1 A, the mean
            over the neighbours; ``none``: A itself; ``given``: A itself, whose weights are normalised already.
        loops: what is added to the diagonal of A before it is normalised; 0 adds nothing.
        weighted: use the edge weights; False counts every edge as 1.
        raw: take the edges as they were given, with self-loops and repeated edges, as PyG does; False takes the
            cleaned ones.
        remaining: a node that has a self-loop keeps its weight (the last one given) in place of ``loops``; without
            weights it gets ``loops`` all the same. This is what PyG's GCN layers do.
        relation: only the edges of this relation; None takes all.
    """

    norm: str = "sym"
    loops: float = 1.0
    weighted: bool = True
    raw: bool = False
    remaining: bool = False
    relation: int | None = None

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, NORMS)


def build_operator(graph: Graph, operator: Operator) -> Propagation:
    """The propagation matrix of ``graph`` in float64.

    Raises:
        InputError: the graph has no such relation.
    """
    source, target, weight = _edges(graph, operator)
    n = graph.num_nodes
    diagonal = torch.full((n,), float(operator.loops), dtype=torch.float64)
    if operator.remaining:
        loop = source == target
        if operator.weighted and _weights(graph, operator) is not None:
            diagonal[target[loop]] = weight[loop]
        source, target, weight = source[~loop], target[~loop], weight[~loop]
    if operator.loops or operator.remaining:
        nodes = torch.arange(n)
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        weight = torch.cat([weight, diagonal])
    return make_propagation(source, target, weight, n, operator.norm)


def _edges(graph: Graph, operator: Operator) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target and float64 weight of the edges that the operator takes."""
    raw = graph.raw if operator.raw or operator.relation is not None else None
    edge_index = graph.edge_index if raw is None else raw.edge_index
    weight = _weights(graph, operator) if operator.weighted else None
    weight = torch.ones(edge_index.size(1)) if weight is None else weight
    source, target = edge_index
    if operator.relation is None:
        return source, target, weight.double()
    if not 0 <= operator.relation < graph.num_relations:
        raise InputError(
            f"The model multiplies by relation {operator.relation}; {graph.name} has relations 0 to "
            f"{graph.num_relations - 1}."
        )
    if raw is None or raw.edge_type is None:  # one relation: every edge
        return source, target, weight.double()
    chosen = raw.edge_type == operator.relation
    return source[chosen], target[chosen], weight[chosen].double()


def _weights(graph: Graph, operator: Operator) -> Tensor | None:
    if graph.raw is not None and (operator.raw or operator.relation is not None):
        return graph.raw.edge_weight
    return graph.edge_weight


def build_propagation(graph: Graph, norm: str = "sym", self_loops: bool = True) -> Propagation:
    """The propagation matrix of the cleaned edges, with the identity added where ``self_loops``, in float64."""
    return build_operator(graph, Operator(norm=norm, loops=float(self_loops)))
