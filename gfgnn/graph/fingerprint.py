"""A short name for what a graph's edges are, to tell whether a stored result belongs to a graph."""

from __future__ import annotations

import hashlib

import numpy as np

from gfgnn.graph.graph import Graph

HEX_DIGITS = 32


def fingerprint(graph: Graph) -> str:
    """SHA-256 over number of nodes, edges and weights, the first 32 hex digits.

    Features, labels and split do not enter. Edges of a graph are sorted, so the order in which they were given does
    not matter; weights count as float64, and all ones differ from none.
    """
    digest = hashlib.sha256(f"{graph.num_nodes},{graph.num_edges};".encode())
    digest.update(np.ascontiguousarray(graph.edge_index.numpy(), dtype="<i8").data)
    if graph.edge_weight is not None:
        digest.update(np.ascontiguousarray(graph.edge_weight.numpy(), dtype="<f8").data)
    return digest.hexdigest()[:HEX_DIGITS]
