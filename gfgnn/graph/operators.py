"""Which sparse matrix a layer multiplies by: the settings, and the matrix built from a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError, check_choice
from gfgnn.graph.graph import Graph
from gfgnn.graph.pieces import pieces
from gfgnn.graph.propagation import Propagation, make_propagation, normalisation, same
from gfgnn.graph.rows import EdgeRows, in_pieces, whole
from gfgnn.graph.symmetry import mirrors_itself
from gfgnn.ops.spmm import transpose, with_values

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


def build_operator(graph: Graph, operator: Operator, dtype: torch.dtype = torch.float64) -> Propagation:
    """The propagation matrix of ``graph``, computed in float64 and rounded to ``dtype``.

    Of cleaned edges, unless their weights are normalised already, it is made row by row: then memory beside the
    result is a few numbers for each node, and for directed graphs the columns' order for the transpose.

    Raises:
        InputError: the graph has no such relation.
    """
    rows = edge_rows(graph, operator, dtype)
    if rows is not None:
        return _from_rows(rows, dtype)
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
    return make_propagation(source, target, weight, n, operator.norm).to(dtype, "cpu")


@dataclass(frozen=True, eq=False)
class OperatorRows:
    """Rows of S and of S', made from cleaned edges as they are wanted.

    Attributes:
        matrix: S.
        matrix_t: S', the same object where S is symmetric; None where edges have directions: then rows of S' are
            columns of S, and S must be stored to have them.
        scale: u of :class:`gfgnn.graph.propagation.Propagation`, ``[N]`` float64.
    """

    matrix: EdgeRows
    matrix_t: EdgeRows | None
    scale: Tensor


def edge_rows(graph: Graph, operator: Operator, dtype: torch.dtype) -> OperatorRows | None:
    """Rows of S from the cleaned edges of ``graph``; None where the operator takes others, or given weights."""
    raw = graph.raw is not None and (operator.raw or operator.relation is not None)
    if raw or operator.norm == "given":
        return None
    _check_relation(graph, operator)
    source, target = graph.edge_index
    weight = graph.edge_weight if operator.weighted else None
    start = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(target, minlength=graph.num_nodes), 0, out=start[1:])
    loop = float(operator.loops) if operator.loops or operator.remaining else None
    left = right = None
    scale = torch.ones(graph.num_nodes, dtype=torch.float64)
    if operator.norm in ("sym", "rw"):
        left, scale = normalisation(_degrees(start, target, weight, loop), operator.norm)
        right = left if operator.norm == "sym" else None
    matrix = EdgeRows(source, start, weight, loop, left, right, dtype)
    if not mirrors_itself(start.numpy(), source.numpy(), None if weight is None else weight.numpy()):
        return OperatorRows(matrix, None, scale)
    matrix_t = EdgeRows(source, start, weight, loop, right, left, dtype)
    return OperatorRows(matrix, matrix if left is right or _equal(matrix, matrix_t) else matrix_t, scale)


def _degrees(start: Tensor, target: Tensor, weight: Tensor | None, loop: float | None) -> Tensor:
    """Weighted in-degrees with the loop, ``[N]`` float64, each summed in the order of its edges."""
    if weight is None:
        degree = start.diff().double()
    else:
        degree = torch.zeros(start.numel() - 1, dtype=torch.float64)
        for piece in pieces(target.numel()):
            degree.index_add_(0, target[piece], weight[piece].double())
    return degree if loop is None else degree + loop


def _equal(one: EdgeRows, other: EdgeRows) -> bool:
    """Whether two matrices on the same non-zeros are the same."""
    return all(
        torch.equal(one.take(rows).values(), other.take(rows).values())
        for rows in in_pieces(one, torch.arange(one.num_columns))
    )


def _from_rows(rows: OperatorRows, dtype: torch.dtype) -> Propagation:
    matrix = whole(rows.matrix, dtype)
    if rows.matrix_t is rows.matrix:
        matrix_t = matrix
    elif rows.matrix_t is not None:
        matrix_t = with_values(matrix, whole(rows.matrix_t, dtype).values())
    else:
        matrix_t = transpose(matrix)
        if same(matrix, matrix_t):  # so scaled that directions do not show
            matrix_t = matrix
    return Propagation(matrix, matrix_t, rows.scale.to(dtype))


def _edges(graph: Graph, operator: Operator) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target and float64 weight of the edges that the operator takes."""
    raw = graph.raw if operator.raw or operator.relation is not None else None
    edge_index = graph.edge_index if raw is None else raw.edge_index
    weight = _weights(graph, operator) if operator.weighted else None
    weight = torch.ones(edge_index.size(1)) if weight is None else weight
    source, target = edge_index
    if operator.relation is None:
        return source, target, weight.double()
    _check_relation(graph, operator)
    if raw is None or raw.edge_type is None:  # one relation: every edge
        return source, target, weight.double()
    chosen = raw.edge_type == operator.relation
    return source[chosen], target[chosen], weight[chosen].double()


def _check_relation(graph: Graph, operator: Operator) -> None:
    if operator.relation is not None and not 0 <= operator.relation < graph.num_relations:
        raise InputError(
            f"The model multiplies by relation {operator.relation}; {graph.name} has relations 0 to "
            f"{graph.num_relations - 1}."
        )


def _weights(graph: Graph, operator: Operator) -> Tensor | None:
    if graph.raw is not None and (operator.raw or operator.relation is not None):
        return graph.raw.edge_weight
    return graph.edge_weight


def build_propagation(graph: Graph, norm: str = "sym", self_loops: bool = True) -> Propagation:
    """The propagation matrix of the cleaned edges, with the identity added where ``self_loops``, in float64."""
    return build_operator(graph, Operator(norm=norm, loops=float(self_loops)))
