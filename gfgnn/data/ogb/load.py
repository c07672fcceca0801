"""An OGB node data set as a graph with its official split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gfgnn.data.ogb.read import read_raw
from gfgnn.data.ogb.sets import ogb_set
from gfgnn.data.ogb.tables import read_table
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph


def load_ogb(name: str, root: Path, *, symmetrise: bool | None = None) -> tuple[Graph, torch.Tensor | None]:
    """Reads ``root/ogbn_arxiv`` (or another of :data:`gfgnn.data.ogb.SETS`) as OGB unpacks it.

    Returns:
        The graph, and the year of every node ``[N]`` where the data have it. ``symmetrise`` None mirrors edges where
        OGB does: its loader mirrors products and proteins, stored once, and its examples mag; arxiv and papers100M stay
        directed. For mag see :func:`gfgnn.data.ogb.mag.read_mag`.

    Raises:
        InputError: the data set is not supported, files are missing (the message lists them), or do not fit.
    """
    known = ogb_set(name)
    files = known.files(root)
    mirrored = known.mirrored if symmetrise is None else symmetrise
    arguments, year = read_raw(known.name, known.folder(root) / "raw", mirrored)
    train, val, test = (read_table(path, np.int64).ravel() for path in files[-3:])
    graph = build_graph(**arguments, train_mask=train, val_mask=val, test_mask=test, name=known.name)
    return graph, None if year is None else torch.from_numpy(year)
