"""The door to PyTorch Geometric: data sets by name, and ``Data`` in and out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gfgnn.checks import InputError
from gfgnn.data.splits import check_split_index
from gfgnn.graph.build import build_graph
from gfgnn.graph.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_pyg(
    data: Data, *, split_index: int = 0, symmetrise: bool = False, task: str | None = None, name: str = "pyg"
) -> Graph:
    """A graph from PyG's ``Data``: ``edge_index`` (or ``adj_t``), ``x``, ``y``, ``edge_weight`` and the masks.

    Masks ``[N, S]`` hold several splits, of which ``split_index`` is taken. Other attributes are left behind.

    Raises:
        InputError: ``data`` has no edges, is heterogeneous, or does not fit together.
    """
    edge_index, weight = data.get("edge_index"), data.get("edge_weight")
    if edge_index is None and data.get("adj_t") is not None:
        edge_index, weight = _from_adj_t(data["adj_t"])
    if edge_index is None:
        raise InputError(
            f"data must have edge_index or adj_t and be homogeneous; it has {list(data.keys())}."
        )
    masks: dict[str, Any] = {key: data.get(key) for key in ("train_mask", "val_mask", "test_mask")}
    several = [mask.size(1) for mask in masks.values() if mask is not None and mask.dim() == 2]
    check_split_index(split_index, min(several, default=1))
    for key, mask in masks.items():
        if mask is not None and mask.dim() == 2:
            mask = mask[:, split_index]
        masks[key] = None if mask is None else mask.bool()
    return build_graph(
        edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index,
        int(data.num_nodes or 0),
        x=data.get("x"),
        y=data.get("y"),
        edge_weight=weight,
        symmetrise=symmetrise,
        task=task,
        name=name,
        **masks,
    )


def to_pyg(graph: Graph) -> Data:
    """PyG's ``Data`` with ``edge_index``, ``x``, ``y``, the masks, and ``edge_weight`` and ``node_ids`` where set."""
    from torch_geometric.data import Data

    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, num_nodes=graph.num_nodes)
    for key in ("train_mask", "val_mask", "test_mask", "edge_weight", "node_ids"):
        if (value := getattr(graph, key)) is not None:
            data[key] = value
    return data


def load_pyg(name: str, root: Path | None, **options: Any) -> Graph:
    """``Class:Name`` such as ``Planetoid:Cora`` or ``Actor``: ``torch_geometric.datasets.Class(root, Name)[0]``.

    PyG keeps, and where there is network fetches, its files under ``root/Class``.
    """
    import torch_geometric.datasets as datasets

    kind, _, member = name.partition(":")
    maker = getattr(datasets, kind, None)
    if not inspect.isclass(maker):  # planetoid is a module, Planetoid the class
        raise InputError(
            f"torch_geometric.datasets has no {kind!r}; examples are Planetoid:Cora and Amazon:Photo."
        )
    folder = (root or Path("data")) / kind
    arguments = {"root": str(folder)} if "root" in inspect.signature(maker).parameters else {}
    if member:
        arguments["name"] = member
    try:
        dataset: Any = maker(**arguments)
        data = dataset[0]
    except Exception as error:  # PyG lets through whatever the download or the parser raised
        raise InputError(
            f"PyG could not load {name}: {error!r}. Its raw files are looked for under {folder}; where there is no "
            "network, put them there as the PyG documentation of the class says."
        ) from error
    return from_pyg(data, name=name, **options)


def _from_adj_t(adj_t: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Edges of a transposed adjacency: row is the target. A torch sparse tensor of any layout."""
    if not isinstance(adj_t, torch.Tensor):
        row, column, value = adj_t.coo()  # torch_sparse.SparseTensor
    else:
        coo = adj_t.to_sparse_coo().coalesce()
        (row, column), value = coo.indices(), coo.values()
    weight = None if value is None or bool((value == 1).all()) else value
    return torch.stack([column, row]), weight
