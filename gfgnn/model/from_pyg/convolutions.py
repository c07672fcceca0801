"""What the convolutions of PyG compute, as linear maps of propagated terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gfgnn.graph.operators import Operator
from gfgnn.model.from_pyg.builder import Builder
from gfgnn.model.from_pyg.slots import Part, Piece, Slot
from gfgnn.model.from_pyg.values import Affine, Ref, Table, Unsupported, Value

#: One tensor, or one of the sources and one of the targets.
Features = Value | tuple[Value, Value]

MEANS = ("mean", "MeanAggregation()")
SUMS = ("add", "sum", "SumAggregation()")


@dataclass(frozen=True)
class Edged:
    """The graph as a layer is given it.

    Attributes:
        weighted: with edge weights.
        adjacency: as a sparse matrix, whose repeated edges are summed.
        repeated: whether there are repeated edges.
        typed: with relations.
        given: whether the weights are normalised already, see :func:`gfgnn.graph.propagation.given_scale`.
    """

    weighted: bool = False
    adjacency: bool = False
    repeated: bool = False
    typed: bool = False
    given: bool = False

    @property
    def as_given(self) -> str:
        """The norm of a matrix that a layer takes as it is."""
        return "given" if self.weighted and self.given else "none"


def named(path: str, tensor: str) -> str:
    """The name of a layer's tensor in the module."""
    return f"{path}.{tensor}" if path else tensor


def linear(path: str, layer: Any, table: Table) -> Affine:
    """``table @ weight' + bias`` of a Linear."""
    out, needed = layer.weight.shape
    _check_width(table, needed)
    biases = () if layer.bias is None else ((named(path, "bias"), 1.0),)
    return Affine((Part((Piece(table.refs, Slot(named(path, "weight"))),), biases),), out)


def normalised(conv: Any, edged: Edged, improved: bool = False) -> Operator:
    """The matrix of PyG's ``gcn_norm``.

    With an ``edge_index``, self-loops that exist keep their weights, and ``improved`` changes nothing where there are
    no weights; a sparse matrix has the loops added to its diagonal.
    """
    if not getattr(conv, "normalize", True):
        return Operator(norm=edged.as_given, loops=0.0, weighted=edged.weighted, raw=True)
    if not conv.add_self_loops:
        return Operator(norm="sym", loops=0.0, weighted=edged.weighted, raw=True)
    loops = 2.0 if improved and (edged.weighted or edged.adjacency) else 1.0
    return Operator(norm="sym", loops=loops, weighted=edged.weighted, raw=True, remaining=not edged.adjacency)


def neighbours(conv: Any, edged: Edged) -> Operator:
    """The sum or the mean over the neighbours."""
    mean = conv.aggr in MEANS
    if mean and edged.weighted:
        raise Unsupported(
            "aggr='mean' divides the weighted sum by the number of neighbours, not by their weights; it can be trained "
            "without edge weights, or with aggr='add'"
        )
    if mean and edged.adjacency and edged.repeated:
        raise Unsupported("aggr='mean' over an adj_t of repeated edges; give edge_index or merge the edges")
    return Operator(norm="rw" if mean else edged.as_given, loops=0.0, weighted=edged.weighted, raw=True)


def gcn(make: Builder, path: str, conv: Any, edged: Edged, x: Value) -> Affine:
    """GCNConv: ``S X W + b``."""
    table = make.moved(x, normalised(conv, edged, conv.improved))
    _check_width(table, conv.lin.weight.size(1))
    piece = Piece(table.refs, Slot(named(path, "lin.weight")))
    biases = () if conv.bias is None else ((named(path, "bias"), 1.0),)
    return Affine((Part((piece,), biases),), conv.out_channels)


def sgc(make: Builder, path: str, conv: Any, edged: Edged, x: Value) -> Affine:
    """SGConv: ``S^K X W + b``."""
    table = make.moved(x, normalised(conv, edged), conv.K)
    return linear(named(path, "lin"), conv.lin, table)


def gcn2(make: Builder, path: str, conv: Any, edged: Edged, x: Value, x_0: Value) -> Affine:
    """GCN2Conv: ``((1 - alpha) S X + alpha X_0) W``, or the two products with weights of their own."""
    own, first, alpha = make.single(x), make.single(x_0), float(conv.alpha)
    for ref in (own, first):
        _check_width(Table((ref,)), conv.channels)
    below = Ref(own.source, 1, normalised(conv, edged), (1.0 - alpha) * own.scale)
    initial = first.scaled(alpha)
    slot = Slot(named(path, "weight1"), transposed=False, beta=float(conv.beta))
    if conv.weight2 is not None:
        other = Slot(named(path, "weight2"), transposed=False, beta=float(conv.beta))
        pieces = [piece for piece in (Piece((below,), slot), Piece((initial,), other)) if piece.refs[0].scale]
    elif below.scale and initial.scale:
        both = Ref(below.source, 1, below.operator, below.scale, initial.source, initial.scale)
        pieces = [Piece((both,), slot)]
    else:
        pieces = [Piece((below if below.scale else initial,), slot)]
    return Affine((Part(tuple(pieces)),), conv.channels)


def sage(make: Builder, path: str, conv: Any, edged: Edged, x: Features) -> Affine:
    """SAGEConv: ``X W_r + S X W_l + b``, S being the mean or the sum over the neighbours."""
    return _with_root(make, path, conv, edged, x, "lin_r" if conv.root_weight else None, "lin_l")


def graph_conv(make: Builder, path: str, conv: Any, edged: Edged, x: Features) -> Affine:
    """GraphConv: ``X W_root + A X W_rel + b``."""
    return _with_root(make, path, conv, edged, x, "lin_root", "lin_rel")


def _with_root(
    make: Builder, path: str, conv: Any, edged: Edged, x: Features, root: str | None, related: str
) -> Affine:
    """The node itself and its neighbours, with weights of their own in two Linear layers."""
    source, target = _pair(make, x)
    moved = make.moved(source, neighbours(conv, edged))
    gathered = linear(named(path, related), getattr(conv, related), moved).parts[0]
    if root is None:
        return Affine((gathered,), conv.out_channels)
    own = linear(named(path, root), getattr(conv, root), target).parts[0]
    return Affine((Part(own.pieces + gathered.pieces, gathered.biases + own.biases),), conv.out_channels)


def rgcn(make: Builder, path: str, conv: Any, edged: Edged, x: Features) -> Affine:
    """RGCNConv and FastRGCNConv: ``sum_r S_r X W_r + X W_root + b``."""
    if not edged.typed:
        raise Unsupported("needs edge_index and the edge_type of forward as they are")
    source, target = _pair(make, x)
    norm = "rw" if conv.aggr in MEANS else "none"
    _check_width(source, conv.weight.size(1))
    pieces = []
    for relation in range(conv.num_relations):
        operator = Operator(norm=norm, loops=0.0, weighted=False, raw=True, relation=relation)
        slot = Slot(named(path, "weight"), transposed=False, index=relation)
        pieces.append(Piece(make.moved(source, operator).refs, slot))
    if conv.root is not None:
        _check_width(target, conv.root.size(0))
        pieces.append(Piece(target.refs, Slot(named(path, "root"), transposed=False)))
    biases = () if conv.bias is None else ((named(path, "bias"), 1.0),)
    return Affine((Part(tuple(pieces), biases),), conv.out_channels)


def _pair(make: Builder, x: Features) -> tuple[Table, Table]:
    """Sources and targets; one tensor is settled once, not once for each of the two."""
    if isinstance(x, tuple):
        return make.settled(x[0]), make.settled(x[1])
    table = make.settled(x)
    return table, table


def gathered_with_self(make: Builder, conv: Any, edged: Edged, x: Value) -> Table:
    """What GINConv gives to its network: ``A X + (1 + eps) X``."""
    loops = 1.0 + conv.eps.item()
    return make.moved(x, Operator(norm="none", loops=loops, weighted=edged.weighted, raw=True))


def hop(make: Builder, edged: Edged, x: Value, hops: int) -> Table:
    """``S^hops X`` of :class:`gfgnn.nn.Hops`."""
    return make.moved(x, Operator(norm="sym", loops=0.0, weighted=edged.weighted, raw=True), hops)


#: by class; those that take ``x_0`` or relations are called by name
CONVOLUTIONS: dict[str, Callable[..., Affine]] = {
    "GCNConv": gcn, "SGConv": sgc, "GCN2Conv": gcn2, "SAGEConv": sage, "GraphConv": graph_conv, "RGCNConv": rgcn,
    "FastRGCNConv": rgcn,
}  # fmt: skip


def _check_width(table: Table, needed: int) -> None:
    if table.width != needed:
        raise Unsupported(f"takes {needed} columns and is given {table.width}")
