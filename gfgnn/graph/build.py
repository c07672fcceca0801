"""Makes a :class:`Graph` from raw arrays; every door (files, PyG, NetworkX, SciPy, generators) ends here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.checks import InputError, check_choice
from gfgnn.graph.edges import clean_edges
from gfgnn.graph.features import compact
from gfgnn.graph.graph import Graph
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
) -> Graph:
    """The graph of :meth:`gfgnn.Graph.from_edges`, where the arguments are described."""
    if num_nodes < 1:
        raise InputError(f"the graph is empty: num_nodes is {num_nodes}. A graph needs at least one node.")
    edges = clean_edges(
        _numpy(edge_index),
        num_nodes,
        None if edge_weight is None else _numpy(edge_weight),
        symmetrise=symmetrise,
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
        x=None if x is None else compact(torch.as_tensor(x)),
        edge_weight=None if edges.edge_weight is None else torch.from_numpy(edges.edge_weight).float(),
        directed=edges.directed,
        task=task,
        name=name,
        node_ids=node_ids,
        notes=notes + edges.notes,
    )


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
    labels = torch.as_tensor(y)
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
        if labels.dim() != 1 or not bool(
            (known == known.round() if known.is_floating_point() else known == known).all()
        ):
            raise InputError("y must be one whole class number per node for task 'multiclass'.")
        if labels.is_floating_point():
            labels = torch.nan_to_num(labels, nan=-1.0)
        labels = labels.long()
        return labels, int(labels.max()) + 1 if num_classes is None else num_classes, task
    labels = labels.float()
    labels = labels.unsqueeze(1) if labels.dim() == 1 else labels
    return labels, labels.size(1), task


def _guess_task(labels: Tensor, known: Tensor) -> str:
    whole = not known.is_floating_point() or bool((known == known.round()).all())
    if labels.dim() == 1:
        return "multiclass" if whole else "regression"
    return "multilabel" if bool(((known == 0) | (known == 1)).all()) else "regression"


def as_mask(name: str, value: Any, num_nodes: int) -> Tensor:
    """A bool mask ``[N]`` from a mask, from node numbers, or from None (no node)."""
    if value is None:
        return torch.zeros(num_nodes, dtype=torch.bool)
    value = torch.as_tensor(value)
    if value.dtype == torch.bool:
        if value.shape != (num_nodes,):
            raise InputError(f"{name}_mask must have shape [{num_nodes}]; got {list(value.shape)}.")
        return value.clone()
    if value.is_floating_point() or value.dim() != 1:
        raise InputError(f"{name} must be a bool mask [{num_nodes}] or a list of node numbers.")
    value = value.long()
    if value.numel() and (int(value.min()) < 0 or int(value.max()) >= num_nodes):
        bad = int(value.min()) if int(value.min()) < 0 else int(value.max())
        raise InputError(
            f"the {name} split names node {bad}, which does not exist: nodes are 0 to {num_nodes - 1}."
        )
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[value] = True
    return mask


def _numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
