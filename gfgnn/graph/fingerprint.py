"""A short name for what a graph's edges are, to tell whether a stored result belongs to a graph."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from gfgnn.graph.edges import EdgeList
from gfgnn.graph.graph import Graph
from gfgnn.graph.pieces import pieces

HEX_DIGITS = 32


def fingerprint(graph: Graph) -> str:
    """SHA-256 over number of nodes, edges and weights, the first 32 hex digits.

    Features, labels and split do not enter. Edges of a graph are sorted, so the order in which they were given does
    not matter; weights count as float64, and all ones differ from none. Where edges have relations, the edges as
    given and their relations enter too, sorted likewise; edges kept only because cleaning changed them do not.
    """
    digest = hashlib.sha256(f"{graph.num_nodes},{graph.num_edges};".encode())
    _add(digest, graph.edge_index, "<i8")
    if graph.edge_weight is not None:
        _add(digest, graph.edge_weight, "<f8")
    if graph.raw is not None and graph.raw.edge_type is not None:
        _add_relations(digest, graph.raw)
    return digest.hexdigest()[:HEX_DIGITS]


def _add(digest: hashlib._Hash, values: Tensor, kind: str) -> None:
    for row in np.atleast_2d(values.numpy()):
        for piece in pieces(row.size):
            digest.update(np.ascontiguousarray(row[piece], dtype=kind).data)


def _add_relations(digest: hashlib._Hash, raw: EdgeList) -> None:
    """The edges as given, sorted by (relation, target, source, weight)."""
    assert raw.edge_type is not None
    digest.update(f";{raw.num_relations},{raw.num_edges};".encode())
    keys = [raw.edge_index[0].numpy(), raw.edge_index[1].numpy(), raw.edge_type.numpy()]
    if raw.edge_weight is not None:
        keys.insert(0, raw.edge_weight.numpy())
    order = torch.from_numpy(np.lexsort(keys))
    _add(digest, raw.edge_index[:, order], "<i8")
    _add(digest, raw.edge_type[order], "<i8")
    if raw.edge_weight is not None:
        _add(digest, raw.edge_weight[order], "<f8")
