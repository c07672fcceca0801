"""What a graph must satisfy: once when it is made, and once more before it is trained on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gfgnn.checks import InputError, check_choice, check_count
from gfgnn.graph.features import is_sparse, values_of
from gfgnn.ops.memory import page_out

if TYPE_CHECKING:
    from gfgnn.graph.edges import EdgeList
    from gfgnn.graph.graph import Graph

TASKS = ("multiclass", "multilabel", "regression")
#: edges, or numbers of features, looked at at once: they may be mapped from files larger than memory
PIECE = 1 << 20


def check_graph(graph: Graph, changed: frozenset[str] | None = None) -> None:
    """Raises :class:`InputError` unless every field of ``graph`` fits the others. One pass over edges and features.

    Where ``changed`` names fields, the others are known to fit each other: what depends on none of them, and may be
    mapped from files larger than memory, is not read.
    """

    def touched(*names: str) -> bool:
        return changed is None or not changed.isdisjoint({*names, "num_nodes"})

    if graph.num_nodes < 1:
        raise InputError("the graph is empty: it has no nodes. A graph needs at least one node.")
    check_choice("task", graph.task, TASKS)
    if touched("edge_index", "edge_weight"):
        _check_edges(graph)
    if graph.raw is not None and touched("raw"):
        check_edge_list(graph.raw, graph.num_nodes)
    if touched("x"):
        _check_features(graph)
    _check_labels(graph)
    _check_masks(graph)


def check_edge_list(edges: EdgeList, num_nodes: int) -> None:
    """Raises :class:`InputError` unless the fields of ``edges`` fit each other and a graph of ``num_nodes`` nodes."""
    edge_index, weight, kind = edges.edge_index, edges.edge_weight, edges.edge_type
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise InputError(
            f"raw.edge_index must be int64 [2, E]; got {edge_index.dtype} {list(edge_index.shape)}."
        )
    if (bad := _outside(edge_index, num_nodes)) is not None:
        raise InputError(
            f"raw.edge_index names node {bad}, which does not exist: nodes are 0 to {num_nodes - 1}."
        )
    if weight is not None:
        if weight.shape != (edges.num_edges,) or weight.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"raw.edge_weight must be float32 or float64 [{edges.num_edges}], one per edge; got {weight.dtype} "
                f"{list(weight.shape)}."
            )
        if not bool(torch.isfinite(weight).all()):
            raise InputError("raw.edge_weight holds NaN or infinite values.")
    check_count("num_relations", edges.num_relations, 1)
    if kind is None:
        if edges.num_relations != 1:
            raise InputError(
                f"num_relations is {edges.num_relations}, but there is no edge_type; it must say the relation of "
                "every edge, or num_relations must be 1."
            )
        return
    if kind.shape != (edges.num_edges,) or kind.dtype != torch.int64:
        raise InputError(
            f"edge_type must be int64 [{edges.num_edges}], one relation per edge; got {kind.dtype} "
            f"{list(kind.shape)}."
        )
    if (bad := _outside(kind, edges.num_relations)) is not None:
        raise InputError(
            f"edge_type holds {bad}; with num_relations={edges.num_relations} relations are 0 to "
            f"{edges.num_relations - 1}."
        )


def check_trainable(graph: Graph) -> None:
    """Raises :class:`InputError` unless a model can be trained on ``graph``; warns where a class is never seen.

    Isolated nodes are fine, and so is a split without validation or test nodes.
    """
    if graph.x is None:
        raise InputError(
            f"{graph.name} has no node features. Load it with features='structure' (CLI: --features structure), "
            "which makes them from the graph alone."
        )
    if not bool(graph.train_mask.any()):
        raise InputError(
            f"{graph.name} has no training nodes. Give it a split, for example split='per_class=20,val_per_class=30' "
            "or split='train=0.6,val=0.2'."
        )
    labelled = graph.labelled(graph.train_mask)
    if labelled.numel() == 0:
        raise InputError(
            f"none of the {int(graph.train_mask.sum()):,} training nodes of {graph.name} has a label."
        )
    if graph.task != "multiclass":
        return
    counts = torch.bincount(graph.y[labelled], minlength=graph.num_classes)
    seen = int((counts > 0).sum())
    if graph.num_classes < 2 or seen < 2:
        only = int(counts.argmax())
        raise InputError(
            f"all labelled training nodes of {graph.name} are of class {only}; two classes are needed."
        )
    if seen < graph.num_classes:
        absent = (counts == 0).nonzero().squeeze(1).tolist()
        shown = ", ".join(map(str, absent[:10])) + (", ..." if len(absent) > 10 else "")
        warnings.warn(
            f"{len(absent)} of {graph.num_classes} classes have no training node and will hardly be predicted: "
            f"class {shown}.",
            stacklevel=2,
        )


def _check_edges(graph: Graph) -> None:
    edge_index, n = graph.edge_index, graph.num_nodes
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise InputError(f"edge_index must be int64 [2, E]; got {edge_index.dtype} {list(edge_index.shape)}.")
    if (bad := _outside(edge_index, n)) is not None:
        raise InputError(f"edge_index names node {bad}, which does not exist: nodes are 0 to {n - 1}.")
    for begin in range(0, graph.num_edges, PIECE):  # one edge more, to be compared with the last
        source, target = edge_index[:, begin : begin + PIECE + 1]
        key = target * n + source
        if bool((source == target).any()) or not bool((key[1:] > key[:-1]).all()):
            raise InputError(
                "edge_index must be sorted by (target, source) without self-loops or duplicates; "
                "Graph.from_edges brings any edge list into that form."
            )
        page_out([source, target])
    weight = graph.edge_weight
    if weight is not None:
        if weight.shape != (graph.num_edges,):
            raise InputError(f"edge_weight must have shape [{graph.num_edges}]; got {list(weight.shape)}.")
        if not bool(torch.isfinite(weight).all()):
            raise InputError("edge_weight holds NaN or infinite values.")


def _outside(numbers: Tensor, count: int) -> int | None:
    """The smallest number below 0, else the largest from ``count`` on; None where all are 0 to ``count - 1``."""
    if numbers.numel() == 0:
        return None
    low, high = 0, 0
    for piece in numbers.reshape(-1).split(PIECE):
        low, high = min(low, int(piece.min())), max(high, int(piece.max()))
        page_out([piece])
    return low if low < 0 else high if high >= count else None


def _check_features(graph: Graph) -> None:
    x = graph.x
    if x is None:
        return
    if x.dim() != 2 or x.size(0) != graph.num_nodes:
        raise InputError(f"x must have one row per node, [{graph.num_nodes}, F]; got {list(x.shape)}.")
    if x.size(1) == 0:
        raise InputError("x has no columns. Leave x out, or load with features='structure'.")
    values = values_of(x)
    pieces = values.split(PIECE if is_sparse(x) else max(1, PIECE // x.size(1)))
    # the sum is finite wherever all entries are, except where it overflows: there a slow test decides
    wide = torch.promote_types(values.dtype, torch.float32)
    doubtful = []
    for piece in pieces:
        if not bool(torch.isfinite(piece.sum(dtype=wide))):
            doubtful.append(piece)
        page_out([piece])
    if bad := sum(int((~torch.isfinite(piece)).sum()) for piece in doubtful):
        raise InputError(f"x holds {bad:,} NaN or infinite values; features must be finite numbers.")


def _check_labels(graph: Graph) -> None:
    y, n, c = graph.y, graph.num_nodes, graph.num_classes
    if graph.task == "multiclass":
        if y.shape != (n,) or y.dtype != torch.int64:
            raise InputError(f"y must be int64 [{n}] class numbers; got {y.dtype} {list(y.shape)}.")
        low, high = int(y.min()), int(y.max())
        if low < -1 or high >= c:
            bad = low if low < -1 else high
            raise InputError(f"y holds label {bad}; labels must be 0 to {c - 1}, or -1 where unknown.")
        return
    if y.shape != (n, c) or not y.is_floating_point():
        raise InputError(
            f"y must be floating point [{n}, {c}] for {graph.task}; got {y.dtype} {list(y.shape)}."
        )
    known = y[~torch.isnan(y)]
    if graph.task == "multilabel" and not bool(((known == 0) | (known == 1)).all()):
        raise InputError("y must hold 0, 1 or NaN (unknown) for multilabel.")
    if not bool(torch.isfinite(known).all()):
        raise InputError("y holds infinite values.")


def _check_masks(graph: Graph) -> None:
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    for name, mask in masks.items():
        if mask.shape != (graph.num_nodes,) or mask.dtype != torch.bool:
            raise InputError(
                f"{name}_mask must be bool [{graph.num_nodes}]; got {mask.dtype} {list(mask.shape)}."
            )
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        if both := int((masks[one] & masks[other]).sum()):
            raise InputError(
                f"{both:,} nodes are in both {one}_mask and {other}_mask; they must be disjoint."
            )
    if graph.node_ids is not None and graph.node_ids.shape != (graph.num_nodes,):
        raise InputError(f"node_ids must have shape [{graph.num_nodes}]; got {list(graph.node_ids.shape)}.")
