"""What a partitioning problem must satisfy before METIS sees it, which checks nothing itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gfgnn.checks import InputError
from gfgnn.graph.partition.problem import PartitionProblem
from gfgnn.graph.pieces import row_pieces, rows_named
from gfgnn.graph.symmetry import mirrors_itself

FEWEST_NODES = 4  #: in the smallest part, for METIS


def check_problem(problem: PartitionProblem) -> None:
    """Raises :class:`InputError` unless every array has its type and length and the structure is symmetric.

    Work is linear in the number of edges, which are looked at in pieces.
    """
    for name in ("indptr", "indices", "weights"):
        _check_integers(name, getattr(problem, name))
    _check_rows(problem.indptr, problem.indices)
    _check_symmetric(problem)
    n, weights, shares = problem.num_nodes, problem.weights, problem.shares
    if weights.ndim != 2 or weights.shape[0] != n or weights.shape[1] < 1:
        raise InputError(f"weights must have a row for each of {n} nodes; got shape {list(weights.shape)}.")
    if (weights < 0).any():
        raise InputError(f"weights must not be negative; got {int(weights.min())}.")
    if not (weights.sum(axis=0) > 0).all():
        raise InputError("weights of a constraint are all zero; leave the constraint out.")
    if shares.ndim != 1 or not (shares > 0).all() or not np.isclose(shares.sum(), 1):
        raise InputError(f"shares must be positive and sum to 1; got {shares.tolist()}.")


def exceeded_limit(problem: PartitionProblem, index_dtype: DTypeLike) -> str | None:
    """Why a library whose integers are of ``index_dtype`` cannot hold the problem, or None where it can."""
    limit = int(np.iinfo(np.dtype(index_dtype)).max)
    sizes = {
        "nodes times constraints": problem.weights.size,
        "stored edges": problem.indices.size,
        "total node weight": int(problem.weights.sum(axis=0).max()),
    }
    for name, size in sizes.items():
        if size > limit:
            return f"{size:,} {name} exceed the {limit:,} of its {np.dtype(index_dtype).name} integers"
    return None


def degenerate(problem: PartitionProblem) -> str | None:
    """Why METIS should not be asked, or None where it can be.

    On such problems it bisects sets without nodes, for which it prints to standard output and leaves parts empty, or
    answers far from balanced.
    """
    if problem.indices.size == 0:
        return "the graph has no edges"
    if problem.num_nodes * problem.shares.min() < FEWEST_NODES:
        return f"the smallest part should have fewer than {FEWEST_NODES} nodes"
    heaviest = problem.weights.max(axis=0) / problem.weights.sum(axis=0)
    if heaviest.max() > problem.shares.min() * (1 + 1e-9):
        return "a single node weighs more than the smallest part should"
    return None


def _check_integers(name: str, array: NDArray[np.integer]) -> None:
    if array.dtype != np.int64:
        raise InputError(f"{name} must be int64; got {array.dtype}.")


def _check_rows(indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> None:
    if indptr.ndim != 1 or indices.ndim != 1 or indptr.size < 2:
        raise InputError(
            f"indptr and indices must be one-dimensional, indptr [N + 1]; got {list(indptr.shape)} and "
            f"{list(indices.shape)}."
        )
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise InputError(
            f"indptr must rise from 0 to {indices.size}, the length of indices; it goes from {int(indptr[0])} to "
            f"{int(indptr[-1])}."
        )
    n = indptr.size - 1
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        bad = int(indices.min() if indices.min() < 0 else indices.max())
        raise InputError(f"indices name node {bad}, which does not exist: nodes are 0 to {n - 1}.")
    for first, last in row_pieces(indptr):
        column, row = indices[indptr[first] : indptr[last]], rows_named(indptr, first, last)
        loops = row == column
        if loops.any():
            raise InputError(f"node {int(row[loops.argmax()])} is its own neighbour; loops must be removed.")
        disorder = (row[1:] == row[:-1]) & (column[1:] <= column[:-1])
        if disorder.any():
            raise InputError(
                f"the neighbours of node {int(row[disorder.argmax()])} must be ascending and distinct."
            )


def _check_symmetric(problem: PartitionProblem) -> None:
    if mirrors_itself(problem.indptr, problem.indices):
        return
    row = np.repeat(np.arange(problem.num_nodes), np.diff(problem.indptr))
    stored = row * problem.num_nodes + problem.indices
    single = np.setdiff1d(stored, problem.indices * problem.num_nodes + row)
    one, other = divmod(int(single[0]), problem.num_nodes)
    raise InputError(f"the structure must be symmetric: node {one} has neighbour {other}, but not back.")
