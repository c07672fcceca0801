"""Edges that come in pieces, cleaned on disk: memory for the nodes and a block of edges, whatever their number."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gfgnn.graph.edges import CleanEdges, check_edge_index, is_symmetric

#: edges sorted at once: 8 MB of keys
BLOCK = 1 << 20


def stream_clean_edges(
    given: Iterable[NDArray[np.integer]], num_nodes: int, folder: Path, *, symmetrise: bool = False
) -> CleanEdges:
    """What :func:`gfgnn.graph.edges.clean_edges` makes of edges without weights; ``edge_index`` is mapped from a file.

    A counting sort by blocks. The first pass writes a key for each edge and counts the edges of every target; the
    second puts the keys of ranges of targets side by side; the third sorts each range and merges duplicates. Memory is
    that of a few numbers for each node, a piece, and :data:`BLOCK` edges or those of the node that has more; only edges
    of a directed graph whose nodes all have as many edges in as out are compared at once. The files take up to 32 bytes
    for an edge (symmetrised: 64).

    Args:
        given: pieces ``[k, 2]`` of edges, source first.
        num_nodes: N, below 2^31.
        folder: for files; they may be removed when the result is no longer needed (where open files may be: at once).

    Raises:
        InputError: as :func:`clean_edges`.
        OSError: the files cannot be written, or there is no room for them.
    """
    degree = np.zeros(num_nodes, np.int64)
    loops = 0
    with open(folder / "keys", "wb") as file:
        for piece in given:
            source, target = check_edge_index(piece.T, num_nodes)
            proper = source != target
            loops += source.size - int(proper.sum())
            source, target = source[proper], target[proper]
            for s, t, mirror in ((source, target, 0), (target, source, 1))[: 1 + symmetrise]:
                degree += np.bincount(t, minlength=num_nodes)
                # the lowest bit tells an edge from a mirrored one, and sorts it first
                ((t * num_nodes + s) * 2 + mirror).tofile(file)
    bounds = _bounds(degree)
    keys = _grouped(folder, degree, bounds, num_nodes)
    before, after = _merge_ranges(keys, degree, bounds)
    edge_index = _edge_index(folder / "edge_index", keys[:after], num_nodes)
    total = keys.size // (2 if symmetrise else 1)
    notes = []
    if loops:
        notes.append(f"removed {loops:,} self-loops")
    if total > before:
        notes.append(f"merged {total - before:,} duplicate edges")
    if symmetrise:
        notes.append(f"symmetrised: {before:,} stored edges became {after:,}")
    directed = not symmetrise and not _symmetric(keys[:after], num_nodes)
    return CleanEdges(edge_index, None, directed, tuple(notes), bool(loops or total > before))


def _bounds(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ends of consecutive ranges of targets with at most :data:`BLOCK` edges each, or with one target."""
    end, bounds = np.cumsum(degree), [0]
    while bounds[-1] < degree.size:
        below = int(end[bounds[-1] - 1]) if bounds[-1] else 0
        last = int(np.searchsorted(end, below + BLOCK, side="right"))
        bounds.append(max(last, bounds[-1] + 1))
    return np.array(bounds[1:])


def _grouped(
    folder: Path, degree: NDArray[np.int64], bounds: NDArray[np.int64], num_nodes: int
) -> NDArray[np.int64]:
    """The keys of the file ``keys``, mapped, those of one range of targets side by side."""
    end = np.cumsum(degree)[bounds - 1]
    place = np.concatenate([[0], end[:-1]])
    keys = _map(folder / "grouped", (int(end[-1]),))
    for piece in _pieces(folder / "keys"):
        range_of = np.searchsorted(bounds, piece // 2 // num_nodes, side="right")
        order = np.argsort(range_of, kind="stable")
        sizes = np.bincount(range_of, minlength=bounds.size)
        begin = 0
        for number in np.flatnonzero(sizes):
            size = sizes[number]
            keys[place[number] : place[number] + size] = piece[order[begin : begin + size]]
            begin += size
        place += sizes
    (folder / "keys").unlink()
    return keys


def _merge_ranges(
    keys: NDArray[np.int64], degree: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[int, int]:
    """Sorts each range and moves its distinct edges to the front; how many were given, and how many there are."""
    given = filled = begin = 0
    for end in np.cumsum(degree)[bounds - 1].tolist():
        edges = _distinct(np.sort(keys[begin:end]))  # numpy.unique takes six times as long
        given += int((edges % 2 == 0).sum())
        edges = _distinct(edges // 2)
        keys[filled : filled + edges.size] = edges
        filled, begin = filled + edges.size, end
    return given, filled


def _distinct(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    return ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])[: ascending.size]]


def _symmetric(keys: NDArray[np.int64], num_nodes: int) -> bool:
    """Told by the degrees where these differ, as they do in most directed graphs; else by all keys at once."""
    surplus = np.zeros(num_nodes, np.int64)
    for begin in range(0, keys.size, BLOCK):
        target, source = np.divmod(keys[begin : begin + BLOCK], num_nodes)
        surplus += np.bincount(target, minlength=num_nodes) - np.bincount(source, minlength=num_nodes)
    return not surplus.any() and is_symmetric(keys, None, num_nodes)


def _edge_index(path: Path, keys: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    edge_index = _map(path, (2, keys.size))
    for begin in range(0, keys.size, BLOCK):
        here = slice(begin, begin + BLOCK)
        edge_index[1, here], edge_index[0, here] = np.divmod(keys[here], num_nodes)
    return edge_index


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """A new file as an array of zeros; an empty one needs no file."""
    if 0 in shape:
        return np.zeros(shape, np.int64)
    with open(path, "wb") as file:
        size = 8 * math.prod(shape)
        if hasattr(
            os, "posix_fallocate"
        ):  # a full disk is an error here, and the end of the process in a map
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    return np.memmap(path, np.int64, "r+", shape=shape)


def _pieces(path: Path) -> Iterator[NDArray[np.int64]]:
    with open(path, "rb") as file:
        while (piece := np.fromfile(file, np.int64, BLOCK)).size:
            yield piece
