"""The neutral file format: one ``.npz`` of plain arrays, no pickles. datasets/README.md describes it."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gfgnn.checks import InputError
from gfgnn.data.splits import check_split_index
from gfgnn.graph.build import as_count, as_mask, build_graph
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.features import csr_tensor, is_sparse
from gfgnn.graph.graph import Graph
from gfgnn.graph.raw import given_edges

SPLITS = ("train", "val", "test")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz``, without ever unpickling.

    Raises:
        InputError: the file is truncated, is no ``.npz``, or holds pickled objects.
    """
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{path} holds a single array; an .npz with edge_index and others is needed."
                )
            return {key: archive[key] for key in archive.files}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{path} cannot be read as an .npz, it is truncated or damaged: {error}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} is no plain .npz of numbers. Files with pickled objects are refused, because reading them could "
            "run code; save arrays of numbers with numpy.savez_compressed or gfgnn.data.save_npz."
        ) from error


def load_npz(
    path: str | os.PathLike[str],
    *,
    split_index: int = 0,
    symmetrise: bool | None = None,
    task: str | None = None,
) -> Graph:
    """Reads a graph in the neutral format.

    Args:
        path: the ``.npz``; a ``.json`` of the same name beside it may say how edges are stored, and more.
        split_index: which split, where the file holds several (masks ``[S, N]``).
        symmetrise: True stores both directions of every edge (a reverse edge has the relation of its edge), False
            takes edges as they are; None follows the ``edges`` entry of the ``.json`` (mirrors where each undirected
            edge is stored once).
        task: see :meth:`Graph.from_edges`.
    """
    path = Path(path)
    arrays = read_arrays(path)
    return graph_from_arrays(
        arrays, path.stem, split_index=split_index, symmetrise=symmetrise, task=task, about=read_about(path)
    )


def graph_from_arrays(
    arrays: dict[str, np.ndarray],
    name: str,
    *,
    split_index: int = 0,
    symmetrise: bool | None = None,
    task: str | None = None,
    about: dict[str, Any] | None = None,
) -> Graph:
    """The graph in the arrays of a file; ``about`` is the content of its ``.json``. See :func:`load_npz`."""
    if "edge_index" not in arrays:
        raise InputError(f"{name} has no edge_index; its arrays are {', '.join(sorted(arrays)) or 'none'}.")
    num_nodes = _num_nodes(arrays)
    if symmetrise is None:
        symmetrise = _stored_once(about or {})
    if "num_classes" in arrays:
        num_classes: int | None = as_count("num_classes", arrays["num_classes"])
    else:
        num_classes = _classes(about or {})
    check_split_index(split_index, _num_splits(arrays))
    masks: dict[str, Any] = {f"{part}_mask": _mask(arrays, part, num_nodes, split_index) for part in SPLITS}
    raw = _raw(arrays, num_nodes, symmetrise)
    graph = build_graph(
        arrays["edge_index"],
        num_nodes,
        x=_features(arrays),
        y=None if "y" not in arrays else _signed(arrays["y"]),
        edge_weight=arrays.get("edge_weight"),
        num_classes=num_classes,
        task=str(arrays["task"]) if task is None and "task" in arrays else task,
        symmetrise=symmetrise,
        name=name,
        node_ids=torch.from_numpy(cast(arrays, "node_ids", np.int64)) if "node_ids" in arrays else None,
        **({} if raw is not None else _relations(arrays)),
        **masks,
    )
    return graph if raw is None else graph.replace(raw=raw)


def save_npz(path: str | os.PathLike[str], graph: Graph) -> None:
    """Writes ``graph`` in the neutral format; the file appears whole or not at all.

    Integers are stored as narrow as they fit. Reading it back gives the same graph, without its notes.
    """
    arrays: dict[str, np.ndarray] = {
        "edge_index": graph.edge_index.numpy().astype(np.int32 if graph.num_nodes < 2**31 else np.int64),
        "num_nodes": np.array(graph.num_nodes),
        "num_classes": np.array(graph.num_classes),
        "task": np.array(graph.task),
        "y": graph.y.numpy(),
    }
    if graph.task == "multiclass":
        arrays["y"] = arrays["y"].astype(np.int16 if graph.num_classes < 2**15 else np.int64)
    for part in SPLITS:
        arrays[f"{part}_mask"] = getattr(graph, f"{part}_mask").numpy()
    for key in ("edge_weight", "node_ids"):
        if (value := getattr(graph, key)) is not None:
            arrays[key] = value.numpy()
    if graph.raw is not None:
        arrays.update(_raw_arrays(graph.raw, graph.num_nodes))
    if graph.x is not None and is_sparse(graph.x):
        arrays["x_indptr"] = graph.x.crow_indices().numpy()
        arrays["x_indices"] = graph.x.col_indices().numpy().astype(np.int32)
        arrays["x_shape"] = np.array(graph.x.shape, dtype=np.int64)
        values = graph.x.values().numpy()
        if not (values == 1).all():
            arrays["x_data"] = values
    elif graph.x is not None:
        arrays["x"] = graph.x.numpy()
    write_arrays(Path(path), arrays)


def _relations(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a file says about the relations of its edges, as :func:`build_graph` takes it."""
    relations: dict[str, Any] = {}
    if "edge_type" in arrays:
        relations["edge_type"] = _signed(arrays["edge_type"])
    if "num_relations" in arrays:
        relations["num_relations"] = as_count("num_relations", arrays["num_relations"])
    return relations


def _raw(arrays: dict[str, np.ndarray], num_nodes: int, symmetrise: bool) -> EdgeList | None:
    """The edges as they were given, where the file has them beside the cleaned ones."""
    if "raw_edge_index" not in arrays:
        if "raw_edge_weight" in arrays:
            raise InputError("the file has raw_edge_weight but no raw_edge_index, whose edges it weighs.")
        return None
    try:
        return given_edges(
            arrays["raw_edge_index"],
            num_nodes,
            arrays.get("raw_edge_weight"),
            symmetrise=symmetrise,
            **_relations(arrays),
        )
    except InputError as error:
        raise InputError(f"raw_edge_index and its edges: {error}") from None


def _raw_arrays(raw: EdgeList, num_nodes: int) -> dict[str, np.ndarray]:
    arrays = {"raw_edge_index": raw.edge_index.numpy().astype(_narrow(num_nodes))}
    if raw.edge_weight is not None:
        arrays["raw_edge_weight"] = raw.edge_weight.numpy()
    if raw.edge_type is not None:
        arrays["edge_type"] = raw.edge_type.numpy().astype(_narrow(raw.num_relations))
        arrays["num_relations"] = np.array(raw.num_relations)
    return arrays


def _narrow(count: int) -> type[np.signedinteger[Any]]:
    """A type for the numbers 0 to ``count - 1``."""
    return np.int16 if count <= 2**15 else np.int32 if count <= 2**31 else np.int64


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes an ``.npz`` beside its place and moves it there when complete: readers never see half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_about(path: Path) -> dict[str, Any]:
    """The ``.json`` beside a file, or an empty dict."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return {}
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{beside} is not valid JSON: {error}") from error
    return about if isinstance(about, dict) else {}


def _stored_once(about: dict[str, Any]) -> bool:
    sizes = about.get("sizes")
    return isinstance(sizes, dict) and str(sizes.get("edges", "")).startswith("each undirected edge once")


def _classes(about: dict[str, Any]) -> int | None:
    sizes = about.get("sizes")
    classes = sizes.get("num_classes") if isinstance(sizes, dict) else None
    return classes if isinstance(classes, int) else None


def _num_nodes(arrays: dict[str, np.ndarray]) -> int:
    if "num_nodes" in arrays:
        return as_count("num_nodes", arrays["num_nodes"])
    if "x_shape" in arrays and "x" not in arrays:
        return _shape(arrays)[0]
    for key in ("x", "y"):
        if key in arrays and arrays[key].ndim:
            return int(arrays[key].shape[0])
    raise InputError("the number of nodes is unknown: the file needs num_nodes, x, x_shape or y.")


def _features(arrays: dict[str, np.ndarray]) -> torch.Tensor | None:
    if "x" in arrays:
        return torch.from_numpy(cast(arrays, "x", np.float32))
    if "x_indptr" not in arrays:
        return None
    for key in ("x_indices", "x_shape"):
        if key not in arrays:
            raise InputError(
                f"the file has x_indptr but no {key}; CSR features need x_indptr, x_indices and x_shape."
            )
    indices = torch.from_numpy(cast(arrays, "x_indices", np.int64))
    values = torch.ones(indices.shape)
    if "x_data" in arrays:
        values = torch.from_numpy(cast(arrays, "x_data", np.float32))
    return csr_tensor(torch.from_numpy(cast(arrays, "x_indptr", np.int64)), indices, values, _shape(arrays))


def _shape(arrays: dict[str, np.ndarray]) -> tuple[int, int]:
    shape = cast(arrays, "x_shape", np.int64).tolist()
    if not isinstance(shape, list) or len(shape) != 2 or min(shape) < 0:
        raise InputError(f"x_shape must be two numbers, nodes and features; got {shape}.")
    return shape[0], shape[1]


def cast(arrays: dict[str, np.ndarray], key: str, kind: type) -> np.ndarray:
    """Array ``key`` as numbers of ``kind``; :class:`InputError` where it holds something else."""
    try:
        with np.errstate(
            over="ignore"
        ):  # too large for float32: found as infinite where the graph is checked
            return arrays[key].astype(kind, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{key} must hold numbers; got {arrays[key].dtype}: {error}.") from None


def _signed(y: np.ndarray) -> np.ndarray:
    """torch lacks most unsigned types; int64 holds them all."""
    return y.astype(np.int64) if np.issubdtype(y.dtype, np.integer) else y


def _num_splits(arrays: dict[str, np.ndarray]) -> int:
    masks = [arrays[f"{part}_mask"] for part in SPLITS if f"{part}_mask" in arrays]
    return min((mask.shape[0] for mask in masks if mask.dtype == bool and mask.ndim == 2), default=1)


def _mask(arrays: dict[str, np.ndarray], part: str, num_nodes: int, split_index: int) -> torch.Tensor:
    value = arrays.get(f"{part}_mask", arrays.get(f"{part}_idx"))
    if value is None:
        return as_mask(part, None, num_nodes)
    if value.dtype == bool and value.ndim == 2:
        value = value[split_index]
    return as_mask(part, value if value.dtype == bool else _signed(value), num_nodes)
