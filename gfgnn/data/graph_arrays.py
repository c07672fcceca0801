"""A graph as plain arrays and back, exactly and without a copy: what a cache of mapped files holds."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.graph.edges import EdgeList
from gfgnn.graph.features import csr_tensor, is_sparse
from gfgnn.graph.graph import Graph

#: fields of a graph that are no tensors, and how they are read
PLAIN = {"num_nodes": int, "num_classes": int, "directed": bool, "task": str, "name": str}


def graph_to_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """Every field that is there, by its name; sparse features as ``x_indptr`` and so on, raw edges as ``raw_*``."""
    arrays: dict[str, np.ndarray] = {"notes": np.array(graph.notes, dtype=np.str_)}
    arrays |= {name: np.array(getattr(graph, name)) for name in PLAIN}
    arrays |= {name: value.numpy() for name, value in _tensors(graph).items()}
    if graph.x is not None and is_sparse(graph.x):
        arrays |= {
            "x_indptr": graph.x.crow_indices().numpy(),
            "x_indices": graph.x.col_indices().numpy(),
            "x_data": graph.x.values().numpy(),
            "x_shape": np.array(graph.x.shape),
        }
    if graph.raw is not None:
        arrays |= {f"raw_{name}": value.numpy() for name, value in _tensors(graph.raw).items()}
        arrays["raw_num_relations"] = np.array(graph.raw.num_relations)
    return arrays


def stored_graph(arrays: dict[str, np.ndarray]) -> Graph:
    """The graph of :func:`graph_to_arrays`, whose tensors share the memory of the arrays (mapped: of the files)."""
    known = {f.name for f in fields(Graph)} - {*PLAIN, "notes", "raw"}
    values: dict[str, Any] = {name: torch.from_numpy(arrays[name]) for name in known & set(arrays)}
    values |= {name: kind(arrays[name]) for name, kind in PLAIN.items()}
    if "x_indptr" in arrays:
        indptr, indices, data = (
            torch.from_numpy(arrays[f"x_{part}"]) for part in ("indptr", "indices", "data")
        )
        rows, columns = arrays["x_shape"].tolist()
        values["x"] = csr_tensor(indptr, indices, data, (rows, columns))
    if "raw_num_relations" in arrays:
        parts = {
            name: torch.from_numpy(arrays[f"raw_{name}"])
            for name in ("edge_index", "edge_weight", "edge_type")
            if f"raw_{name}" in arrays
        }
        values["raw"] = EdgeList(**parts, num_relations=int(arrays["raw_num_relations"]))
    return Graph(**values, notes=tuple(arrays["notes"].tolist()))


def _tensors(owner: Graph | EdgeList) -> dict[str, Tensor]:
    """Dense tensors among the fields."""
    found = {f.name: getattr(owner, f.name) for f in fields(owner)}
    return {name: v for name, v in found.items() if isinstance(v, Tensor) and v.layout == torch.strided}
