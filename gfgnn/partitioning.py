"""Partitions that are found once for every graph: from the cache on disk where they have been found before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata

import numpy as np
from torch import Tensor

from gfgnn._version import __version__
from gfgnn.checks import InputError
from gfgnn.graph.fingerprint import fingerprint
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition, check_partition, partition_nodes


def partition_of(
    graph: Graph,
    num_parts: int,
    *,
    method: str = "auto",
    balance: Sequence[str] = ("nodes",),
    work: Tensor | None = None,
    seed: int = 0,
    memory: int | None = None,
) -> Partition:
    """:func:`gfgnn.graph.partition.partition_nodes` through the cache; a note says where the partition came from.

    A partition is known by the graph's fingerprint and every argument but ``memory``, labels where they are balanced,
    and the versions of this package and of those that call METIS. A damaged entry is made anew, and a cache that
    cannot be written is done without.

    Raises:
        InputError: as :func:`gfgnn.graph.partition.partition_nodes`.
    """
    from gfgnn.data import cache
    from gfgnn.data.partition_file import load_partition, save_partition

    kinds = (balance,) if isinstance(balance, str) else tuple(balance)
    labelled = graph.labelled(graph.train_mask).numpy() if "labelled" in kinds else np.zeros(0)
    weights = np.zeros(0) if work is None else work.numpy()
    key = cache.fingerprint(
        fingerprint(graph), num_parts, method, ",".join(kinds), weights, labelled, seed, *_versions()
    )
    path = cache.cache_folder() / f"partition{num_parts}-{key}.npz"
    if path.is_file():
        try:
            found = load_partition(path, graph)
            check_partition(found, graph, num_parts)
            return replace(found, notes=(*found.notes, f"found before, and kept as {path}"))
        except InputError:
            pass
    made = partition_nodes(
        graph, num_parts, method=method, balance=kinds, work=work, seed=seed, memory=memory
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_partition(path, made)
    except OSError:
        pass
    return made


def _versions() -> list[str]:
    versions = [__version__]
    for package in ("pymetis", "metis"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    return versions
