"""The graph a model is trained on: edges, features, labels and split, checked once when it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.features import select_rows
from gfgnn.graph.raw import restricted
from gfgnn.graph.validate import TASKS, check_graph

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

__all__ = ["TASKS", "Graph"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """An attributed graph with labels and a split.

    Attributes:
        edge_index: ``[2, E]`` int64, source row 0, target row 1; no self-loops, no duplicates, sorted by
            (target, source). An undirected graph stores both directions of an edge.
        num_nodes: N.
        y: ``[N]`` int64 classes, -1 where unlabelled (``multiclass``); ``[N, C]`` float 0/1, NaN where unknown
            (``multilabel``); ``[N, C]`` float, NaN where unknown (``regression``).
        num_classes: C.
        train_mask, val_mask, test_mask: ``[N]`` bool, disjoint.
        x: features ``[N, F]``, dense float32 (float16 on request) or a sparse CSR tensor; None where there are none.
        edge_weight: ``[E]`` float, or None for all ones.
        directed: whether the adjacency matrix, with its weights, differs from its transpose.
        task: one of :data:`TASKS`.
        node_ids: ``[N]`` original ids where the graph is a part of a larger one, else None.
        notes: what loading did to the input (self-loops removed, edges mirrored, ...), one sentence each.
        raw: the edges as they were given, where cleaning changed them or where they have relations; None where
            ``edge_index`` says all. ``edge_index`` is then the union of all relations, and ``directed`` is said of
            it: single relations may still differ from their transpose. Whoever replaces ``edge_index`` replaces
            ``raw`` too.
    """

    edge_index: Tensor
    num_nodes: int
    y: Tensor
    num_classes: int
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    x: Tensor | None = None
    edge_weight: Tensor | None = None
    directed: bool = False
    task: str = "multiclass"
    name: str = "graph"
    node_ids: Tensor | None = None
    notes: tuple[str, ...] = ()
    raw: EdgeList | None = None

    def __post_init__(self) -> None:
        check_graph(self)

    def __repr__(self) -> str:
        labels = "classes" if self.task == "multiclass" else "outputs"
        relations = f" of {self.num_relations:,} relations" if self.num_relations > 1 else ""
        return (
            f"Graph({self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} {'directed ' if self.directed else ''}"
            f"edges{relations}, {self.num_features:,} features, {self.num_classes:,} {labels}, {self.task})"
        )

    @property
    def num_edges(self) -> int:
        """Stored edges: both directions count where the graph is undirected."""
        return self.edge_index.size(1)

    @property
    def num_features(self) -> int:
        return 0 if self.x is None else self.x.size(1)

    @property
    def num_relations(self) -> int:
        """R, the kinds of edges; 1 where edges have no relations."""
        return 1 if self.raw is None else self.raw.num_relations

    def mapped_parts(self) -> list[Tensor]:
        """The large arrays that may be mapped from files, for :func:`gfgnn.ops.memory.page_out`."""
        x = [] if self.x is None or self.x.layout != torch.strided else [self.x]
        return [self.edge_index[0], self.edge_index[1], *x]

    def replace(self, **changes: object) -> Graph:
        """A copy with some fields changed; of what stays as it was, nothing is checked again."""
        names = [field.name for field in fields(self)]
        if unknown := changes.keys() - set(names):
            raise TypeError(f"a graph has no {', '.join(sorted(unknown))}")
        copy = object.__new__(type(self))
        for name in names:
            object.__setattr__(copy, name, changes.get(name, getattr(self, name)))
        check_graph(copy, frozenset(changes))
        return copy

    def labelled(self, mask: Tensor) -> Tensor:
        """Node ids inside ``mask`` that carry a label, or one of several at least, ``[k]``."""
        known = self.y >= 0 if self.task == "multiclass" else ~torch.isnan(self.y).all(dim=1)
        return (mask & known).nonzero().squeeze(1)

    @classmethod
    def from_edges(
        cls,
        edge_index: Any,
        num_nodes: int,
        *,
        x: Any = None,
        y: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        num_classes: int | None = None,
        task: str | None = None,
        symmetrise: bool = False,
        name: str = "graph",
        edge_type: Any = None,
        num_relations: int | None = None,
        keep_raw: bool = False,
    ) -> Graph:
        """A graph from any edge list: self-loops are removed, duplicates merged, edges sorted; see ``notes``.

        Args:
            edge_index: ``[2, E]`` integers, source row 0, target row 1, in any order; tensor or array.
            num_nodes: N.
            x: ``[N, F]`` features, dense or sparse; kept sparse where fewer than 20% of the entries are non-zero.
            y: ``[N]`` classes (-1 or NaN where unknown) or ``[N, C]`` targets; None where there are no labels.
            train_mask, val_mask, test_mask: bool ``[N]``, or node numbers.
            edge_weight: ``[E]``; weights of duplicates are summed.
            num_classes: C, where ``y`` does not show the largest class.
            task: one of :data:`TASKS`; None reads it off ``y``.
            symmetrise: store both directions of every edge; where edges have relations, a reverse edge has the
                relation of its edge.
            edge_type: ``[E]`` whole numbers, the relation of each edge; the edges are then kept as given in ``raw``,
                and ``edge_index`` is the union of all relations, with duplicates merged across them.
            num_relations: R, where ``edge_type`` does not show the largest relation.
            keep_raw: keep the edges as given in ``raw`` where self-loops are removed or duplicates merged.

        Raises:
            InputError: whatever does not fit, with the value received.
        """
        from gfgnn.graph.build import build_graph

        return build_graph(
            edge_index,
            num_nodes,
            x=x,
            y=y,
            train_mask=train_mask,
            val_mask=val_mask,
            test_mask=test_mask,
            edge_weight=edge_weight,
            num_classes=num_classes,
            task=task,
            symmetrise=symmetrise,
            name=name,
            edge_type=edge_type,
            num_relations=num_relations,
            keep_raw=keep_raw,
        )

    @classmethod
    def from_pyg(cls, data: Data | HeteroData, **options: Any) -> Graph:
        """A graph from ``torch_geometric.data.Data`` or ``HeteroData``; see :func:`gfgnn.data.pyg.from_pyg`."""
        from gfgnn.data.pyg import from_pyg

        return from_pyg(data, **options)

    @classmethod
    def from_networkx(cls, g: Any, **options: Any) -> Graph:
        """A graph from a NetworkX graph; see :func:`gfgnn.data.convert.from_networkx`."""
        from gfgnn.data.convert import from_networkx

        return from_networkx(g, **options)

    @classmethod
    def from_scipy(cls, adj: Any, x: Any = None, y: Any = None, **options: Any) -> Graph:
        """A graph from a SciPy sparse adjacency matrix; see :func:`gfgnn.data.convert.from_scipy`."""
        from gfgnn.data.convert import from_scipy

        return from_scipy(adj, x, y, **options)

    def to_pyg(self) -> Data:
        """This graph as a ``torch_geometric.data.Data``; see :func:`gfgnn.data.pyg.to_pyg`."""
        from gfgnn.data.pyg import to_pyg

        return to_pyg(self)

    def subgraph(self, nodes: Any) -> Graph:
        """The graph induced on ``nodes``: those nodes, in ascending order, and the edges between them.

        Args:
            nodes: bool ``[N]`` or node numbers. ``node_ids`` of the result says where they came from.
        """
        nodes = torch.as_tensor(nodes)
        if nodes.dtype != torch.bool:
            outside = nodes[(nodes < 0) | (nodes >= self.num_nodes)]
            if outside.numel():
                raise InputError(
                    f"there is no node {int(outside[0])}; nodes are numbered 0 to {self.num_nodes - 1}."
                )
            chosen = torch.zeros(self.num_nodes, dtype=torch.bool)
            chosen[nodes.long()] = True
            nodes = chosen
        elif nodes.shape != (self.num_nodes,):
            raise InputError(
                f"nodes must be bool [{self.num_nodes}] or node numbers; got {list(nodes.shape)}."
            )
        kept = nodes.nonzero().squeeze(1)
        number = torch.full((self.num_nodes,), -1).index_copy_(0, kept, torch.arange(kept.numel()))
        source, target = self.edge_index
        inside = nodes[source] & nodes[target]  # renumbering keeps the order, so edges stay sorted
        edge_index = number[self.edge_index[:, inside]]
        return self.replace(
            edge_index=edge_index,
            num_nodes=kept.numel(),
            edge_weight=None if self.edge_weight is None else self.edge_weight[inside],
            raw=None if self.raw is None else restricted(self.raw, nodes, number),
            notes=(
                *self.notes,
                f"kept {kept.numel():,} of {self.num_nodes:,} nodes and the edges between them",
            ),
            **self.node_rows(kept),
        )

    def node_rows(self, nodes: Tensor) -> dict[str, Tensor | None]:
        """The fields with a row for every node, at the rows ``nodes`` in the order given; ``node_ids`` among them."""
        return {
            "y": self.y[nodes],
            "train_mask": self.train_mask[nodes],
            "val_mask": self.val_mask[nodes],
            "test_mask": self.test_mask[nodes],
            "x": None if self.x is None else select_rows(self.x, nodes),
            "node_ids": nodes if self.node_ids is None else self.node_ids[nodes],
        }

    def statistics(self) -> dict[str, Any]:
        """Sizes, degrees, homophily and split as plain numbers; see :func:`gfgnn.graph.statistics.statistics`."""
        from gfgnn.graph.statistics import statistics

        return statistics(self)
