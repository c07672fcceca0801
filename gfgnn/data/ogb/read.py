"""The raw files of each data set as arguments of :func:`gfgnn.graph.build.build_graph`, and the years of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError
from gfgnn.data.npy_stream import members
from gfgnn.data.npz import cast, read_arrays
from gfgnn.data.ogb.mag import read_mag
from gfgnn.data.ogb.tables import PIECE, pieces, read_table
from gfgnn.graph.edges import check_edge_index

#: edge features of ogbn-proteins, and so features of its nodes
PROTEIN_FEATURES = 8


def read_raw(
    name: str, raw: Path, symmetrise: bool, work: Path
) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """Edges, features and labels of data set ``name`` from its folder ``raw``, and years ``[N]`` where known.

    Features come as an iterator ``features`` of pieces ``[k, F]`` in the order of the nodes. In place of ``edge_index``
    there may be ``edges``, an iterator of pieces ``[k, 2]``, to be mirrored as asked for. ``work`` is for files.
    """
    if name == "ogbn-mag":
        return read_mag(raw, symmetrise, work)
    if name == "ogbn-papers100M":
        return _read_binary(raw)
    return (_read_proteins(raw), None) if name == "ogbn-proteins" else _read_csv(raw)


def _read_csv(raw: Path) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    y = read_table(raw / "node-label.csv.gz", np.float64)
    nodes = len(y)
    year = raw / "node_year.csv.gz"
    return {
        "edges": _edges(raw),
        "num_nodes": nodes,
        "features": pieces(raw / "node-feat.csv.gz", np.float32, nodes),
        "y": y,
    }, read_table(year, np.int64, nodes).ravel() if year.is_file() else None


def _read_proteins(raw: Path) -> dict[str, Any]:
    """As in OGB's own examples a protein's features are the mean of those of its edges, zeros where it has none."""
    y = read_table(raw / "node-label.csv.gz", np.float64)
    return {
        "edges": _edges(raw),
        "num_nodes": len(y),
        "features": [_mean_of_edges(raw, len(y))],
        "y": y,
        "task": "multilabel",
    }


def _edges(raw: Path, size: int | None = None) -> Iterator[NDArray[np.int64]]:
    """Pieces ``[k, 2]``; OGB writes the number of edges beside them."""
    count = raw / "num-edge-list.csv.gz"
    rows = int(read_table(count, np.int64)[0, 0]) if count.is_file() else None
    return pieces(raw / "edge.csv.gz", np.int64, rows, size)


def _mean_of_edges(raw: Path, num_nodes: int) -> NDArray[np.float32]:
    """``[N, 8]``: the mean of the features of the edges that end or begin at a node."""
    path, size = raw / "edge-feat.csv.gz", PIECE // PROTEIN_FEATURES
    total, degree = np.zeros((num_nodes, PROTEIN_FEATURES)), np.zeros(num_nodes, np.int64)
    for edges, values in zip_longest(_edges(raw, size), pieces(path, np.float64, size=size)):
        if edges is None or values is None or values.shape != (len(edges), PROTEIN_FEATURES):
            raise InputError(
                f"{path} must have {PROTEIN_FEATURES} numbers for each row of edge.csv.gz beside it."
            )
        for node in check_edge_index(edges.T, num_nodes):
            degree += np.bincount(node, minlength=num_nodes)
            for column in range(PROTEIN_FEATURES):
                total[:, column] += np.bincount(node, values[:, column], num_nodes)
    return (total / np.maximum(degree, 1)[:, None]).astype(np.float32)


def _read_binary(raw: Path) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """Most papers have no label: NaN."""
    arrays = members(raw / "data.npz")
    labels = read_arrays(raw / "node-label.npz")
    if lacking := [key for key in ("edge_index", "node_feat") if key not in arrays]:
        raise InputError(f"{raw / 'data.npz'} has no {' and no '.join(lacking)}; it has {', '.join(arrays)}.")
    if "node_label" not in labels:
        raise InputError(f"{raw / 'node-label.npz'} has no node_label; it has {', '.join(labels)}.")
    edges, x, year = arrays["edge_index"], arrays["node_feat"], arrays.get("node_year")
    if edges.shape[0] != 2:
        raise InputError(f"edge_index must have shape [2, E]; got {list(edges.shape)}.")
    if x.kind.kind not in "fiu":
        raise InputError(f"node_feat must hold numbers; got {x.kind}.")
    return {
        "edges": edges.pieces(PIECE // 2, transposed=True),
        "num_nodes": x.shape[0],
        "features": x.pieces(max(1, PIECE // max(1, x.shape[1]))),
        "y": cast(labels, "node_label", np.float64),
    }, None if year is None else np.concatenate(list(year.pieces(PIECE))).astype(np.int64).ravel()
