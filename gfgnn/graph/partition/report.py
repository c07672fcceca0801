"""What a partition costs: edges cut, halo rows, balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.graph.graph import Graph
from gfgnn.graph.partition.problem import COUNTED, node_weights
from gfgnn.graph.pieces import pieces, row_pieces


@dataclass(frozen=True, kw_only=True)
class PartitionReport:
    """Figures of a partition into K parts.

    Attributes:
        num_edges: undirected edges of the graph.
        edge_cut: those of them whose ends lie in different parts.
        cut_share: ``edge_cut / num_edges``, 0 without edges.
        halo: ``[K]`` nodes of other parts from which an edge leads into the part: rows it needs a copy of.
        replication_factor: (N + all halo rows) / N, the copies of a node that exist on average.
        nodes, edges, labelled: ``[K]`` nodes owned, stored edges that lead into them, labelled training nodes.
        balance: for each of these, the maximum over the parts of ``count / (share * total)``; 1 is perfect.
        target_shares: ``[K]``, sums to 1.
    """

    num_edges: int
    edge_cut: int
    cut_share: float
    halo: tuple[int, ...]
    replication_factor: float
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    labelled: tuple[int, ...]
    balance: dict[str, float]
    target_shares: tuple[float, ...]

    def describe(self) -> str:
        """A line about the cut, and a table with a row for each part."""
        header = ["part", "share", "nodes", "edges", "labelled", "halo rows"]
        rows = [
            [str(part), f"{share:.3f}", *(f"{count:,}" for count in counts)]
            for part, (share, *counts) in enumerate(
                zip(self.target_shares, self.nodes, self.edges, self.labelled, self.halo, strict=True)
            )
        ]
        rows.append(["max/share", "", *(f"{self.balance[kind]:.3f}" for kind in COUNTED), ""])
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
        table = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in [header, *rows]
        ]
        cut = (
            f"edge cut {self.edge_cut:,} of {self.num_edges:,} edges ({self.cut_share:.1%}), "
            f"{sum(self.halo):,} halo rows, replication factor {self.replication_factor:.3f}"
        )
        return "\n".join([cut, *table])


def measure(graph: Graph, assignment: Tensor, target_shares: Sequence[float]) -> PartitionReport:
    """The report on an assignment ``[N]`` to parts of these shares, which sum to 1."""
    part, shares = assignment.numpy(), np.asarray(target_shares, dtype=np.float64)
    num_edges, edge_cut = cut_edges(graph, part)
    halo = halo_rows(graph, part, shares.size)
    counts, balance = {}, {}
    for kind, weight in zip(COUNTED, node_weights(graph, COUNTED).T, strict=True):
        count = np.zeros(shares.size, dtype=np.int64)
        np.add.at(count, part, weight)
        counts[kind] = tuple(count.tolist())
        total = int(count.sum())
        balance[kind] = float((count / (shares * total)).max()) if total else 1.0
    return PartitionReport(
        num_edges=num_edges,
        edge_cut=edge_cut,
        cut_share=edge_cut / num_edges if num_edges else 0.0,
        halo=tuple(halo.tolist()),
        replication_factor=1 + int(halo.sum()) / graph.num_nodes,
        balance=balance,
        target_shares=tuple(shares.tolist()),
        **counts,
    )


def cut_edges(graph: Graph, assignment: NDArray[np.int64]) -> tuple[int, int]:
    """Undirected edges of the graph, and those of them between different parts; both directions are one edge."""
    source, target = graph.edge_index.numpy()
    if not graph.directed:
        cut = (np.count_nonzero(assignment[source[p]] != assignment[target[p]]) for p in pieces(source.size))
        return source.size // 2, int(sum(cut)) // 2
    pairs = _distinct(np.minimum(source, target) * graph.num_nodes + np.maximum(source, target))
    low, high = np.divmod(pairs, graph.num_nodes)
    return pairs.size, int(np.count_nonzero(assignment[low] != assignment[high]))


def halo_rows(graph: Graph, assignment: NDArray[np.int64], num_parts: int) -> NDArray[np.int64]:
    """For every part, the distinct nodes of other parts with an edge into it, ``[K]``."""
    source, target = graph.edge_index.numpy()
    if graph.directed:
        return _halo_rows(source, target, assignment, num_parts)
    # The edges into a node are those out of it, reversed: rows hold all edges of a node, so it is counted in one piece.
    indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=graph.num_nodes))])
    halo = np.zeros(num_parts, dtype=np.int64)
    for first, last in row_pieces(indptr):
        piece = slice(indptr[first], indptr[last])
        halo += _halo_rows(target[piece], source[piece], assignment, num_parts)
    return halo


def _halo_rows(
    source: NDArray[np.int64], target: NDArray[np.int64], assignment: NDArray[np.int64], num_parts: int
) -> NDArray[np.int64]:
    part = assignment[target]
    cut = part != assignment[source]
    pairs = _distinct(part[cut] * assignment.size + source[cut])
    return np.bincount(pairs // assignment.size, minlength=num_parts)


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted distinct keys; for millions of them several times faster than ``numpy.unique``."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) != 0]
