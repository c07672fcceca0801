"""Answers no run can use, mended: empty parts, and parts that hold far less than their share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from gfgnn.graph.partition.ldg import breadth_first
from gfgnn.graph.partition.problem import PartitionProblem

STARVED = 0.5  #: a part with less than this share of its target is filled up


def repair(problem: PartitionProblem, assignment: NDArray[np.int64]) -> tuple[NDArray[np.int64], str | None]:
    """Fills parts that are empty or hold less than half their share from parts that hold more than theirs.

    Every part has a node afterwards. A usable answer comes back as it is.

    Args:
        problem: with at least as many nodes as parts.
        assignment: ``[N]`` parts, 0 to K - 1.

    Returns:
        The assignment, and a sentence that says what was done, or None.
    """
    mended = assignment.copy()
    mass = (problem.weights / problem.weights.sum(axis=0)).mean(axis=1)  # sums to 1, as the shares do
    load = np.bincount(mended, mass, problem.num_parts)
    count = np.bincount(mended, minlength=problem.num_parts)
    empty = np.flatnonzero(count == 0)
    starved = np.flatnonzero((count > 0) & (load < STARVED * problem.shares))
    for part in [*empty, *starved]:
        _fill(problem, mended, mass, int(part))
    for part in np.flatnonzero(np.bincount(mended, minlength=problem.num_parts) == 0):
        largest = np.bincount(mended).argmax()
        mended[_in_pieces(problem, np.flatnonzero(mended == largest))[0]] = part
    moved = int((mended != assignment).sum())
    if moved == 0:
        return assignment, None
    found = [
        f"{len(parts):,} {name}" for parts, name in ((empty, "empty"), (starved, "starved")) if len(parts)
    ]
    return mended, f"repaired {' and '.join(found)} parts of the answer by moving {moved:,} nodes"


def _fill(
    problem: PartitionProblem, assignment: NDArray[np.int64], mass: NDArray[np.float64], part: int
) -> None:
    """Moves to ``part`` what others hold above their share, the fullest first, until it has its own."""
    load = np.bincount(assignment, mass, problem.num_parts)
    excess = load - problem.shares
    for donor in np.argsort(-excess, kind="stable"):
        amount = min(excess[donor], problem.shares[part] - np.sum(mass[assignment == part]))
        if amount <= 0:
            return
        candidates = np.flatnonzero((assignment == donor) & (mass > 0) & (mass <= amount + 1e-12))
        for node in _in_pieces(problem, candidates):
            if mass[node] <= amount + 1e-12:
                assignment[node] = part
                amount -= mass[node]


def _in_pieces(problem: PartitionProblem, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``nodes`` piece by connected piece, the smallest first, each breadth first.

    Whole pieces cut nothing when they move. A piece that is too large is entered at a node with few neighbours in it,
    as those at its boundary are, and what is taken of it stays connected.
    """
    inside = problem.matrix()[nodes][:, nodes]
    if inside.shape[0] == 0:
        return nodes
    _, piece = connected_components(inside, directed=False)
    order = breadth_first(inside)
    size = np.bincount(piece)[piece]
    return nodes[order[np.argsort(size[order], kind="stable")]]
