"""Writes small generated data sets in the layout in which OGB's archives unpack, file by file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.data.ogb.sets import MAG_RELATIONS, SETS

CLASSES, COLUMNS, TASKS = 3, 5, 4
MAG_COUNTS = {"author": 50, "field_of_study": 9, "institution": 6, "paper": 90}


def write_csv(path: Path, rows: NDArray[Any], header: str = "") -> None:
    """Numbers as text, gzipped, without a header unless given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.issubdtype(rows.dtype, np.integer)
    lines = [
        ",".join(str(v) if whole else f"{v:.6g}" for v in row) for row in rows.reshape(len(rows), -1).tolist()
    ]
    with gzip.open(path, "wt") as file:
        file.write(header + "".join(f"{line}\n" for line in lines))


def write_ogb(root: Path, name: str, *, nodes: int = 90, seed: int = 0, tasks: int = TASKS) -> dict[str, Any]:
    """Writes data set ``name`` under ``root`` and returns its arrays as they were drawn.

    Classes show in the features and in the edges, so that a network has something to learn.
    """
    rng = np.random.default_rng(seed)
    known = SETS[name]
    folder = known.folder(root)
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    (folder / "RELEASE_v1.txt").touch()
    y = rng.permutation(np.arange(nodes) % CLASSES)
    order = rng.permutation(nodes)
    third = nodes // 3
    drawn: dict[str, Any] = {
        "y": y,
        "x": (np.eye(CLASSES, COLUMNS)[y] + 0.3 * rng.standard_normal((nodes, COLUMNS))).astype(np.float32),
        "edges": _edges(rng, y, y, 4 * nodes),
        "year": rng.integers(2010, 2020, nodes),
        "split": {"train": order[:third], "valid": order[third : 2 * third], "test": order[2 * third :]},
    }
    for part, numbers in drawn["split"].items():
        write_csv(folder / "split" / known.split / f"{part}.csv.gz", numbers)
    write = {"ogbn-proteins": _proteins, "ogbn-mag": _mag, "ogbn-papers100M": _papers}.get(name, _homogeneous)
    write(folder, drawn, rng, tasks)
    return drawn


def _edges(
    rng: np.random.Generator, of_source: NDArray[Any], of_target: NDArray[Any], count: int
) -> NDArray[Any]:
    """``[count, 2]`` edges, three of four between nodes of one class."""
    source = rng.integers(0, len(of_source), count)
    target = rng.integers(0, len(of_target), count)
    for place in np.flatnonzero(rng.random(count) < 0.75):
        same = np.flatnonzero(of_target == of_source[source[place]])
        target[place] = rng.choice(same) if same.size else target[place]
    return np.stack([source, target], axis=1)


def _counts(folder: Path, nodes: int, edges: int) -> None:
    write_csv(folder / "num-node-list.csv.gz", np.array([nodes]))
    write_csv(folder / "num-edge-list.csv.gz", np.array([edges]))


def _homogeneous(folder: Path, drawn: dict[str, Any], rng: np.random.Generator, tasks: int) -> None:
    raw = folder / "raw"
    _counts(raw, len(drawn["y"]), len(drawn["edges"]))
    write_csv(raw / "edge.csv.gz", drawn["edges"])
    write_csv(raw / "node-feat.csv.gz", drawn["x"])
    write_csv(raw / "node-label.csv.gz", drawn["y"])
    if folder.name == "ogbn_arxiv":
        write_csv(raw / "node_year.csv.gz", drawn["year"])


def _proteins(folder: Path, drawn: dict[str, Any], rng: np.random.Generator, tasks: int) -> None:
    """Edges once, features on edges only, several labels of 0 and 1."""
    raw, edges, y = folder / "raw", drawn["edges"], drawn["y"]
    _counts(raw, len(y), len(edges))
    drawn["edge_x"] = (np.eye(CLASSES, 8)[y[edges[:, 0]]] + rng.random((len(edges), 8))).astype(np.float32)
    drawn["labels"] = (
        rng.random((len(y), tasks)) < 0.15 + 0.7 * (y[:, None] == np.arange(tasks) % CLASSES)
    ).astype(np.int64)
    write_csv(raw / "edge.csv.gz", edges)
    write_csv(raw / "edge-feat.csv.gz", drawn["edge_x"])
    write_csv(raw / "node-label.csv.gz", drawn["labels"])
    write_csv(raw / "node_species.csv.gz", rng.integers(3000, 3008, len(y)))


def _mag(folder: Path, drawn: dict[str, Any], rng: np.random.Generator, tasks: int) -> None:
    """Four types of nodes in relations; papers have features, labels and years."""
    raw = folder / "raw"
    counts = MAG_COUNTS | {"paper": len(drawn["y"])}
    header = ",".join(counts)
    write_csv(raw / "num-node-dict.csv.gz", np.array([list(counts.values())]), f"{header}\n")
    flags = ",".join(str(kind == "paper") for kind in counts)
    for path in (raw / "nodetype-has-label.csv.gz", folder / "split/time/nodetype-has-split.csv.gz"):
        with gzip.open(path, "wt") as file:
            file.write(f"{header}\n{flags}\n")
    with gzip.open(raw / "triplet-type-list.csv.gz", "wt") as file:
        file.write("".join(f"{','.join(relation)}\n" for relation in MAG_RELATIONS))
    write_csv(raw / "node-feat/paper/node-feat.csv.gz", drawn["x"])
    write_csv(raw / "node-feat/paper/node_year.csv.gz", drawn["year"])
    write_csv(raw / "node-label/paper/node-label.csv.gz", drawn["y"])
    classes = {kind: drawn["y"] if kind == "paper" else np.arange(n) % CLASSES for kind, n in counts.items()}
    drawn["relations"] = []
    for number, relation in enumerate(MAG_RELATIONS):
        edges = _edges(rng, classes[relation[0]], classes[relation[2]], 200)
        drawn["relations"].append(edges)
        inside = raw / "relations" / "___".join(relation)
        write_csv(inside / "edge.csv.gz", edges)
        write_csv(inside / "edge_reltype.csv.gz", np.full(len(edges), number))
        write_csv(inside / "num-edge-list.csv.gz", np.array([len(edges)]))


def _papers(folder: Path, drawn: dict[str, Any], rng: np.random.Generator, tasks: int) -> None:
    """Arrays in place of text; a fifth of the labels is unknown."""
    raw, nodes = folder / "raw", len(drawn["y"])
    label = drawn["y"].astype(np.float32)[:, None]
    outside = np.setdiff1d(np.arange(nodes), drawn["split"]["train"])
    label[rng.choice(outside, nodes // 5, replace=False)] = np.nan
    drawn["labels"] = label
    np.savez(
        raw / "data.npz",
        edge_index=drawn["edges"].T.astype(np.int64),
        num_nodes_list=np.array([nodes]),
        num_edges_list=np.array([len(drawn["edges"])]),
        node_feat=drawn["x"],
        node_year=drawn["year"][:, None],
    )
    np.savez(raw / "node-label.npz", node_label=label)
