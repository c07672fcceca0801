"""An OGB node data set as a graph with its official split, converted once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from gfgnn.checks import InputError
from gfgnn.data.cache import cached_arrays, fingerprint
from gfgnn.data.edge_stream import stream_clean_edges
from gfgnn.data.graph_arrays import graph_to_arrays, stored_graph
from gfgnn.data.npy_stream import write_features
from gfgnn.data.ogb.download import fetch
from gfgnn.data.ogb.read import read_raw
from gfgnn.data.ogb.sets import OgbSet, ogb_set
from gfgnn.data.ogb.tables import read_table
from gfgnn.graph.build import build_graph
from gfgnn.graph.features import STORED
from gfgnn.graph.graph import Graph

#: to be raised by whoever changes what raw files are made into: what is cached is then made anew
FORMAT = 2


def load_ogb(
    name: str,
    root: Path,
    *,
    symmetrise: bool | None = None,
    storage: str = "float32",
    download: bool = False,
) -> tuple[Graph, torch.Tensor | None]:
    """Reads ``root/ogbn_arxiv`` (or another of :data:`gfgnn.data.ogb.SETS`) as OGB unpacks it.

    The graph is kept in the cache folder under the names, sizes and times of the raw files, and the next load maps it:
    pages are read as they are used. What was made of files that have changed since stays there until it is removed.
    Memory of a conversion is that of some numbers for each node and of pieces of edges and features; where edges have
    relations (mag), of all edges.

    Args:
        symmetrise: None mirrors edges where OGB does: its loader mirrors products and proteins, stored once, and its
            examples mag; arxiv and papers100M stay directed. For mag see :func:`gfgnn.data.ogb.mag.read_mag`.
        storage: one of :data:`gfgnn.graph.features.STORED`.
        download: whether files that are missing are fetched, see :func:`gfgnn.data.ogb.download.fetch`.

    Returns:
        The graph, and the year of every node ``[N]`` where the data have it.

    Raises:
        InputError: the data set is not supported, files are missing (the message lists them), or do not fit.
    """
    known = ogb_set(name)
    if download:
        fetch(known, root)
    splits = known.files(root)[-3:]
    folder = known.folder(root)
    mirrored = known.mirrored if symmetrise is None else symmetrise
    key = fingerprint(FORMAT, known.name, str(mirrored), storage, *_signature(folder, splits))
    try:
        arrays = cached_arrays(
            known.name, key, lambda work: _convert(known, folder, splits, mirrored, storage, work)
        )
    except OSError as error:
        raise InputError(
            f"{known.name} is converted in files: its features, and up to 48 bytes for each edge; set GFGNN_CACHE to a "
            f"folder with room for them: {error}"
        ) from error
    year = arrays.get("node_year")
    return stored_graph(arrays), None if year is None else torch.from_numpy(year)


def _signature(folder: Path, splits: list[Path]) -> list[str | int]:
    """Name, size and time of every file that may be read."""
    found = sorted(path for path in (folder / "raw").rglob("*") if path.is_file())
    about = ((path.relative_to(folder).as_posix(), path.stat()) for path in [*found, *splits])
    return [part for name, stat in about for part in (name, stat.st_size, stat.st_mtime_ns)]


def _convert(
    known: OgbSet, folder: Path, splits: list[Path], mirrored: bool, storage: str, work: Path
) -> dict[str, np.ndarray]:
    """The arrays of the graph but for features, and edges without relations: those are files in ``work``."""
    with TemporaryDirectory(dir=work) as passing:
        arguments, year = read_raw(known.name, folder / "raw", mirrored, Path(passing))
        train, val, test = (read_table(path, np.int64).ravel() for path in splits)
        arguments |= {"train_mask": train, "val_mask": val, "test_mask": test, "name": known.name}
        features, edges = arguments.pop("features"), arguments.pop("edges", None)
        if edges is not None:
            arguments["edge_index"] = np.zeros((2, 0), np.int64)
        graph = build_graph(**arguments)  # first: what does not fit is sooner found than all edges are sorted
        write_features(work / "x.npy", features, graph.num_nodes, STORED[storage])
    if edges is not None:
        directed, notes = stream_clean_edges(
            edges, graph.num_nodes, work / "edge_index.npy", symmetrise=mirrored
        )
        graph = graph.replace(directed=directed, notes=notes)
    arrays = graph_to_arrays(graph) | ({} if year is None else {"node_year": year})
    if edges is not None:
        del arrays["edge_index"]
    return arrays
