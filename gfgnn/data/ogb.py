"""The door to OGB node data sets, read from their raw files; nothing is downloaded and nobody is asked anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gfgnn.checks import InputError
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph

#: data set: name of its official split
SPLITS = {"ogbn-arxiv": "time", "ogbn-products": "sales_ranking"}


def is_ogb(name: str) -> bool:
    """Whether ``name`` is an OGB node data set, ``ogbn-arxiv`` or ``ogbn_arxiv``."""
    return name.startswith(("ogbn-", "ogbn_"))


def load_ogb(name: str, root: Path, *, symmetrise: bool | None = None) -> tuple[Graph, torch.Tensor | None]:
    """Reads ``root/ogbn_arxiv`` (or another of :data:`SPLITS`) as OGB unpacks it, with the official split.

    Returns:
        The graph, and the year of every node ``[N]`` where the data have it. ``symmetrise`` None mirrors edges where
        OGB's own loader does: products, stored once, and not arxiv, which is directed.

    Raises:
        InputError: the data set is not supported, or files are missing; the message lists them.
    """
    official = name.replace("_", "-")
    if official not in SPLITS:
        raise InputError(f"{name} is not supported; gfgnn reads {', '.join(SPLITS)} from OGB's raw files.")
    folder = root / official.replace("-", "_")
    raw = [folder / "raw" / f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label")]
    split = [folder / "split" / SPLITS[official] / f"{part}.csv.gz" for part in ("train", "valid", "test")]
    missing = [path for path in raw + split if not path.is_file()]
    if missing:
        raise InputError(
            f"{official} is not complete under {folder}: missing are "
            + ", ".join(str(path.relative_to(folder)) for path in missing)
            + ". Unpack OGB's archive there (gfgnn downloads nothing), or say where it is with root."
        )
    edges, x, y = (_read(path) for path in raw)
    train, val, test = (_read(path).astype(np.int64).ravel() for path in split)
    graph = build_graph(
        edges.astype(np.int64).T,
        x.shape[0],
        x=torch.from_numpy(x.astype(np.float32)),
        y=y.astype(np.float64),
        train_mask=train,
        val_mask=val,
        test_mask=test,
        symmetrise=official == "ogbn-products" if symmetrise is None else symmetrise,
        name=official,
    )
    years = folder / "raw" / "node_year.csv.gz"
    return graph, torch.from_numpy(_read(years).astype(np.int64).ravel()) if years.is_file() else None


def _read(path: Path) -> np.ndarray:
    import pandas

    try:
        return pandas.read_csv(path, header=None).to_numpy()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read as OGB's gzipped CSV: {error}") from error
