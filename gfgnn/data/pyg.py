"""The door to PyTorch Geometric: data sets by name, and ``Data`` in and out."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.data.splits import check_split_index
from gfgnn.graph.build import build_graph
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.graph import Graph

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

MASKS = ("train_mask", "val_mask", "test_mask")


def from_pyg(
    data: Data | HeteroData,
    *,
    split_index: int = 0,
    symmetrise: bool = False,
    task: str | None = None,
    name: str = "pyg",
) -> Graph:
    """A graph from PyG's ``Data``: ``edge_index`` (or ``adj_t``), ``x``, ``y``, ``edge_weight`` and the masks.

    Self-loops and repeated edges, which PyG's layers see, are kept in ``graph.raw``, and so are relations: the
    ``edge_type`` of a ``Data``, whole numbers ``[E]`` (and ``num_relations`` where it has that). Masks ``[N, S]`` hold
    several splits, of which ``split_index`` is taken. Other attributes are left behind.

    A ``HeteroData`` becomes one graph, nodes in the order of its ``to_homogeneous()`` and relations in the order of
    ``data.edge_types``; ``graph.notes`` names both. Every node type needs features of the same width, or none any.
    Labels and masks come from the node types that have ``y``; nodes of the other types are unlabelled. Where only some
    edge types have ``edge_weight``, the weights of the others are 1. The type of a node is left behind.

    Raises:
        InputError: ``data`` is neither, has no edges, its node types have features of different widths, or it does not
            fit together.
    """
    from torch_geometric.data import Data, HeteroData

    if not isinstance(data, Data | HeteroData):
        hint = "; of a data set take the first element, dataset[0]" if hasattr(data, "num_features") else ""
        raise InputError(
            f"data must be a Data or HeteroData of PyTorch Geometric; got {type(data).__name__}{hint}."
        )
    notes: tuple[str, ...] = ()
    if isinstance(data, HeteroData):
        data, notes = _homogeneous(data, split_index)
        split_index = 0
    edge_index, weight, edge_type = data.get("edge_index"), data.get("edge_weight"), data.get("edge_type")
    if edge_index is None and data.get("adj_t") is not None:
        edge_index, weight = _from_adj_t(data["adj_t"])
        edge_type = None  # its order is unknown
    if edge_index is None:
        raise InputError(f"data must have edge_index or adj_t; it has {list(data.keys())}.")
    if not _is_relation(edge_type, tuple(np.shape(edge_index))[1:]):
        edge_type = None
    check_split_index(split_index, _num_splits(data.get(key) for key in MASKS))
    masks: dict[str, Any] = {key: _one_split(data.get(key), split_index) for key in MASKS}
    num_relations = data.get("num_relations")
    return build_graph(
        _plain(edge_index),
        int(data.num_nodes or 0),
        x=data.get("x"),
        y=data.get("y"),
        edge_weight=weight,
        edge_type=edge_type,
        num_relations=num_relations if edge_type is not None and isinstance(num_relations, int) else None,
        keep_raw=True,
        symmetrise=symmetrise,
        task=task,
        name=name,
        notes=notes,
        **masks,
    )


def to_pyg(graph: Graph) -> Data:
    """PyG's ``Data`` with ``edge_index``, ``x``, ``y``, the masks, and ``edge_weight`` and ``node_ids`` where set.

    Where ``graph.raw`` is set, edges and weights are those, with ``edge_type`` and ``num_relations`` where edges have
    relations: :func:`from_pyg` gives the graph back.
    """
    from torch_geometric.data import Data

    raw = graph.raw
    edges: Graph | EdgeList = graph if raw is None else raw
    x = (
        graph.x.float() if graph.x is not None and graph.x.dtype == torch.float16 else graph.x
    )  # what modules take
    data = Data(x=x, edge_index=edges.edge_index, y=graph.y, num_nodes=graph.num_nodes)
    for key in (*MASKS, "node_ids"):
        if (value := getattr(graph, key)) is not None:
            data[key] = value
    if edges.edge_weight is not None:
        data.edge_weight = edges.edge_weight
    if raw is not None and raw.edge_type is not None:
        data.edge_type = raw.edge_type
        data.num_relations = raw.num_relations
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


def _plain(edge_index: Any) -> Any:
    """PyG's ``EdgeIndex`` is a tensor of its own kind."""
    return edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index


def _is_relation(edge_type: Any, shape: tuple[int, ...]) -> bool:
    """Whether an attribute holds one whole number per edge: other uses of the name are none of ours."""
    return (
        isinstance(edge_type, Tensor)
        and tuple(edge_type.shape) == shape
        and not (edge_type.is_floating_point() or edge_type.is_complex() or edge_type.dtype == torch.bool)
    )


def _num_splits(masks: Iterable[Tensor | None]) -> int:
    return min((mask.size(1) for mask in masks if mask is not None and mask.dim() == 2), default=1)


def _one_split(mask: Tensor | None, split_index: int) -> Tensor | None:
    if mask is None:
        return None
    return (mask[:, split_index] if mask.dim() == 2 else mask).bool()


def _homogeneous(data: HeteroData, split_index: int) -> tuple[Data, tuple[str, ...]]:
    """One ``Data`` with ``edge_type``, and what is to be known about it. PyG says how nodes and edges are numbered."""
    if not data.edge_types:
        raise InputError(
            f"data must have edges; it has the node types {', '.join(data.node_types) or 'none'}."
        )
    sizes = {kind: data[kind].num_nodes for kind in data.node_types}
    if unknown := [kind for kind, size in sizes.items() if size is None]:
        raise InputError(
            f"the number of nodes of type {unknown[0]!r} is unknown: give it x, or data[{unknown[0]!r}].num_nodes."
        )
    bare, weights = _bare_edges(data, sizes)
    whole = bare.to_homogeneous(add_node_type=False)
    whole.num_nodes = sum(sizes.values())
    whole.num_relations = len(data.edge_types)
    if weights is not None:
        whole.edge_weight = weights
    if (x := _joint_features(data)) is not None:
        whole.x = x
    if (y := _joint_labels(data, sizes)) is not None:
        whole.y = y
    stores = [data[kind] for kind in data.node_types if data[kind].get("y") is not None]
    check_split_index(split_index, _num_splits(store.get(key) for store in stores for key in MASKS))
    for key in MASKS:
        if any(store.get(key) is not None for store in stores):
            whole[key] = torch.cat(
                [_mask_of(data[kind], key, split_index, sizes[kind]) for kind in data.node_types]
            )
    return whole, _notes(data, sizes)


def _bare_edges(data: HeteroData, sizes: dict[str, int]) -> tuple[HeteroData, Tensor | None]:
    """``data`` with nothing but numbers of nodes and ``edge_index``, and the weights of all edges in that order."""
    from torch_geometric.data import HeteroData

    bare = HeteroData()
    weights: list[Tensor | None] = []
    for kind, size in sizes.items():
        bare[kind].num_nodes = size
    for relation in data.edge_types:
        store = data[relation]
        edge_index, weight = store.get("edge_index"), store.get("edge_weight")
        if edge_index is None and store.get("adj_t") is not None:
            edge_index, weight = _from_adj_t(store["adj_t"])
        if edge_index is None:
            raise InputError(
                f"edges {relation} must have edge_index or adj_t; they have {list(store.keys())}."
            )
        edge_index = _plain(edge_index)
        if edge_index.dim() != 2 or edge_index.size(0) != 2:
            raise InputError(
                f"edge_index of {relation} must have shape [2, E]; got {list(edge_index.shape)}."
            )
        if weight is not None and weight.shape != (edge_index.size(1),):
            raise InputError(
                f"edge_weight of {relation} must have shape [{edge_index.size(1)}]; got {list(weight.shape)}."
            )
        _check_ends(relation, edge_index, sizes)
        bare[relation].edge_index = edge_index
        weights.append(weight)
    if all(weight is None for weight in weights):
        return bare, None
    counts = [bare[relation].edge_index.size(1) for relation in data.edge_types]
    filled = [torch.ones(n) if w is None else w for w, n in zip(weights, counts, strict=True)]
    return bare, torch.cat(filled)


def _check_ends(relation: tuple[str, str, str], edge_index: Tensor, sizes: dict[str, int]) -> None:
    """A node too large for its type would become a node of the next one."""
    for ends, kind in zip(edge_index, (relation[0], relation[2]), strict=True):
        if kind not in sizes:
            raise InputError(f"edges {relation} need nodes of type {kind!r}; there are {', '.join(sizes)}.")
        low, high = (int(ends.min()), int(ends.max())) if ends.numel() else (0, -1)
        if low < 0 or high >= sizes[kind]:
            bad = low if low < 0 else high
            raise InputError(
                f"edges {relation} name node {bad} of type {kind!r}, which has {sizes[kind]:,} nodes."
            )


def _joint_features(data: HeteroData) -> Tensor | None:
    features = {kind: data[kind].get("x") for kind in data.node_types}
    if all(x is None for x in features.values()):
        return None
    widths = {kind: None if x is None else x.size(1) if x.dim() == 2 else 1 for kind, x in features.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{kind} {'none' if width is None else width}" for kind, width in widths.items())
        raise InputError(
            f"all node types must have features of the same width; got {listed}. Bring them to one width first: pad "
            "with zeros, or multiply the features of each type by a projection of its own."
        )
    return torch.cat([_dense(x) for x in features.values()])


def _dense(x: Tensor) -> Tensor:
    x = x if x.layout == torch.strided else x.to_dense()
    return x if x.dim() == 2 else x.unsqueeze(1)


def _joint_labels(data: HeteroData, sizes: dict[str, int]) -> Tensor | None:
    """Labels of all nodes; -1 or NaN, as :func:`gfgnn.graph.build.as_labels` takes it, where a type has none."""
    known = {kind: y for kind in data.node_types if (y := data[kind].get("y")) is not None}
    if not known:
        return None
    shapes = {kind: list(y.shape[1:]) for kind, y in known.items()}
    first = next(iter(known.values()))
    if any(shape != list(first.shape[1:]) for shape in shapes.values()):
        raise InputError(f"y of all labelled node types must have the same width; got {shapes}.")
    whole = first.dim() == 1 and not any(y.is_floating_point() for y in known.values())
    dtype = torch.int64 if whole else torch.float32
    absent = -1 if whole else float("nan")
    return torch.cat(
        [
            known[kind].to(dtype)
            if kind in known
            else torch.full((size, *first.shape[1:]), absent, dtype=dtype)
            for kind, size in sizes.items()
        ]
    )


def _mask_of(store: Any, key: str, split_index: int, size: int) -> Tensor:
    mask = _one_split(store.get(key), split_index) if store.get("y") is not None else None
    return torch.zeros(size, dtype=torch.bool) if mask is None else mask


def _notes(data: HeteroData, sizes: dict[str, int]) -> tuple[str, ...]:
    relations = ", ".join(f"{r} = {' '.join(names)}" for r, names in enumerate(data.edge_types))
    ends, parts = 0, []
    for kind, size in sizes.items():
        parts.append(f"{kind} {ends:,} to {ends + size - 1:,}" if size else f"{kind} none")
        ends += size
    return (
        f"relations: {relations}",
        f"nodes by type: {', '.join(parts)}; the type itself is left behind, models see it only where x tells",
    )
