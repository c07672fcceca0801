"""The partitioner that needs no library: Linear Deterministic Greedy streaming, then label propagation.

LDG is Stanton and Kliot, *Streaming graph partitioning for large distributed graphs*, KDD 2012: a node goes to the
part that maximises ``|neighbours there| * (1 - load / capacity)``. Nodes are taken in chunks, which do not see each
other, so that everything is NumPy. Label propagation under the same capacities (Ugander and Backstrom, WSDM 2013)
then moves nodes to where more of their neighbours are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee

from gfgnn.graph.partition.problem import PartitionProblem
from gfgnn.graph.pieces import row_pieces, rows_named

ROUNDS = 12  #: of label propagation, at most
SETTLED = 1e-3  #: share of nodes moved in a round below which it ends
LEAD = 0.02  #: share of its capacity by which a part may run ahead of the stream; for several constraints
CHUNKS, CHUNKS_PER_PART = (
    256,
    32,
)  #: at least so many chunks: one must be small beside a part, or it overfills it


def assign(problem: PartitionProblem, *, in_order: bool = False) -> NDArray[np.int64]:
    """The part of every node, ``[N]``: the better of two streams, one in random and one in breadth-first order.

    Random order suits dense communities, breadth-first order graphs with long distances; neither is known beforehand.

    Args:
        in_order: take the nodes by their numbers instead, again and again, so that edges which lie in a file are read
            from front to end, and copied nowhere.
    """
    if in_order:
        return Stream(problem).run(np.arange(problem.num_nodes), None)
    rng = np.random.default_rng(problem.seed)
    orders = [rng.permutation(problem.num_nodes), breadth_first(problem.matrix())]
    answers = [Stream(problem).run(order, rng) for order in orders]
    return min(answers, key=problem.count_cut)


def breadth_first(matrix: object) -> NDArray[np.int64]:
    """All nodes, component after component, each breadth first from a node with few neighbours (Cuthill-McKee)."""
    return reverse_cuthill_mckee(matrix, symmetric_mode=True)[::-1].astype(np.int64)


class Stream:
    """One assignment in the making, with the load ``[K, R]`` of its parts."""

    def __init__(self, problem: PartitionProblem) -> None:
        self.problem = problem
        self.target, self.capacity = problem.target, problem.capacity
        self.assignment = np.full(problem.num_nodes, -1, dtype=np.int64)
        self.load = np.zeros(self.target.shape, dtype=np.int64)
        self.size = max(1, problem.num_nodes // max(CHUNKS, CHUNKS_PER_PART * problem.num_parts))

    def run(self, order: NDArray[np.int64], rng: np.random.Generator | None) -> NDArray[np.int64]:
        """The assignment of a stream in this order, and of moves in random orders; without ``rng`` in the same."""
        self.stream(order)
        for _ in range(ROUNDS):
            # Nodes that see each other's move are few among these, so larger chunks do no harm here.
            shuffled = order if rng is None else rng.permutation(self.problem.num_nodes)
            moved = sum(self.refine(nodes) for nodes in _chunks(shuffled, 4 * self.size))
            if moved <= SETTLED * self.problem.num_nodes:
                break
        return self.assignment

    def stream(self, order: NDArray[np.int64]) -> None:
        """Places all nodes.

        Several constraints contradict each other once one part is full of small nodes and another of hubs. So there
        parts fill up evenly while the stream goes on, and half of the imbalance is left for the moves that follow.
        """
        weights, total = self.problem.weights, self.problem.weights.sum(axis=0)
        even = np.maximum((1 + self.problem.imbalance / 2) * self.target, np.ceil(self.target))
        streamed = np.zeros_like(total)
        for nodes in _chunks(order, self.size):
            streamed += weights[nodes].sum(axis=0)
            if total.size > 1:
                self.capacity = even * np.minimum(1, streamed / total + LEAD)
            self.place(nodes)
        self.capacity = self.problem.capacity

    def place(self, nodes: NDArray[np.int64]) -> None:
        """Gives new nodes a part; those that the one they want turns away choose again among those with room."""
        slack = 1 - (self.load / self.capacity).max(axis=1)
        # The small constant sends nodes without placed neighbours to the emptiest part.
        score = (self.neighbour_counts(nodes) + 1e-3) * slack
        while nodes.size:
            score[self.has_no_room(nodes)] = -np.inf
            wanted, best = score.argmax(axis=1), score.max(axis=1)
            possible = np.isfinite(best)
            self.place_anywhere(nodes[~possible])
            nodes, score, wanted, best = nodes[possible], score[possible], wanted[possible], best[possible]
            fits = self.fits(nodes, wanted, best)
            self.move(nodes[fits], wanted[fits])
            nodes, score = nodes[~fits], score[~fits]

    def place_anywhere(self, nodes: NDArray[np.int64]) -> None:
        """Puts nodes for which no part has room (heavy ones, or constraints that clash) where they overfill least."""
        for node in nodes:
            relative = (self.load + self.problem.weights[node]) / self.target
            self.move(np.array([node]), np.array([relative.max(axis=1).argmin()]))

    def refine(self, nodes: NDArray[np.int64]) -> int:
        """Moves nodes to the part with most of their neighbours, as far as there is room; how many moved."""
        counts = self.neighbour_counts(nodes)
        row, home = np.arange(nodes.size), self.assignment[nodes]
        at_home = counts[row, home]
        counts[self.has_no_room(nodes)] = -1
        wanted = counts.argmax(axis=1)
        gain = counts[row, wanted] - at_home
        better = gain > 0
        nodes, wanted, gain = nodes[better], wanted[better], gain[better]
        fits = self.fits(nodes, wanted, gain)
        self.move(nodes[fits], wanted[fits])
        return int(fits.sum())

    def has_no_room(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each node is too heavy for what is left of each part, ``[len(nodes), K]``."""
        return np.asarray((self.problem.weights[nodes][:, None, :] > self.capacity - self.load).any(axis=2))

    def neighbour_counts(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many neighbours of each node are in each part, ``[len(nodes), K]``; unplaced ones do not count."""
        indptr, indices, k = self.problem.indptr, self.problem.indices, self.problem.num_parts
        start, end = indptr[nodes], np.concatenate([[0], np.cumsum(indptr[nodes + 1] - indptr[nodes])])
        counts = np.empty((nodes.size, k), dtype=np.int64)
        for first, last in row_pieces(end):
            row = rows_named(end, first, last)
            position = np.arange(end[first], end[last]) + (start - end[:-1])[row]
            part = self.assignment[indices[position]]
            row -= first
            placed = part >= 0
            found = np.bincount(row[placed] * k + part[placed], minlength=(last - first) * k)
            counts[first:last] = found.reshape(last - first, k)
        return counts

    def fits(
        self, nodes: NDArray[np.int64], wanted: NDArray[np.int64], priority: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Which nodes the parts they want have room for when they enter in order of priority."""
        order = np.lexsort((-priority, wanted))
        part = wanted[order]
        entered = np.cumsum(self.problem.weights[nodes[order]], axis=0)
        first = np.searchsorted(part, part)  # where the run of the same part begins
        entered -= np.where(first[:, None] > 0, entered[first - 1], 0)
        fits = np.empty(nodes.size, dtype=bool)
        fits[order] = (entered <= (self.capacity - self.load)[part]).all(axis=1)
        return fits

    def move(self, nodes: NDArray[np.int64], parts: NDArray[np.int64]) -> None:
        before, weights = self.assignment[nodes], self.problem.weights[nodes]
        np.subtract.at(self.load, before[before >= 0], weights[before >= 0])
        np.add.at(self.load, parts, weights)
        self.assignment[nodes] = parts


def _chunks(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[start : start + size] for start in range(0, order.size, size)]
