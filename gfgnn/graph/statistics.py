"""Numbers that describe a graph, for ``gfgnn data info`` and for rules that choose settings."""

from __future__ import annotations

from typing import Any

import torch

from gfgnn.graph.features import is_sparse, values_of
from gfgnn.graph.graph import Graph


def edge_homophily(graph: Graph) -> float | None:
    """Share of stored edges between two labelled nodes whose classes agree; None where there are none."""
    if graph.task != "multiclass":
        return None
    source, target = graph.y[graph.edge_index]
    known = (source >= 0) & (target >= 0)
    total = int(known.sum())
    return int((known & (source == target)).sum()) / total if total else None


def statistics(graph: Graph) -> dict[str, Any]:
    """Plain numbers, ready for JSON. Degrees are in-degrees; isolated nodes have no edge in either direction."""
    source, target = graph.edge_index
    in_degree = torch.bincount(target, minlength=graph.num_nodes)
    out_degree = torch.bincount(source, minlength=graph.num_nodes)
    everyone = torch.ones(graph.num_nodes, dtype=torch.bool)
    result: dict[str, Any] = {
        "name": graph.name,
        "task": graph.task,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_relations": graph.num_relations,
        "directed": graph.directed,
        "weighted": graph.edge_weight is not None,
        "num_features": graph.num_features,
        "feature_storage": _storage(graph),
        "feature_density": None,
        "num_classes": graph.num_classes,
        "edge_homophily": edge_homophily(graph),
        "mean_degree": graph.num_edges / graph.num_nodes,
        "max_degree": int(in_degree.max()),
        "isolated_nodes": int(((in_degree + out_degree) == 0).sum()),
        "labelled_nodes": graph.labelled(everyone).numel(),
        "train_nodes": int(graph.train_mask.sum()),
        "val_nodes": int(graph.val_mask.sum()),
        "test_nodes": int(graph.test_mask.sum()),
        "train_labelled": graph.labelled(graph.train_mask).numel(),
        "notes": list(graph.notes),
    }
    if graph.x is not None:
        result["feature_density"] = int(values_of(graph.x).count_nonzero()) / graph.x.numel()
    if graph.task == "multiclass":
        known = graph.y[graph.y >= 0]
        result["class_counts"] = torch.bincount(known, minlength=graph.num_classes).tolist()
    return result


def _storage(graph: Graph) -> str:
    if graph.x is None:
        return "none"
    return "sparse" if is_sparse(graph.x) else "dense, fp16" if graph.x.dtype == torch.float16 else "dense"
