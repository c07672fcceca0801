"""The order in which nodes are stored: neighbours near each other, so that sparse products find rows in the cache.

A product ``S H`` reads a row of H for every edge. Where the rows that an edge needs were read shortly before, or lie
behind one that was, it waits for nothing; else it waits for memory. What that costs was measured by
``benchmarks/order.py``, and so were the constants here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gfgnn.checks import InputError, check_choice
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition, partition_nodes
from gfgnn.graph.partition.ldg import breadth_first
from gfgnn.graph.partition.problem import matrix_of_ones, neighbours
from gfgnn.graph.raw import restricted

ORDERS = ("auto", "none", "metis", "rcm")

SMALL = 8192  #: nodes; the rows of fewer, of 64 float32 numbers, fit in 2 MiB of cache
PART_NODES = 2048  #: of a METIS part; a quarter of that cache
MOST_PARTS = 1024  #: METIS takes seven times as long for four times as many
METIS_EDGES = 20_000_000  #: stored edges; METIS takes about half a minute for so many
REACH = 16384  #: rows read since a row was read the last time, up to which it may still be in the cache
STREAM = 64  #: rows read since the row before was, up to which the processor fetches the next one by itself
GAIN = 1.05  #: by which a new order must promise to make products faster


@dataclass(frozen=True, eq=False)
class Order:
    """An order of nodes.

    Attributes:
        nodes: ``[N]`` int64, a permutation; place i holds node ``nodes[i]``.
        method: ``metis`` or ``rcm``; ``given`` where nodes stay as they are.
        note: why, and what it promises; None where nobody had to look.
    """

    nodes: Tensor
    method: str
    note: str | None = None

    @property
    def places(self) -> Tensor:
        """The inverse: the place of every node, ``[N]``."""
        return torch.empty_like(self.nodes).scatter_(0, self.nodes, torch.arange(self.nodes.numel()))

    @property
    def is_given(self) -> bool:
        return self.method == "given"


def node_order(
    graph: Graph,
    method: str = "auto",
    find: Callable[[Graph, str], NDArray[np.int64]] | None = None,
) -> Order:
    """The order in which the nodes of ``graph`` should be stored. The same graph gets the same order.

    Args:
        method: ``metis``: many METIS parts one after the other, each breadth first; ``rcm``: breadth first as a whole
            (reverse Cuthill-McKee); ``none``: as given; ``auto``: METIS, or ``rcm`` for graphs that are too large for
            it or where it is not installed, unless the graph is small or the order given about as good.
        find: in place of :func:`find_order`; for orders that are stored somewhere.

    Raises:
        InputError: METIS was asked for by name and cannot be used.
    """
    check_choice("order", method, ORDERS)
    find = find or find_order
    given = torch.arange(graph.num_nodes)
    if method == "none" or graph.num_edges == 0 or (method == "auto" and graph.num_nodes < SMALL):
        return Order(given, "given")
    matrix = matrix_of_ones(*neighbours(graph))
    before = far_share(matrix)
    if method != "auto":
        used, nodes, why = method, find(graph, method), ""
    elif 1 + before < GAIN:
        return Order(given, "given", f"the order of nodes given is kept: {before:.0%} of reads are far in it")
    else:
        used, nodes, why = _best(graph, find)
    after = far_share(permuted(matrix, nodes))
    change = f"{after:.0%} of reads are far in it, {before:.0%} in the order given{why}"
    if method == "auto" and 1 + before < GAIN * (1 + after):
        return Order(given, "given", f"the order of nodes given is kept: {used} does no better, {change}")
    return Order(torch.from_numpy(nodes), used, f"nodes are stored in the order of {used}: {change}")


def _best(
    graph: Graph, find: Callable[[Graph, str], NDArray[np.int64]]
) -> tuple[str, NDArray[np.int64], str]:
    """METIS where it can be used in a bearable time, and why not otherwise."""
    if graph.num_edges > METIS_EDGES:
        return "rcm", find(graph, "rcm"), f" (METIS would take long for {graph.num_edges:,} edges)"
    try:
        return "metis", find(graph, "metis"), ""
    except InputError as error:
        return "rcm", find(graph, "rcm"), f" ({error})"


def find_order(graph: Graph, method: str) -> NDArray[np.int64]:
    """The nodes in the order of ``metis`` or ``rcm``, ``[N]``, whatever it is worth."""
    nodes = breadth_first(matrix_of_ones(*neighbours(graph)))
    if method == "rcm":
        return nodes
    place = np.empty_like(nodes)
    place[nodes] = np.arange(nodes.size)
    return np.lexsort((place, _metis(graph).assignment.numpy()))


def metis_parts(graph: Graph) -> int:
    """How many parts ``metis`` lays one after the other: their rows should fit in a cache."""
    return min(MOST_PARTS, max(1, graph.num_nodes // PART_NODES))


def _metis(graph: Graph) -> Partition:
    """The parts. Those that touch have numbers near each other, as METIS bisects."""
    parts = metis_parts(graph)
    try:
        return partition_nodes(graph, parts, method="pymetis", imbalance=0.1)
    except InputError as first:
        try:
            return partition_nodes(graph, parts, method="metis", imbalance=0.1)
        except InputError as second:
            raise InputError(f"order metis needs METIS: {first} {second}") from None


def permuted(matrix: Any, nodes: NDArray[np.int64]) -> Any:
    """Rows and columns of a SciPy CSR matrix ``[N, N]`` in the order of ``nodes``."""
    place = np.empty_like(nodes)
    place[nodes] = np.arange(nodes.size)
    rows = matrix[nodes]
    return csr_matrix((rows.data, place[rows.indices], rows.indptr), shape=matrix.shape)


def far_share(matrix: Any) -> float:
    """The share of reads of a product with this SciPy CSR matrix that wait for memory.

    Reads are numbered as the product makes them: row by row. A read of row j is *near* where j was read at most
    :data:`REACH` reads before (it is in the cache), or j - 1 at most :data:`STREAM` reads before (the processor sees a
    stream and runs ahead of it: so grids need no other order than row by row). Products take about ``1 + far_share``.
    """
    reads = matrix.indices.size
    if reads == 0:
        return 0.0
    by_row = csr_matrix((np.arange(reads), matrix.indices, matrix.indptr), shape=matrix.shape).tocsc()
    row, time = np.repeat(np.arange(matrix.shape[1]), np.diff(by_row.indptr)), by_row.data
    cached = (row[1:] == row[:-1]) & (np.diff(time) <= REACH)
    far = np.concatenate([[True], ~cached])
    stride = reads + STREAM + 1  # rows lie so far apart that no stream leads from one to another
    key = row * stride + time  # ascending
    wanted = key[far] - stride
    latest = np.searchsorted(key, wanted, side="right") - 1
    streamed = (latest >= 0) & (wanted - key[latest] <= STREAM)
    return float((far.sum() - streamed.sum()) / reads)


def reordered(graph: Graph, order: Order) -> Graph:
    """The same graph with its nodes numbered by their places in ``order``; ``node_ids`` say where they came from."""
    if order.is_given:
        return graph
    place = order.places
    source, target = place[graph.edge_index]
    # no two keys are equal, so any sort is deterministic
    sorting = torch.from_numpy(np.argsort((target * graph.num_nodes + source).numpy()))
    everyone = torch.ones(graph.num_nodes, dtype=torch.bool)
    return graph.replace(
        edge_index=torch.stack([source[sorting], target[sorting]]),
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[sorting],
        raw=None if graph.raw is None else restricted(graph.raw, everyone, place),
        **graph.node_rows(order.nodes),
    )
