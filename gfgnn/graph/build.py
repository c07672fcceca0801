"""Makes a :class:`Graph` from raw arrays; every door (files, PyG, NetworkX, SciPy, generators) ends here."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError, check_choice
from gfgnn.graph.edges import CleanEdges, EdgeList, clean_edges
from gfgnn.graph.features import compact
from gfgnn.graph.graph import Graph
from gfgnn.graph.raw import check_edge_type, given_edges
from gfgnn.graph.validate import TASKS


def build_graph(
    edge_index: Any,
    num_nodes: int,
    *,
    x: Any = None,
    y: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    edge_weight: Any = None,
    num_classes: int | None = None,
    task: str | None = None,
    symmetrise: bool = False,
    name: str = "graph",
    node_ids: Tensor | None = None,
    notes: tuple[str, ...] = (),
    edge_type: Any = None,
    num_relations: int | None = None,
    keep_raw: bool = False,
) -> Graph:
    """The graph of :meth:`gfgnn.Graph.from_edges`, where the arguments are described."""
    num_nodes = as_count("num_nodes", num_nodes)
    if num_nodes < 1:
        raise InputError(f"the graph is empty: num_nodes is {num_nodes}. A graph needs at least one node.")
    if num_classes is not None and (num_classes := as_count("num_classes", num_classes)) < 0:
        raise InputError(f"num_classes must be at least 0; got {num_classes}.")
    given = as_array("edge_index", edge_index)
    weight = None if edge_weight is None else as_array("edge_weight", edge_weight)
    edges, raw = _edges(
        given, num_nodes, weight, edge_type, num_relations, symmetrise=symmetrise, keep_raw=keep_raw
    )
    labels, classes, task = as_labels(y, num_nodes, num_classes, task)
    return Graph(
        edge_index=torch.from_numpy(edges.edge_index),
        num_nodes=num_nodes,
        y=labels,
        num_classes=classes,
        train_mask=as_mask("train", train_mask, num_nodes),
        val_mask=as_mask("val", val_mask, num_nodes),
        test_mask=as_mask("test", test_mask, num_nodes),
        x=None if x is None else compact(as_numbers("x", x)),
        edge_weight=None if edges.edge_weight is None else torch.from_numpy(edges.edge_weight).float(),
        directed=edges.directed,
        task=task,
        name=name,
        node_ids=node_ids,
        notes=notes + edges.notes,
        raw=raw,
    )


def _edges(
    edge_index: NDArray[Any],
    num_nodes: int,
    weight: NDArray[Any] | None,
    edge_type: Any,
    num_relations: int | None,
    *,
    symmetrise: bool,
    keep_raw: bool,
) -> tuple[CleanEdges, EdgeList | None]:
    """The edges cleaned, and as given where they have relations or, on request, where cleaning lost some."""
    if num_relations is not None:
        num_relations = as_count("num_relations", num_relations)
    if edge_type is None:
        check_edge_type(None, 0, num_relations)
        edges = clean_edges(edge_index, num_nodes, weight, symmetrise=symmetrise)
        kept = keep_raw and edges.lossy
        return edges, given_edges(edge_index, num_nodes, weight, symmetrise=symmetrise) if kept else None
    kind = as_array("edge_type", edge_type)
    raw = given_edges(edge_index, num_nodes, weight, kind, num_relations, symmetrise=symmetrise)
    # an edge and a reverse edge of two relations are no pair: mirrored above, within relations, then merged here, and
    # symmetrised once more, because sums of the same weights in another order may differ by rounding
    weight = None if raw.edge_weight is None else raw.edge_weight.numpy()
    edges = clean_edges(raw.edge_index.numpy(), num_nodes, weight, symmetrise=symmetrise)
    if symmetrise:
        note = f"symmetrised within relations: {edge_index.shape[1]:,} given edges became {raw.num_edges:,}"
        edges = replace(edges, notes=(note, *edges.notes[:-1]))
    return edges, raw


def as_labels(y: Any, num_nodes: int, num_classes: int | None, task: str | None) -> tuple[Tensor, int, str]:
    """Labels in the form :class:`Graph` keeps, the number of classes, and the task.

    Where ``task`` is None it is read off ``y``: whole numbers ``[N]`` or ``[N, 1]`` are ``multiclass``, a matrix of 0
    and 1 is ``multilabel``, everything else ``regression``. Without ``y`` every node is unlabelled. NaN in floating
    point class numbers means unknown.
    """
    if task is not None:
        check_choice("task", task, TASKS)
    if y is None:
        if task in (None, "multiclass"):
            return torch.full((num_nodes,), -1), num_classes or 0, "multiclass"
        return torch.full((num_nodes, num_classes or 1), float("nan")), num_classes or 1, str(task)
    labels = as_numbers("y", y)
    if labels.dim() not in (1, 2) or labels.size(0) != num_nodes:
        raise InputError(
            f"y must have one row per node, [{num_nodes}] or [{num_nodes}, C]; got {list(labels.shape)}."
        )
    if labels.dim() == 2 and labels.size(1) == 1:
        labels = labels.squeeze(1)
    known = labels[~torch.isnan(labels)] if labels.is_floating_point() else labels
    if task is None:
        task = _guess_task(labels, known)
    if task == "multiclass":
        if labels.dim() != 1 or not _whole(known):
            raise InputError("y must be one whole class number per node for task 'multiclass'.")
        if labels.is_floating_point():
            labels = torch.nan_to_num(labels, nan=-1.0)
        labels = labels.long()
        return labels, int(labels.max()) + 1 if num_classes is None else num_classes, task
    labels = labels.float()
    labels = labels.unsqueeze(1) if labels.dim() == 1 else labels
    return labels, labels.size(1), task


def _guess_task(labels: Tensor, known: Tensor) -> str:
    if labels.dim() == 1:
        return "multiclass" if _whole(known) else "regression"
    return "multilabel" if bool(((known == 0) | (known == 1)).all()) else "regression"


def _whole(known: Tensor) -> bool:
    return not known.is_floating_point() or bool((torch.isfinite(known) & (known == known.round())).all())


def as_mask(name: str, value: Any, num_nodes: int) -> Tensor:
    """A bool mask ``[N]`` from a mask, from node numbers, or from None (no node)."""
    if value is None:
        return torch.zeros(num_nodes, dtype=torch.bool)
    value = as_numbers(f"{name}_mask", value)
    if value.dtype == torch.bool:
        if value.shape != (num_nodes,):
            raise InputError(f"{name}_mask must have shape [{num_nodes}]; got {list(value.shape)}.")
        return value.clone()
    if value.dim() != 1 or (value.is_floating_point() and value.numel()):
        raise InputError(
            f"{name} must be a bool mask [{num_nodes}] or a list of node numbers; got {value.dtype} "
            f"{list(value.shape)}."
        )
    value = value.long()
    if value.numel() and (int(value.min()) < 0 or int(value.max()) >= num_nodes):
        bad = int(value.min()) if int(value.min()) < 0 else int(value.max())
        raise InputError(
            f"the {name} split names node {bad}, which does not exist: nodes are 0 to {num_nodes - 1}."
        )
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[value] = True
    if (
        repeated := value.numel() - int(mask.sum())
    ) > 0:  # most often a mask of 0 and 1, which would be misread
        raise InputError(
            f"the {name} split repeats {repeated:,} node numbers; give each node once, or a mask of type bool."
        )
    return mask


def as_count(name: str, value: Any) -> int:
    """``value`` as an int; :class:`InputError` unless it is one whole number."""
    try:
        return operator.index(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be one whole number; got {value!r}.") from None


def as_numbers(name: str, value: Any) -> Tensor:
    """``value`` as a tensor: tensors, arrays, lists, data frames and SciPy sparse matrices of real numbers."""
    if hasattr(value, "tocoo"):
        coo = value.tocoo()
        indices = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        values = as_numbers(name, coo.data).float()
        value = torch.sparse_coo_tensor(indices, values, coo.shape, check_invariants=True).coalesce()
    if not isinstance(value, Tensor):
        array = as_array(name, value)
        try:
            value = torch.as_tensor(array if array.flags.writeable else array.copy())
        except TypeError:
            raise InputError(f"{name} must hold numbers; got {array.dtype}.") from None
    if value.is_complex():
        raise InputError(f"{name} must hold real numbers; got {value.dtype}.")
    return value.detach().cpu()


def as_array(name: str, value: Any) -> np.ndarray:
    """``value`` as an array, whatever it holds; :class:`InputError` where rows differ in length."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"{name} must be an array or nested lists of one length: {error}.") from None
