"""``load``: one name, path or description in, one :class:`Graph` out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from gfgnn.checks import InputError, check_choice
from gfgnn.data.cache import cached, fingerprint
from gfgnn.data.find import find_npz
from gfgnn.data.npz import cast, graph_from_arrays, read_about, read_arrays
from gfgnn.data.ogb import is_ogb, load_ogb
from gfgnn.data.progress import Report, reported_to
from gfgnn.data.splits import check_split_index, draw_split
from gfgnn.data.structure import structure_features
from gfgnn.data.synthetic import parse_synthetic, synthetic_graph
from gfgnn.graph.features import STORED, is_sparse
from gfgnn.graph.features import normalise as normalise_features
from gfgnn.graph.graph import Graph

STRUCTURE_COLUMNS = 128


def load(
    name_or_path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    features: str | None = None,
    split: str | None = None,
    split_seed: int = 0,
    split_index: int = 0,
    normalise: str | None = None,
    symmetrise: bool | None = None,
    max_year: int | None = None,
    task: str | None = None,
    feature_storage: str = "float32",
    download: bool = False,
    progress: Report | None = None,
) -> Graph:
    """Loads a graph.

    ================================= ============================================================================
    ``citeseer``                      NAME.npz in ``root``, in ``$GFGNN_DATA``, or shipped with the package
    ``some/file.npz``                 a file in the neutral format of datasets/README.md
    ``Planetoid:Cora``, ``Actor:``    ``torch_geometric.datasets.Planetoid(root, "Cora")`` and so on
    ``ogbn-arxiv``                    OGB's raw files in ``root`` (or ``$GFGNN_DATA``, else ``data``); also products,
                                      proteins, mag, papers100M; see :func:`gfgnn.data.ogb.load_ogb`
    ``synthetic:nodes=1e5,classes=8`` a planted partition; see :class:`gfgnn.data.synthetic.SyntheticConfig`
    ================================= ============================================================================

    The steps are taken in this order, and each leaves a sentence in ``graph.notes``: read, clean edges
    (self-loops removed, duplicates merged), symmetrise, ``max_year``, ``split``, ``features``,
    ``normalise``, ``feature_storage``.

    Args:
        name_or_path: see the table.
        root: folder to look in first.
        features: None keeps those of the data; ``structure`` or ``structure:K`` replaces them by K (128, at
            most N - 1) leading eigenvectors of the normalised adjacency and log degree, see
            :func:`structure_features`; cached.
        split: draws a new split, for example ``per_class=20,val_per_class=30`` or ``train=0.6,val=0.2``; grammar at
            :func:`gfgnn.data.splits.parse_split`. None keeps the one in the data.
        split_seed: seed of that draw.
        split_index: which of several published splits; 0 where there is one.
        normalise: ``rows`` or ``columns``, see :func:`gfgnn.graph.features.normalise`; None leaves features alone.
        symmetrise: True stores both directions of every edge; False keeps edges as stored; None does what the data
            says about itself (directed data stay directed).
        max_year: keeps nodes of that year or earlier, where the data have ``node_year``.
        task: ``multiclass``, ``multilabel`` or ``regression``; None reads it off the labels.
        feature_storage: ``fp16`` keeps dense features as float16, in OGB's cached files too: half the memory and disk.
            They become the type that is trained in where a problem is built.
        download: fetch OGB's data set where its files are missing; other names have nothing to download, or (PyG's) do
            so anyway.
        progress: called with what is being done and the share of it that is done, while OGB's files are downloaded or
            converted.

    Raises:
        InputError: the data are not found (with where it was looked for), damaged, or the options do not fit them.
    """
    check_choice("feature_storage", feature_storage, STORED)
    name = os.fspath(name_or_path)
    if download and not is_ogb(name):
        raise InputError(f"download is for OGB's data sets, such as ogbn-arxiv; got {name}.")
    with reported_to(progress):
        graph, year = _read(name, root, split_index, symmetrise, task, feature_storage, download)
    if max_year is not None:
        if year is None:
            raise InputError(f"max_year needs the year of every node, and {graph.name} has no node_year.")
        if not bool((year <= max_year).any()):
            raise InputError(
                f"max_year={max_year} leaves no node; years are {int(year.min())} to {int(year.max())}."
            )
        graph = graph.subgraph(year <= max_year)
    if split is not None:
        graph = draw_split(graph, split, split_seed)
    if features is not None:
        graph = with_structure_features(graph, _structure_columns(features, graph.num_nodes))
    if normalise is not None:
        graph = normalised(graph, normalise)
    return graph if feature_storage == "float32" else kept_as(graph, feature_storage)


def with_structure_features(graph: Graph, k: int = STRUCTURE_COLUMNS, seed: int = 0) -> Graph:
    """``graph`` with its features replaced by :func:`structure_features` ``[N, k + 1]``, kept in the cache folder."""
    edges = graph.edge_index.numpy()
    key = fingerprint(edges, graph.num_nodes, k, seed, "structure-4")
    x = cached(
        "structure", key, lambda: structure_features(graph.edge_index, graph.num_nodes, k, seed).numpy()
    )
    note = f"features: {k} leading eigenvectors of the normalised adjacency and log degree, seed {seed}"
    return graph.replace(x=torch.from_numpy(x), notes=(*graph.notes, note))


def normalised(graph: Graph, how: str) -> Graph:
    """``graph`` with normalised features, see :func:`gfgnn.graph.features.normalise`."""
    if graph.x is None:
        raise InputError(
            f"normalise={how!r} needs features, and {graph.name} has none; add features='structure'."
        )
    return graph.replace(
        x=normalise_features(graph.x, how), notes=(*graph.notes, f"features normalised by {how}")
    )


def kept_as(graph: Graph, storage: str) -> Graph:
    """``graph`` with dense features stored as :data:`gfgnn.graph.features.STORED` says."""
    if graph.x is None:
        return graph
    if is_sparse(graph.x):
        raise InputError(
            f"feature_storage={storage!r} is for dense features; those of {graph.name} are sparse, which saves more."
        )
    kind = getattr(torch, STORED[storage])
    notes = (*graph.notes, f"features kept as {STORED[storage]}")
    if graph.x.dtype == kind:  # OGB's, which may be mapped from a file larger than memory
        return graph.replace(notes=notes)
    largest = max(abs(float(end)) for end in graph.x.aminmax())
    if largest > torch.finfo(kind).max:
        raise InputError(
            f"feature_storage={storage!r} holds numbers up to {torch.finfo(kind).max:,.0f}; {graph.name} has features "
            f"up to {largest:.4g}: normalise them, or keep float32."
        )
    return graph.replace(x=graph.x.to(kind), notes=notes)


def _read(
    name: str,
    root: str | os.PathLike[str] | None,
    split_index: int,
    symmetrise: bool | None,
    task: str | None,
    storage: str,
    download: bool,
) -> tuple[Graph, torch.Tensor | None]:
    """The graph as its source has it, and the year of every node where known."""
    if name == "synthetic" or name.startswith("synthetic:"):
        check_split_index(split_index, 1)
        return synthetic_graph(parse_synthetic(name.partition(":")[2])), None
    folder = None if root is None else Path(root)
    if ":" in name and not Path(name).exists():
        from gfgnn.data.pyg import load_pyg

        return load_pyg(name, folder, split_index=split_index, symmetrise=bool(symmetrise), task=task), None
    path = find_npz(name, folder, required=not is_ogb(name))
    if path is None:
        check_split_index(split_index, 1)
        ogb_root = folder or Path(os.environ.get("GFGNN_DATA") or "data")
        return load_ogb(name, ogb_root, symmetrise=symmetrise, storage=storage, download=download)
    arrays = read_arrays(path)
    graph = graph_from_arrays(
        arrays, path.stem, split_index=split_index, symmetrise=symmetrise, task=task, about=read_about(path)
    )
    return graph, _years(arrays, graph.num_nodes)


def _years(arrays: dict[str, np.ndarray], num_nodes: int) -> torch.Tensor | None:
    if "node_year" not in arrays:
        return None
    year = torch.from_numpy(cast(arrays, "node_year", np.int64)).reshape(-1)
    if year.shape != (num_nodes,):
        raise InputError(f"node_year must have shape [{num_nodes}]; got {list(year.shape)}.")
    return year


def _structure_columns(features: str, num_nodes: int) -> int:
    """The number asked for; where none is, the usual one, or as many as so few nodes have."""
    kind, _, count = str(features).partition(":")
    if kind != "structure" or not (count.isdecimal() or features == "structure"):
        raise InputError(
            f"features must be structure or structure:K, such as structure:64; got {features!r}."
        )
    return int(count) if count else max(1, min(STRUCTURE_COLUMNS, num_nodes - 1))
