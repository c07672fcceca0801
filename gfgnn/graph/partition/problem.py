"""What a partitioner is given: the graph's structure, a weight of every node for each constraint, and the shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gfgnn.graph.edges import clean_edges
from gfgnn.graph.graph import Graph
from gfgnn.graph.pieces import row_pieces

#: what can be balanced: nodes; edges into a part's nodes; labelled training nodes; work as stated for each node
COUNTED = ("nodes", "edges", "labelled")
BALANCE = (*COUNTED, "work")
#: mean weight of a node where its work is balanced; a whole number, as METIS wants
WORK_UNIT = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class PartitionProblem:
    """A partitioning problem in plain arrays.

    Attributes:
        indptr: ``[N + 1]`` int64; the neighbours of node i are ``indices[indptr[i]:indptr[i + 1]]``.
        indices: ``[2E]`` int64, ascending for each node; symmetric, no loops.
        weights: ``[N, R]`` int64, one column for each constraint.
        shares: ``[K]`` float64, sums to 1; the share of every constraint's total that a part should hold.
        imbalance: how far above its share a part may go, 0.03 for 3%.
        seed: of everything random.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    weights: NDArray[np.int64]
    shares: NDArray[np.float64]
    imbalance: float
    seed: int

    @property
    def num_nodes(self) -> int:
        return self.indptr.size - 1

    @property
    def num_parts(self) -> int:
        return self.shares.size

    @property
    def target(self) -> NDArray[np.float64]:
        """Weight that every part should have, ``[K, R]``."""
        return self.shares[:, None] * self.weights.sum(axis=0)

    @property
    def capacity(self) -> NDArray[np.float64]:
        """Most weight a part may have, ``[K, R]``; at least the target rounded up, or nothing could fit."""
        return np.maximum((1 + self.imbalance) * self.target, np.ceil(self.target))

    def load(self, assignment: NDArray[np.int64]) -> NDArray[np.int64]:
        """Weight of every part, ``[K, R]``."""
        total = np.zeros((self.num_parts, self.weights.shape[1]), dtype=np.int64)
        np.add.at(total, assignment, self.weights)
        return total

    def matrix(self) -> Any:
        """The structure as a SciPy CSR matrix of ones ``[N, N]``."""
        return matrix_of_ones(self.indptr, self.indices)

    def count_cut(self, assignment: NDArray[np.int64]) -> int:
        """Undirected edges whose ends lie in different parts."""
        cut = 0
        for first, last in row_pieces(self.indptr):
            home = np.repeat(assignment[first:last], np.diff(self.indptr[first : last + 1]))
            other = assignment[self.indices[self.indptr[first] : self.indptr[last]]]
            cut += int(np.count_nonzero(home != other))
        return cut // 2


def matrix_of_ones(indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> Any:
    """A SciPy CSR matrix ``[N, N]`` with ones at these columns."""
    ones, n = np.ones(indices.size, dtype=np.int8), indptr.size - 1
    return csr_matrix((ones, indices, indptr), shape=(n, n))


def neighbours(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``indptr`` and ``indices`` of the graph's structure without directions and weights.

    Edges of an undirected graph are this structure, and ``indices`` its row of sources, not a copy; those of a
    directed one are mirrored in memory.
    """
    edges = graph.edge_index.numpy()
    if graph.directed:
        edges = clean_edges(edges, graph.num_nodes, symmetrise=True).edge_index
    degree = np.bincount(edges[1], minlength=graph.num_nodes)
    return np.concatenate([[0], np.cumsum(degree)]), np.ascontiguousarray(edges[0])


def node_weights(
    graph: Graph, balance: Sequence[str], work: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """The weight of every node for each of the constraints named, ``[N, R]``; see :data:`BALANCE`."""
    return np.stack([_weight(graph, kind, work) for kind in balance], axis=1)


def _weight(graph: Graph, kind: str, work: NDArray[np.float64] | None) -> NDArray[np.int64]:
    if kind == "work":
        assert work is not None
        unit = min(WORK_UNIT, 2**30 // graph.num_nodes)  # the total must fit METIS's 32-bit integers
        return np.maximum(1, np.rint(work * (unit / work.mean()))).astype(np.int64)
    if kind == "nodes":
        return np.ones(graph.num_nodes, dtype=np.int64)
    if kind == "edges":  # the edges over which a node gathers: the work of its row in a sparse product
        return np.bincount(graph.edge_index[1].numpy(), minlength=graph.num_nodes)
    weight = np.zeros(graph.num_nodes, dtype=np.int64)
    weight[graph.labelled(graph.train_mask).numpy()] = 1
    return weight
