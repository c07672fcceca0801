"""The nodes of a graph divided into parts: as few edges between parts as can be, and parts of the wanted sizes."""

from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.partition.nodes import METHODS, partition_nodes
from gfgnn.graph.partition.partition import Partition, check_partition
from gfgnn.graph.partition.problem import BALANCE, COUNTED
from gfgnn.graph.partition.report import PartitionReport

__all__ = [
    "BALANCE",
    "COUNTED",
    "METHODS",
    "Partition",
    "PartitionReport",
    "check_partition",
    "fingerprint",
    "partition_nodes",
]
