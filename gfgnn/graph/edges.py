"""Edge lists put into the one form the package works with: no self-loops, no duplicates, sorted by (target, source)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges exactly as given: self-loops, repeated edges and relations included.

    :func:`gfgnn.graph.validate.check_edge_list` says whether one fits a graph.

    Attributes:
        edge_index: ``[2, E]`` int64, source row 0, target row 1, in any order.
        edge_weight: ``[E]`` float32 or float64, or None for all ones.
        edge_type: ``[E]`` int64, the relation of each edge, 0 to R - 1; None where there is but one.
        num_relations: R; relations without an edge count too.
    """

    edge_index: Tensor
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    num_relations: int = 1

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)


@dataclass(frozen=True)
class CleanEdges:
    """The result of :func:`clean_edges`.

    Attributes:
        edge_index: ``[2, E]`` int64, source row 0, target row 1.
        edge_weight: ``[E]`` float64, or None.
        directed: whether the weighted adjacency matrix differs from its transpose.
        notes: what was changed, one sentence each.
        lossy: whether self-loops were removed or duplicates merged.
    """

    edge_index: NDArray[np.int64]
    edge_weight: NDArray[np.float64] | None
    directed: bool
    notes: tuple[str, ...]
    lossy: bool


def clean_edges(
    edge_index: NDArray[np.integer],
    num_nodes: int,
    edge_weight: NDArray[np.floating] | None = None,
    *,
    symmetrise: bool = False,
) -> CleanEdges:
    """Removes self-loops, merges duplicates, mirrors on request and sorts by (target, source).

    Self-loops are removed because the models add their own. Duplicates are merged: their weights are summed; without
    weights one copy stays. ``symmetrise`` stores both directions of every edge; where both were stored with different
    weights, both get the mean, so that a symmetric graph stays as it is. Work and memory are those of one sort of E
    (symmetrised: 2E) int64 keys.

    Args:
        edge_index: ``[2, E]`` integers, source row 0, target row 1.
        num_nodes: N.
        edge_weight: ``[E]``, or None for all ones.

    Raises:
        InputError: wrong shape, an edge to a node that does not exist, weights that do not match or are not finite.
    """
    source, target = check_edge_index(edge_index, num_nodes)
    weight = None if edge_weight is None else check_edge_weight(edge_weight, source.size)
    notes = []

    loops = source == target
    if num_loops := int(loops.sum()):
        source, target = source[~loops], target[~loops]
        weight = None if weight is None else weight[~loops]
        notes.append(f"removed {num_loops:,} self-loops")

    key, weight = _merge(target * num_nodes + source, weight, mean=False)
    if num_duplicates := source.size - key.size:
        notes.append(
            f"merged {num_duplicates:,} duplicate edges" + (" (weights summed)" if weight is not None else "")
        )

    if symmetrise:
        before = key.size
        key, weight = _merge(
            np.concatenate([key, transpose_keys(key, num_nodes)]),
            None if weight is None else np.concatenate([weight, weight]),
            mean=True,
        )
        notes.append(f"symmetrised: {before:,} stored edges became {key.size:,}")
    edges = np.stack([key % num_nodes, key // num_nodes]) if key.size else np.zeros((2, 0), np.int64)
    directed = not symmetrise and not is_symmetric(key, weight, num_nodes)
    return CleanEdges(edges, weight, directed, tuple(notes), bool(num_loops or num_duplicates))


def check_edge_index(
    edge_index: NDArray[np.integer], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source and target of every edge as int64, ``[E]`` each; raises :class:`InputError` where they are no edges."""
    edge_index = np.asarray(edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"edge_index must have shape [2, E]; got {list(edge_index.shape)}.")
    if edge_index.size and not np.issubdtype(edge_index.dtype, np.integer):
        raise InputError(f"edge_index must hold integers; got {edge_index.dtype}.")
    source, target = edge_index.astype(np.int64)
    if edge_index.size:
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            bad = low if low < 0 else high
            raise InputError(
                f"edge_index names node {bad}, which does not exist: nodes are 0 to {num_nodes - 1}."
            )
    return source, target


def check_edge_weight(edge_weight: NDArray[np.floating], num_edges: int) -> NDArray[np.float64]:
    """The weights as float64; raises :class:`InputError` unless there is one finite number per edge."""
    if np.iscomplexobj(edge_weight):
        raise InputError("edge_weight must hold real numbers; got complex ones.")
    try:
        weight = np.asarray(edge_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"edge_weight must hold one number per edge; got {np.asarray(edge_weight).dtype}."
        ) from None
    if weight.shape != (num_edges,):
        raise InputError(
            f"edge_weight must have shape [{num_edges}], one per edge; got {list(weight.shape)}."
        )
    if not np.isfinite(weight).all():
        raise InputError(f"edge_weight holds {int((~np.isfinite(weight)).sum()):,} NaN or infinite values.")
    return weight


def transpose_keys(key: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Keys ``target * N + source`` of the reversed edges, in the order given."""
    target, source = np.divmod(key, num_nodes)
    return source * num_nodes + target


def _merge(
    key: NDArray[np.int64], weight: NDArray[np.float64] | None, *, mean: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Sorted distinct keys and the sum (or mean) of the weights of equal keys."""
    if key.size == 0 or bool((key[1:] > key[:-1]).all()):
        return key, weight
    if weight is None:
        key = np.sort(key)
        return key[np.concatenate([[True], key[1:] != key[:-1]])], None
    order = np.argsort(key, kind="stable")  # stable: sums are added in the same order every time
    key = key[order]
    first = np.concatenate([[0], np.flatnonzero(key[1:] != key[:-1]) + 1])
    total = np.add.reduceat(weight[order], first)
    if mean:
        total = total / np.diff(np.append(first, key.size))
    return key[first], total


def is_symmetric(key: NDArray[np.int64], weight: NDArray[np.float64] | None, num_nodes: int) -> bool:
    """Whether the edges of ascending keys ``target * N + source``, with their weights, are those of the transpose."""
    mirrored = transpose_keys(key, num_nodes)
    order = np.argsort(mirrored, kind="stable")
    if not np.array_equal(mirrored[order], key):
        return False
    return weight is None or np.array_equal(weight[order], weight)
