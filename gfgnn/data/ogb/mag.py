"""ogbn-mag, papers, authors, fields of study and institutions, as one graph whose edges have relations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from gfgnn.checks import InputError
from gfgnn.data.ogb.sets import MAG_RELATIONS, MAG_TYPES
from gfgnn.data.ogb.tables import read_counts, read_table
from gfgnn.graph.edges import clean_edges


def read_mag(raw: Path, symmetrise: bool) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """All types in one graph, papers first, so that papers keep OGB's numbers; papers alone have labels.

    Relations 0 to 3 are those of :data:`MAG_RELATIONS`. With ``symmetrise`` citations hold both ways, and the other
    three have their reverses as relations 4 to 6, as in OGB's own example of R-GCN. Types without features get the
    mean over their neighbours, see :func:`spread_features`. Years are those of papers; other nodes have the first of
    these, so that ``max_year`` keeps them.
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
    own = read_table(raw / "node-feat/paper/node-feat.csv.gz", np.float32, papers)
    x = np.zeros((num_nodes, own.shape[1]), np.float32)
    x[places["paper"]] = own
    spread_features(x, places, edges)
    y = np.full(num_nodes, np.nan)
    y[:papers] = read_table(raw / "node-label/paper/node-label.csv.gz", np.float64, papers)[:, 0]
    year, years = None, raw / "node-feat/paper/node_year.csv.gz"
    if years.is_file():
        of_papers = read_table(years, np.int64, papers).ravel()
        year = np.full(num_nodes, of_papers.min())
        year[:papers] = of_papers
    if symmetrise:
        edges = _both_ways(edges, num_nodes)
    return {
        "edge_index": np.concatenate(edges, axis=1),
        "edge_type": np.repeat(np.arange(len(edges)), [e.shape[1] for e in edges]),
        "num_relations": len(edges),
        "num_nodes": num_nodes,
        "x": torch.from_numpy(x),
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


def spread_features(x: NDArray[np.float32], places: dict[str, slice], edges: list[NDArray[np.int64]]) -> None:
    """Fills the rows of the other types from those of papers, in place.

    Authors and fields of study get the mean of their papers, institutions that of their authors: round by round, each
    type without features takes the mean over its neighbours of types that have some, zeros where it has none. These are
    the usual features of such nodes (the baseline of OGB's MAG240M makes them so); OGB's files have none.
    """
    known = {"paper"}
    while len(known) < len(places):
        total: dict[str, Any] = {}
        for (head, _, tail), (source, target) in zip(MAG_RELATIONS, edges, strict=True):
            for at, kind, other, giver in ((source, head, target, tail), (target, tail, source, head)):
                if kind in known or giver not in known:
                    continue
                shape = (places[kind].stop - places[kind].start, places[giver].stop - places[giver].start)
                one = np.ones(at.size, np.float32)
                links = sparse.csr_matrix(
                    (one, (at - places[kind].start, other - places[giver].start)), shape
                )
                sums, degree = links @ x[places[giver]], np.asarray(links.sum(axis=1))
                before = total.get(kind, (0, 0))
                total[kind] = (before[0] + sums, before[1] + degree)
        for kind, (sums, degree) in total.items():
            x[places[kind]] = sums / np.maximum(degree, 1)
        known |= set(total)
