"""Edges as they were given, as an :class:`EdgeList`: read, mirrored, restricted to some nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError, check_count
from gfgnn.graph.edges import EdgeList, check_edge_index, check_edge_weight


def given_edges(
    edge_index: NDArray[np.integer],
    num_nodes: int,
    edge_weight: NDArray[Any] | None = None,
    edge_type: NDArray[np.integer] | None = None,
    num_relations: int | None = None,
    *,
    symmetrise: bool = False,
) -> EdgeList:
    """The edges in the order given, checked. Weights in float32 stay so, others become float64.

    Args:
        edge_index: ``[2, E]`` integers, source row 0, target row 1.
        edge_weight: ``[E]``, or None for all ones.
        edge_type: ``[E]`` integers, the relation of each edge; None where there is one relation only.
        num_relations: R; None takes the largest relation plus one.
        symmetrise: store both directions of every edge, see :func:`mirrored`.

    Raises:
        InputError: wrong shapes or types, nodes or relations that do not exist, weights that are not finite.
    """
    source, target = check_edge_index(edge_index, num_nodes)
    weight = None
    if edge_weight is not None:
        single = np.asarray(edge_weight).dtype == np.float32
        weight = check_edge_weight(edge_weight, source.size).astype(np.float32 if single else np.float64)
    kind, count = check_edge_type(edge_type, source.size, num_relations)
    edges = EdgeList(
        torch.from_numpy(np.stack([source, target])),
        None if weight is None else torch.from_numpy(weight),
        None if kind is None else torch.from_numpy(kind),
        count,
    )
    return mirrored(edges, num_nodes) if symmetrise else edges


def check_edge_type(
    edge_type: NDArray[np.integer] | None, num_edges: int, num_relations: int | None
) -> tuple[NDArray[np.int64] | None, int]:
    """The relation of each edge as int64 ``[E]`` and the number of relations; raises :class:`InputError`."""
    if num_relations is not None:
        check_count("num_relations", num_relations, 1)
    if edge_type is None:
        if num_relations not in (None, 1):
            raise InputError(f"num_relations={num_relations} needs edge_type, the relation of every edge.")
        return None, 1
    edge_type = np.asarray(edge_type)
    if edge_type.shape != (num_edges,):
        raise InputError(
            f"edge_type must have shape [{num_edges}], one relation per edge; got {list(edge_type.shape)}."
        )
    if edge_type.size and not np.issubdtype(edge_type.dtype, np.integer):
        raise InputError(f"edge_type must hold whole numbers; got {edge_type.dtype}.")
    kind = edge_type.astype(np.int64)
    low, high = (int(kind.min()), int(kind.max())) if kind.size else (0, 0)
    count = high + 1 if num_relations is None else int(num_relations)
    if low < 0 or high >= count:
        bad = low if low < 0 else high
        until = f"0 to {count - 1}" if num_relations is not None else "numbered from 0"
        raise InputError(f"edge_type holds {bad}; relations are {until}.")
    return kind, count


def mirrored(edges: EdgeList, num_nodes: int) -> EdgeList:
    """Both directions of every edge; the reverse of an edge has its relation.

    Within a relation the k-th copy of an edge and the k-th copy of its reverse are a pair: they stay, and both get
    the mean of their weights. What has no partner gets one, behind the edges given. So a symmetric list stays as it
    is, and self-loops always do. Work and memory are those of two sorts of E keys.
    """
    source, target = (row.numpy() for row in edges.edge_index)
    kind = np.zeros(edges.num_edges, np.int64) if edges.edge_type is None else edges.edge_type.numpy()
    proper = np.flatnonzero(source != target)
    s, t, r = source[proper], target[proper], kind[proper]
    low, high = np.minimum(s, t), np.maximum(s, t)
    copy = _copies(r, t * num_nodes + s)
    pair = high * num_nodes + low
    order = np.lexsort((copy, pair, r))
    r, pair, copy = r[order], pair[order], copy[order]
    together = (r[1:] == r[:-1]) & (pair[1:] == pair[:-1]) & (copy[1:] == copy[:-1])
    # partners lie side by side, and no three do: a copy of an edge has at most one reverse
    first = np.flatnonzero(together)
    alone = np.ones(order.size, dtype=bool)
    alone[first] = alone[first + 1] = False
    added = torch.from_numpy(np.sort(proper[order[alone]]))
    weight = edges.edge_weight
    if weight is not None:
        one, other = (torch.from_numpy(proper[order[place]]) for place in (first, first + 1))
        mean = (weight[one] + weight[other]) / 2
        weight = weight.clone()
        weight[one] = weight[other] = mean
        weight = torch.cat([weight, weight[added]])
    return EdgeList(
        torch.cat([edges.edge_index, edges.edge_index[:, added].flip(0)], dim=1),
        weight,
        None if edges.edge_type is None else torch.cat([edges.edge_type, edges.edge_type[added]]),
        edges.num_relations,
    )


def _copies(kind: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal edges stand before each one, ``[E]``."""
    order = np.lexsort((key, kind))  # stable: copies keep their order
    same = (kind[order][1:] == kind[order][:-1]) & (key[order][1:] == key[order][:-1])
    place = np.arange(order.size)
    start = np.maximum.accumulate(np.where(np.concatenate([[True], ~same])[: order.size], place, 0))
    copies = np.empty_like(place)
    copies[order] = place - start
    return copies


def restricted(edges: EdgeList, kept: Tensor, number: Tensor) -> EdgeList:
    """The edges between the nodes of the bool mask ``kept`` ``[N]``, whose new numbers are in ``number`` ``[N]``."""
    source, target = edges.edge_index
    inside = kept[source] & kept[target]
    return EdgeList(
        number[edges.edge_index[:, inside]],
        None if edges.edge_weight is None else edges.edge_weight[inside],
        None if edges.edge_type is None else edges.edge_type[inside],
        edges.num_relations,
    )
