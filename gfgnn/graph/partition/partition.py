"""A partition of a graph's nodes, and whether it is one of a given graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition.report import PartitionReport


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Which part owns each node, how that was found and what it costs.

    Attributes:
        assignment: ``[N]`` int64, the part of every node, 0 to K - 1; every part has a node.
        num_parts: K.
        method: ``pymetis``, ``metis`` or ``ldg``, as used; ``trivial`` where there was nothing to choose.
        seed: of the method.
        balance: the constraints asked for.
        target_shares: ``[K]``, sums to 1.
        fingerprint: of the graph, see :func:`gfgnn.graph.fingerprint.fingerprint`.
        notes: why this method, and what was done to its answer, one sentence each.
        report: edges cut, halo rows, balance.
    """

    assignment: Tensor
    num_parts: int
    method: str
    seed: int
    balance: tuple[str, ...]
    target_shares: tuple[float, ...]
    fingerprint: str
    notes: tuple[str, ...]
    report: PartitionReport

    def __repr__(self) -> str:
        return (
            f"Partition({self.assignment.numel():,} nodes in {self.num_parts:,} parts by {self.method}, "
            f"{self.report.cut_share:.1%} of edges cut)"
        )

    def describe(self) -> str:
        """What was chosen and why, and the report."""
        title = (
            f"{self.assignment.numel():,} nodes in {self.num_parts:,} parts by {self.method}, balancing "
            f"{', '.join(self.balance)}, seed {self.seed}"
        )
        return "\n".join([title, *(f"note: {note}" for note in self.notes), self.report.describe()])


def check_partition(partition: Partition, graph: Graph, num_parts: int) -> None:
    """Raises :class:`InputError` unless ``partition`` divides exactly this graph into ``num_parts`` parts."""
    if partition.num_parts != num_parts:
        raise InputError(f"the partition has {partition.num_parts} parts; {num_parts} are needed.")
    check_fingerprint(partition.fingerprint, graph)
    check_assignment(partition.assignment, graph.num_nodes, num_parts)


def check_fingerprint(found: str, graph: Graph) -> None:
    """Raises :class:`InputError` unless ``found`` is the fingerprint of ``graph``."""
    wanted = fingerprint(graph)
    if found != wanted:
        raise InputError(
            f"the partition is of another graph: its fingerprint is {found}, that of {graph.name} is {wanted}. "
            "Partition this graph, or load the graph as it was loaded for the partition."
        )


def check_assignment(assignment: Tensor, num_nodes: int, num_parts: int) -> None:
    """Raises :class:`InputError` unless every node has a part and every part a node."""
    if assignment.dtype != torch.int64 or assignment.shape != (num_nodes,):
        raise InputError(
            f"assignment must be int64 [{num_nodes}], a part for every node; got {assignment.dtype} "
            f"{list(assignment.shape)}."
        )
    low, high = int(assignment.min()), int(assignment.max())
    if low < 0 or high >= num_parts:
        raise InputError(f"assignment names part {low if low < 0 else high}; parts are 0 to {num_parts - 1}.")
    empty = (torch.bincount(assignment, minlength=num_parts) == 0).nonzero().squeeze(1)
    if empty.numel():
        raise InputError(f"part {int(empty[0])} has no node; every part needs one.")
