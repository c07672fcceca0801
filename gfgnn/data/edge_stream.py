"""Edges that come in pieces, cleaned on disk: memory for the nodes and a block of edges, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gfgnn.data.npy_stream import write_header
from gfgnn.data.progress import report
from gfgnn.graph.edges import check_edge_index, transpose_keys

#: edges sorted at once: 8 MB of keys
BLOCK = 1 << 20


def stream_clean_edges(
    given: Iterable[NDArray[np.integer]], num_nodes: int, path: Path, *, symmetrise: bool = False
) -> tuple[bool, tuple[str, ...]]:
    """Writes to ``path`` what :func:`gfgnn.graph.edges.clean_edges` makes of edges without weights.

    A counting sort by blocks. The first pass writes a key for each edge and counts the edges of every target; the
    second puts the keys of ranges of targets side by side; the third sorts each range and merges duplicates. Memory is
    that of a few numbers for each node, a piece, and :data:`BLOCK` edges or those of the node that has more. Files are
    read and written, never mapped: mapped pages would count as memory of the process. They take up to 24 bytes for an
    edge (symmetrised: 48), ``path`` included.

    Args:
        given: pieces ``[k, 2]`` of edges, source first.
        num_nodes: N, below 2^31.
        path: the new file, ``edge_index`` ``[2, E]`` int64 in NumPy's format.

    Returns:
        Whether the graph is directed, and what was changed, as in :class:`gfgnn.graph.edges.CleanEdges`.

    Raises:
        InputError: as :func:`clean_edges`.
        OSError: the files cannot be written, or there is no room for them.
    """
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        keys, grouped, distinct = (Path(folder) / name for name in ("keys", "grouped", "distinct"))
        degree, loops = _write_keys(given, num_nodes, keys, symmetrise)
        bounds = _bounds(degree)
        ends = np.cumsum(degree)[bounds - 1].tolist()
        _group(keys, grouped, bounds, ends, num_nodes)
        keys.unlink()
        before, after = _merge_ranges(grouped, distinct, ends)
        grouped.unlink()
        symmetric = _write_edge_index(distinct, after, num_nodes, path)
    total = ends[-1] // (2 if symmetrise else 1)
    notes = []
    if loops:
        notes.append(f"removed {loops:,} self-loops")
    if total > before:
        notes.append(f"merged {total - before:,} duplicate edges")
    if symmetrise:
        notes.append(f"symmetrised: {before:,} stored edges became {after:,}")
    return not symmetric, tuple(notes)


def _write_keys(
    given: Iterable[NDArray[np.integer]], num_nodes: int, path: Path, symmetrise: bool
) -> tuple[NDArray[np.int64], int]:
    """A key for each edge but self-loops; the edges of every target ``[N]``, and how many loops there were."""
    degree = np.zeros(num_nodes, np.int64)
    loops = 0
    with open(path, "wb") as file:
        for piece in given:
            source, target = check_edge_index(piece.T, num_nodes)
            proper = source != target
            loops += source.size - int(proper.sum())
            source, target = source[proper], target[proper]
            for s, t, mirror in ((source, target, 0), (target, source, 1))[: 1 + symmetrise]:
                np.add.at(degree, t, 1)
                # the lowest bit tells an edge from a mirrored one, and sorts it first
                ((t * num_nodes + s) * 2 + mirror).tofile(file)
    return degree, loops


def _bounds(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ends of consecutive ranges of targets with at most :data:`BLOCK` edges each, or with one target."""
    end, bounds = np.cumsum(degree), [0]
    while bounds[-1] < degree.size:
        below = int(end[bounds[-1] - 1]) if bounds[-1] else 0
        last = int(np.searchsorted(end, below + BLOCK, side="right"))
        bounds.append(max(last, bounds[-1] + 1))
    return np.array(bounds[1:])


def _group(keys: Path, grouped: Path, bounds: NDArray[np.int64], ends: list[int], num_nodes: int) -> None:
    """The keys again, those of one range of targets side by side, the ranges in order."""
    place = [0, *ends[:-1]]
    with open(grouped, "wb", buffering=0) as file:
        for piece in _pieces(keys, "grouping edges"):
            range_of = np.searchsorted(bounds, piece // 2 // num_nodes, side="right")
            piece = piece[np.argsort(range_of, kind="stable")]
            sizes = np.bincount(range_of, minlength=bounds.size)
            begin = 0
            for number in np.flatnonzero(sizes).tolist():
                size = int(sizes[number])
                file.seek(8 * place[number])
                _write(file, piece[begin : begin + size])
                place[number] += size
                begin += size


def _write(file: IO[bytes], values: NDArray[np.int64]) -> None:
    """A raw file may take less than it is given."""
    rest = memoryview(values.tobytes())
    while rest:
        rest = rest[file.write(rest) :]


def _merge_ranges(grouped: Path, distinct: Path, ends: list[int]) -> tuple[int, int]:
    """Sorts each range and writes its distinct edges; how many were given, and how many there are."""
    given = filled = begin = 0
    with open(grouped, "rb") as file, open(distinct, "wb") as out:
        for end in ends:
            report("sorting edges", begin, ends[-1])
            edges = _distinct(
                np.sort(np.fromfile(file, np.int64, end - begin))
            )  # numpy.unique takes six times as long
            given += int((edges % 2 == 0).sum())
            edges = _distinct(edges // 2)
            edges.tofile(out)
            filled, begin = filled + edges.size, end
    return given, filled


def _distinct(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    return ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])[: ascending.size]]


def _write_edge_index(distinct: Path, count: int, num_nodes: int, path: Path) -> bool:
    """Writes ``[2, count]`` and says whether the reverse of every edge is among them.

    They are where the sums of a 64-bit hash over all keys and over their transposes agree; those of other edges would
    do so once in 2^64.
    """
    surplus = 0
    with open(path, "wb") as sources, open(path, "r+b") as targets:
        write_header(sources, np.int64, (2, count))
        sources.flush()
        targets.seek(sources.tell() + 8 * count)
        for keys in _pieces(distinct, "writing edges"):
            target, source = np.divmod(keys, num_nodes)
            source.tofile(sources)
            target.tofile(targets)
            surplus += int(_hashed(keys).sum()) - int(_hashed(transpose_keys(keys, num_nodes)).sum())
    return surplus % 2**64 == 0


def _hashed(keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers whose bits each depend on all of the key's: two rounds of multiply and fold."""
    mixed = keys.astype(np.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _pieces(path: Path, phase: str) -> Iterator[NDArray[np.int64]]:
    size, done = path.stat().st_size // 8, 0
    with open(path, "rb") as file:
        while (piece := np.fromfile(file, np.int64, BLOCK)).size:
            report(phase, done, size)
            yield piece
            done += piece.size
