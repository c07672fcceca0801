"""An OGB node data set as a graph with its official split, converted once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gfgnn.checks import InputError
from gfgnn.data.cache import cached_arrays, fingerprint, work_folder
from gfgnn.data.edge_stream import stream_clean_edges
from gfgnn.data.graph_arrays import graph_to_arrays, stored_graph
from gfgnn.data.ogb.read import read_raw
from gfgnn.data.ogb.sets import OgbSet, ogb_set
from gfgnn.data.ogb.tables import read_table
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph

#: to be raised by whoever changes what raw files are made into: what is cached is then made anew
FORMAT = 1


def load_ogb(name: str, root: Path, *, symmetrise: bool | None = None) -> tuple[Graph, torch.Tensor | None]:
    """Reads ``root/ogbn_arxiv`` (or another of :data:`gfgnn.data.ogb.SETS`) as OGB unpacks it.

    The graph is kept in the cache folder under the names, sizes and times of the raw files, and the next load maps it:
    pages are read as they are used. What was made of files that have changed since stays there until it is removed.

    Returns:
        The graph, and the year of every node ``[N]`` where the data have it. ``symmetrise`` None mirrors edges where
        OGB does: its loader mirrors products and proteins, stored once, and its examples mag; arxiv and papers100M stay
        directed. For mag see :func:`gfgnn.data.ogb.mag.read_mag`.

    Raises:
        InputError: the data set is not supported, files are missing (the message lists them), or do not fit.
    """
    known = ogb_set(name)
    splits = known.files(root)[-3:]
    folder = known.folder(root)
    mirrored = known.mirrored if symmetrise is None else symmetrise
    key = fingerprint(FORMAT, known.name, str(mirrored), *_signature(folder, splits))
    arrays = cached_arrays(known.name, key, lambda: _convert(known, folder, splits, mirrored))
    year = arrays.get("node_year")
    return stored_graph(arrays), None if year is None else torch.from_numpy(year)


def _signature(folder: Path, splits: list[Path]) -> list[str | int]:
    """Name, size and time of every file that may be read."""
    found = sorted(path for path in (folder / "raw").rglob("*") if path.is_file())
    about = ((path.relative_to(folder).as_posix(), path.stat()) for path in [*found, *splits])
    return [part for name, stat in about for part in (name, stat.st_size, stat.st_mtime_ns)]


def _convert(known: OgbSet, folder: Path, splits: list[Path], mirrored: bool) -> dict[str, np.ndarray]:
    arguments, year = read_raw(known.name, folder / "raw", mirrored)
    train, val, test = (read_table(path, np.int64).ravel() for path in splits)
    arguments |= {"train_mask": train, "val_mask": val, "test_mask": test, "name": known.name}
    pieces = arguments.pop("edges", None)
    if pieces is None:
        graph = build_graph(**arguments)
    else:  # the rest first: it may not fit, which is sooner found than all edges are sorted
        graph = build_graph(np.zeros((2, 0), np.int64), **arguments)
        try:
            with work_folder(known.name) as work:
                edges = stream_clean_edges(pieces, graph.num_nodes, work, symmetrise=mirrored)
        except OSError as error:
            raise InputError(
                f"the edges of {known.name} are sorted in files, up to 64 bytes for each; set GFGNN_CACHE to a folder "
                f"with room for them: {error}"
            ) from error
        edge_index = torch.from_numpy(edges.edge_index)
        graph = graph.replace(edge_index=edge_index, directed=edges.directed, notes=edges.notes)
    return graph_to_arrays(graph) | ({} if year is None else {"node_year": year})
