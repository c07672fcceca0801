"""The raw files of each data set as arguments of :func:`gfgnn.graph.build.build_graph`, and the years of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gfgnn.checks import InputError
from gfgnn.data.npz import cast, read_arrays
from gfgnn.data.ogb.mag import read_mag
from gfgnn.data.ogb.tables import pieces, read_table
from gfgnn.graph.edges import check_edge_index

#: edge features of ogbn-proteins, and so features of its nodes
PROTEIN_FEATURES = 8


def read_raw(name: str, raw: Path, symmetrise: bool) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """Edges, features and labels of data set ``name`` from its folder ``raw``, and years ``[N]`` where known."""
    if name == "ogbn-mag":
        return read_mag(raw, symmetrise)
    if name == "ogbn-papers100M":
        arguments, year = _read_binary(raw)
    elif name == "ogbn-proteins":
        arguments, year = _read_proteins(raw), None
    else:
        arguments, year = _read_csv(raw)
    return arguments | {"symmetrise": symmetrise}, year


def _read_csv(raw: Path) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    y = read_table(raw / "node-label.csv.gz", np.float64)
    nodes = len(y)
    year = raw / "node_year.csv.gz"
    return {
        "edge_index": _edges(raw),
        "num_nodes": nodes,
        "x": torch.from_numpy(read_table(raw / "node-feat.csv.gz", np.float32, nodes)),
        "y": y,
    }, read_table(year, np.int64, nodes).ravel() if year.is_file() else None


def _read_proteins(raw: Path) -> dict[str, Any]:
    """As in OGB's own examples a protein's features are the mean of those of its edges, zeros where it has none."""
    y = read_table(raw / "node-label.csv.gz", np.float64)
    edge_index = _edges(raw)
    return {
        "edge_index": edge_index,
        "num_nodes": len(y),
        "x": torch.from_numpy(_mean_of_edges(raw / "edge-feat.csv.gz", edge_index, len(y))),
        "y": y,
        "task": "multilabel",
    }


def _edges(raw: Path) -> NDArray[np.int64]:
    """``[2, E]``; OGB writes E beside the edges."""
    count = raw / "num-edge-list.csv.gz"
    rows = int(read_table(count, np.int64)[0, 0]) if count.is_file() else None
    return read_table(raw / "edge.csv.gz", np.int64, rows).T


def _mean_of_edges(path: Path, edge_index: NDArray[np.int64], num_nodes: int) -> NDArray[np.float32]:
    """``[N, 8]``: the mean of the rows of ``path``, one for each edge, over the edges that end or begin at a node."""
    check_edge_index(edge_index, num_nodes)
    total = np.zeros((num_nodes, PROTEIN_FEATURES))
    begin = 0
    for piece in pieces(path, np.float64):
        ends = edge_index[:, begin : begin + len(piece)]
        begin += len(piece)
        if piece.shape[1] != PROTEIN_FEATURES or begin > edge_index.shape[1]:
            break
        for node in ends:
            for column in range(PROTEIN_FEATURES):
                total[:, column] += np.bincount(node, piece[:, column], num_nodes)
    if piece.shape[1] != PROTEIN_FEATURES or begin != edge_index.shape[1]:
        raise InputError(
            f"{path} must have {PROTEIN_FEATURES} numbers for each of {edge_index.shape[1]:,} edges; got "
            f"{piece.shape[1]} and {begin:,} rows or more."
        )
    degree = np.bincount(edge_index.ravel(), minlength=num_nodes)
    return (total / np.maximum(degree, 1)[:, None]).astype(np.float32)


def _read_binary(raw: Path) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """Most papers have no label: NaN."""
    arrays = read_arrays(raw / "data.npz")
    labels = read_arrays(raw / "node-label.npz")
    if lacking := [key for key in ("edge_index", "node_feat") if key not in arrays]:
        raise InputError(f"{raw / 'data.npz'} has no {' and no '.join(lacking)}; it has {', '.join(arrays)}.")
    if "node_label" not in labels:
        raise InputError(f"{raw / 'node-label.npz'} has no node_label; it has {', '.join(labels)}.")
    x = cast(arrays, "node_feat", np.float32)
    year = cast(arrays, "node_year", np.int64).ravel() if "node_year" in arrays else None
    return {
        "edge_index": arrays["edge_index"],
        "num_nodes": len(x),
        "x": torch.from_numpy(x),
        "y": cast(labels, "node_label", np.float64),
    }, year
