"""ogbn-mag, papers, authors, fields of study and institutions, as one graph whose edges have relations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gfgnn.checks import InputError
from gfgnn.data.ogb.sets import MAG_RELATIONS, MAG_TYPES
from gfgnn.data.ogb.tables import PIECE, pieces, read_counts, read_table
from gfgnn.graph.edges import clean_edges


def read_mag(raw: Path, symmetrise: bool, work: Path) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """All types in one graph, papers first, so that papers keep OGB's numbers; papers alone have labels.

    Relations 0 to 3 are those of :data:`MAG_RELATIONS`. With ``symmetrise`` citations hold both ways, and the other
    three have their reverses as relations 4 to 6, as in OGB's own example of R-GCN. Types without features get the
    mean over their neighbours, see :func:`spread_features`. Edges lie in memory, features do not. Years are those of
    papers; other nodes have the first of these, so that ``max_year`` keeps them.
    """
    counts = read_counts(raw / "num-node-dict.csv.gz")
    if lacking := [kind for kind in MAG_TYPES if kind not in counts]:
        raise InputError(f"{raw / 'num-node-dict.csv.gz'} does not count {', '.join(lacking)}.")
    papers, num_nodes = counts["paper"], sum(counts[kind] for kind in MAG_TYPES)
    first, below = {}, 0
    for kind in MAG_TYPES:
        first[kind], below = below, below + counts[kind]
    places = {kind: slice(first[kind], first[kind] + counts[kind]) for kind in MAG_TYPES}
    edges = [_relation(raw, relation, counts, first) for relation in MAG_RELATIONS]
    own = pieces(raw / "node-feat/paper/node-feat.csv.gz", np.float32, papers)
    y = np.full(num_nodes, np.nan)
    y[:papers] = read_table(raw / "node-label/paper/node-label.csv.gz", np.float64, papers)[:, 0]
    year, years = None, raw / "node-feat/paper/node_year.csv.gz"
    if years.is_file():
        of_papers = read_table(years, np.int64, papers).ravel()
        year = np.full(num_nodes, of_papers.min())
        year[:papers] = of_papers
    related = _both_ways(edges, num_nodes) if symmetrise else edges
    return {
        "edge_index": np.concatenate(related, axis=1),
        "edge_type": np.repeat(np.arange(len(related)), [e.shape[1] for e in related]),
        "num_relations": len(related),
        "num_nodes": num_nodes,
        "features": spread_features(own, places, edges, work / "features"),
        "y": y,
    }, year


def _relation(
    raw: Path, relation: tuple[str, str, str], counts: dict[str, int], first: dict[str, int]
) -> NDArray[np.int64]:
    """Edges ``[2, E]`` of one relation, by the numbers of the common graph."""
    path = raw / "relations" / "___".join(relation) / "edge.csv.gz"
    edge_index = read_table(path, np.int64).T
    ends = (relation[0], relation[2])
    for row, kind in zip(edge_index, ends, strict=True):
        if row.size and not 0 <= row.min() <= row.max() < counts[kind]:
            bad = int(row.min()) if row.min() < 0 else int(row.max())
            raise InputError(f"{path} names {kind} {bad}; they are numbered 0 to {counts[kind] - 1}.")
    return edge_index + np.array([[first[kind]] for kind in ends])


def _both_ways(edges: list[NDArray[np.int64]], num_nodes: int) -> list[NDArray[np.int64]]:
    forward, backward = [], []
    for relation, edge_index in zip(MAG_RELATIONS, edges, strict=True):
        if relation[0] == relation[2]:
            forward.append(clean_edges(edge_index, num_nodes, symmetrise=True).edge_index)
        else:
            forward.append(edge_index)
            backward.append(edge_index[::-1])
    return forward + backward


def spread_features(
    papers: Iterable[NDArray[np.float32]],
    places: dict[str, slice],
    edges: list[NDArray[np.int64]],
    file: Path,
) -> Iterator[NDArray[np.float32]]:
    """Features of all nodes in pieces ``[k, F]``: those of papers, and then those of the other types made from them.

    Authors and fields of study get the mean of their papers, institutions that of their authors: each type takes the
    mean over its neighbours of types before it in :data:`MAG_TYPES`, zeros where it has none. These are the usual
    features of such nodes (the baseline of OGB's MAG240M makes them so); OGB's files have none.

    Args:
        papers: pieces ``[k, F]``.
        places: the nodes of each type.
        edges: ``[2, E]`` of each relation.
        file: to keep what has been made so far in; it may be removed afterwards.
    """
    columns = 0
    with open(file, "wb") as out:
        for piece in papers:
            columns = piece.shape[1]
            piece.tofile(out)
            yield piece
        for number, kind in enumerate(MAG_TYPES[1:], start=1):
            links = _links(places, edges, kind, MAG_TYPES[:number])
            degree = np.sum([np.asarray(link.sum(axis=1)) for link in links.values()], axis=0)
            out.flush()
            x = np.memmap(file, np.float32, "r").reshape(-1, columns)
            size = max(1, PIECE // columns)
            for begin in range(0, places[kind].stop - places[kind].start, size):
                rows = slice(begin, begin + size)
                sums = sum(link[rows] @ x[places[giver]] for giver, link in links.items())
                piece = sums / np.maximum(degree[rows], 1)
                piece.tofile(out)
                yield piece


def _links(
    places: dict[str, slice], edges: list[NDArray[np.int64]], kind: str, givers: tuple[str, ...]
) -> dict[str, sparse.csr_matrix]:
    """For each type of ``givers`` that is related to ``kind`` how often each of its nodes is, ``[kind, giver]``."""
    found: dict[str, sparse.csr_matrix] = {}
    for (head, _, tail), (source, target) in zip(MAG_RELATIONS, edges, strict=True):
        for at, here, other, giver in ((source, head, target, tail), (target, tail, source, head)):
            if here == kind and giver in givers:
                shape = tuple(places[t].stop - places[t].start for t in (kind, giver))
                place = (at - places[kind].start, other - places[giver].start)
                link = sparse.csr_matrix((np.ones(at.size, np.float32), place), shape)
                found[giver] = found[giver] + link if giver in found else link
    return found
