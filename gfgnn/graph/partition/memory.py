"""The memory that partitioners take beside the graph, told before they are called."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from gfgnn.graph.partition.problem import PartitionProblem

#: Integers of METIS for each stored edge, for each node, and for each node and constraint: its own and our copies.
PER_EDGE, PER_NODE, PER_WEIGHT = 16, 32, 16


def metis_bytes(problem: PartitionProblem, index_dtype: DTypeLike) -> int:
    """What METIS, compiled with ``index_dtype``, takes at its peak, our conversions included.

    ``b (16 E + 32 N + 16 N R)`` for integers of b bytes, E stored edges (both directions), N nodes and R constraints.
    METIS keeps a coarser graph for every halving of the nodes, and how soon edges fall together in them depends on the
    graph: measured peaks are 5 to 10% below for random and for large graphs, a third for small communities, and up to
    half for very sparse and very dense graphs (docs/distributed.md). The number of parts hardly matters.
    """
    size = np.dtype(index_dtype).itemsize
    nodes, edges = problem.num_nodes, problem.indices.size
    return size * (PER_EDGE * edges + PER_NODE * nodes + PER_WEIGHT * problem.weights.size)


def breadth_first_bytes(problem: PartitionProblem) -> int:
    """What a breadth-first order takes: the edges where they are not in memory yet, and a copy in 32 bits."""
    return 8 * problem.indices.size + 5 * problem.indices.size


def too_large(needed: int, memory: int | None, name: str) -> str | None:
    """Why what needs so many bytes cannot be done with ``memory`` of them, or None where it can; None is no limit."""
    if memory is None or needed <= memory:
        return None
    return f"{name} would take about {needed / 2**30:.2f} GiB, and {memory / 2**30:.2f} GiB are available"
