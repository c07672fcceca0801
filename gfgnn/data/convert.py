"""Graphs from NetworkX and SciPy objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from gfgnn.checks import InputError
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph


def from_scipy(adj: Any, x: Any = None, y: Any = None, **options: Any) -> Graph:
    """A graph from a SciPy sparse adjacency matrix.

    Args:
        adj: ``[N, N]``, any SciPy sparse format; entry (i, j) is an edge from i to j, as in NetworkX and SciPy's
            csgraph. Values are edge weights unless all are 1; as in SciPy, entries stored twice are summed.
        x: ``[N, F]`` features: array, tensor or SciPy sparse matrix.
        y: labels, see :meth:`Graph.from_edges`, as for all ``options``.
    """
    if not sp.issparse(adj):
        raise InputError(f"adj must be a SciPy sparse matrix; got {type(adj).__name__}.")
    if adj.shape[0] != adj.shape[1]:
        raise InputError(f"adj must be square; got shape {list(adj.shape)}.")
    coo = sp.coo_array(adj, copy=True)
    coo.sum_duplicates()
    weight = None if bool((coo.data == 1).all()) else coo.data
    options.setdefault("name", "scipy")
    return build_graph(np.stack([coo.row, coo.col]), adj.shape[0], x=x, y=y, edge_weight=weight, **options)


def from_networkx(
    g: Any,
    *,
    features: str | None = "x",
    label: str | None = "y",
    weight: str | None = "weight",
    **options: Any,
) -> Graph:
    """A graph from a NetworkX graph; nodes are numbered in the order of ``g.nodes``.

    Undirected graphs get both directions of every edge; parallel edges of a multigraph are merged.

    Args:
        features: node attribute with a number or a vector; None or an attribute that no node has: no features.
        label: node attribute with the class number or target; nodes without it are unlabelled.
        weight: edge attribute; where no edge has it, all weights are 1.
        options: see :meth:`Graph.from_edges`; masks may also be bool node attributes ``train_mask`` and so on.
    """
    if not hasattr(g, "is_directed"):
        raise InputError(f"g must be a NetworkX graph; got {type(g).__name__}.")
    nodes = list(g.nodes)
    number = {node: i for i, node in enumerate(nodes)}
    edges = [(number[u], number[v]) for u, v in g.edges()]
    edge_index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    for part in ("train_mask", "val_mask", "test_mask"):
        found = [bool(g.nodes[node].get(part, False)) for node in nodes]
        options.setdefault(part, torch.tensor(found) if any(found) else None)
    options.setdefault("name", "networkx")
    options.setdefault("symmetrise", not g.is_directed())
    return build_graph(
        edge_index,
        len(nodes),
        x=_node_features(g, nodes, features),
        y=_node_labels(g, nodes, label),
        edge_weight=_edge_weights(g, weight),
        **options,
    )


def _node_features(g: Any, nodes: list[Any], key: str | None) -> np.ndarray | None:
    having = [node for node in nodes if key is not None and key in g.nodes[node]]
    if not having:
        return None
    if len(having) < len(nodes):
        missing = next(node for node in nodes if key not in g.nodes[node])
        raise InputError(
            f"{len(nodes) - len(having)} nodes have no attribute {key!r}, for example {missing!r}."
        )
    try:
        return np.array([np.atleast_1d(g.nodes[node][key]) for node in nodes], dtype=np.float32)
    except ValueError as error:
        raise InputError(
            f"node attribute {key!r} must be vectors of numbers of one length: {error}"
        ) from error


def _node_labels(g: Any, nodes: list[Any], key: str | None) -> np.ndarray | None:
    values = [g.nodes[node].get(key) for node in nodes]
    if key is None or all(value is None for value in values):
        return None
    width = max(np.size(value) for value in values if value is not None)
    unknown = np.full(width, np.nan)
    try:
        labels = np.array([unknown if v is None else np.atleast_1d(v) for v in values], dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"node attribute {key!r} must be class numbers or vectors of one length: {error}"
        ) from error
    return labels[:, 0] if width == 1 else labels


def _edge_weights(g: Any, key: str | None) -> np.ndarray | None:
    if key is None:
        return None
    values = [value for _, _, value in g.edges(data=key)]
    if all(value is None for value in values):
        return None
    try:
        return np.array([1.0 if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"edge attribute {key!r} must be one number per edge: {error}") from error
