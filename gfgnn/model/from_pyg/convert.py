"""Reads a module of PyG as a network of blocks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch

from gfgnn.checks import InputError
from gfgnn.config import CUSTOM, ModelConfig
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.graph.propagation import given_scale
from gfgnn.model.blocks import Block
from gfgnn.model.from_pyg.arguments import Call, absent_inputs, call_of, edges_of
from gfgnn.model.from_pyg.builder import Builder
from gfgnn.model.from_pyg.finish import blocks_of, ordered
from gfgnn.model.from_pyg.layer_reader import LayerReader
from gfgnn.model.from_pyg.pyg_model import PygModel, dtype_of
from gfgnn.model.from_pyg.reader import Reader
from gfgnn.model.from_pyg.trace import evaluating, trace


def from_pyg(module: torch.nn.Module, data: Any) -> PygModel:
    """The network of an unmodified module of PyG, for training by gfgnn.

    The module's ``forward`` is traced with ``torch.fx``. Its arguments are told by their names: ``x`` (or the first
    one), ``edge_index`` or ``adj_t`` (or the second one), ``edge_weight``, ``edge_type``, or all of them as ``data``;
    others keep their defaults. Edge weights count where ``forward`` passes them on to a layer.

    Args:
        module: layers ``GCNConv``, ``GCN2Conv``, ``SGConv``, ``SAGEConv``, ``GINConv``, ``GraphConv``, ``RGCNConv``,
            ``FastRGCNConv``, ``Linear``, ``BatchNorm``, ``JumpingKnowledge('cat')``, dropout, relu and leaky_relu, in
            any arrangement of sums, concatenations and multiples without cycles that ends in a linear layer. It is
            left as it is, except that lazy layers get their sizes.
        data: a :class:`gfgnn.Graph`, or what :meth:`gfgnn.Graph.from_pyg` takes.

    Raises:
        InputError: the module has layers or operations that cannot be trained, all of which the message names; or
            it does not fit the graph.
    """
    graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
    if graph.x is None:
        raise InputError(f"{graph.name} has no node features x, which {type(module).__name__} needs.")
    call = call_of(module)
    _initialise(module, call, graph)
    reader = _reader(module, call, graph)
    last = reader.read()
    drafts = ordered(last, reader.make.drafts, reader.make.features)
    blocks, operators = blocks_of(drafts, reader.make.features)
    _check_degrees(graph, operators)
    graph = _fitted(module, graph, blocks[-1].out_channels, _num_relations(operators))
    return PygModel(
        config=_config(blocks),
        blocks=blocks,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        task=graph.task,
        operators=operators,
        module=module,
        graph=graph,
        notes=tuple(reader.notes) + _notes(module, reader, call, graph, operators),
        parts=tuple(draft.parts for draft in drafts),
        norms=tuple(draft.norm for draft in drafts),
        call=call,
    )


def _reader(module: torch.nn.Module, call: Call, graph: Graph) -> Reader:
    edges, adjacency = edges_of(graph), call.has("adj_t")
    layers = LayerReader(
        module,
        Builder(graph.num_features),
        adjacency=adjacency,
        repeated=adjacency and _has_repeated(edges, graph.num_nodes),
        weighted=edges.edge_weight is not None,
        given=_is_normalised(edges, graph.num_nodes),
    )
    return Reader(layers, trace(module, call, absent_inputs(module, call, graph)))


def _has_repeated(edges: EdgeList, num_nodes: int) -> bool:
    source, target = edges.edge_index
    return torch.unique(target * num_nodes + source).numel() < edges.num_edges


def _is_normalised(edges: EdgeList, num_nodes: int) -> bool:
    source, target = edges.edge_index
    weight = edges.edge_weight
    return weight is not None and given_scale(source, target, weight, num_nodes) is not None


def _initialise(module: torch.nn.Module, call: Call, graph: Graph) -> None:
    """Lets lazy layers see their input once."""
    lazy = torch.nn.parameter.is_lazy
    if not any(lazy(p) for p in (*module.parameters(), *module.buffers())):
        return
    known = next((p for p in module.parameters() if not lazy(p)), None)
    device = torch.device("cpu") if known is None else known.device
    try:
        with evaluating(module), torch.no_grad():
            module(**call.actual(graph, dtype_of(module), device))
    except Exception as error:  # whatever forward says of the data
        raise InputError(
            f"{type(module).__name__} has lazy layers, and running it on {graph.name} to give them their sizes failed: "
            f"{error}"
        ) from error


def _fitted(module: torch.nn.Module, graph: Graph, out_channels: int, num_relations: int) -> Graph:
    """The graph with as many classes and relations as the module has."""
    name = type(module).__name__
    unlabelled = graph.task == "multiclass" and bool((graph.y < 0).all())
    if graph.task == "multiclass" and (out_channels > graph.num_classes or unlabelled):
        graph = graph.replace(num_classes=out_channels)
    if graph.num_classes != out_channels:
        raise InputError(
            f"{name} has {out_channels} outputs; {graph.name} has {graph.num_classes} "
            f"{'classes' if graph.task == 'multiclass' else 'targets'} ({graph.task})."
        )
    if not num_relations or graph.num_relations == num_relations:
        return graph
    edges = edges_of(graph)
    kind = torch.zeros(edges.num_edges, dtype=torch.int64) if edges.edge_type is None else edges.edge_type
    if kind.numel() and int(kind.max()) >= num_relations:
        raise InputError(f"{name} has {num_relations} relations; {graph.name} has {graph.num_relations}.")
    return graph.replace(raw=EdgeList(edges.edge_index, edges.edge_weight, kind, num_relations))


def _check_degrees(graph: Graph, operators: tuple[Operator, ...]) -> None:
    """PyG's ``gcn_norm`` takes the root of each degree; we take rows of a degree below 0 for empty."""
    weight = edges_of(graph).edge_weight
    if weight is None or not bool((weight < 0).any()):
        return
    for operator in operators:
        if operator.norm == "sym" and operator.weighted:
            sums = build_operator(graph, replace(operator, norm="none")).apply(
                torch.ones(graph.num_nodes, 1).double()
            )
            if count := int((sums < 0).sum()):
                raise InputError(
                    f"edge_weight of {graph.name} sums to less than 0 at {count:,} nodes, for which PyG's "
                    "normalisation gives NaN; use weights of at least 0."
                )


def _num_relations(operators: tuple[Operator, ...]) -> int:
    return max((operator.relation + 1 for operator in operators if operator.relation is not None), default=0)


def _config(blocks: tuple[Block, ...]) -> ModelConfig:
    propagating = [
        b for b in blocks if b.propagate not in ("none", "terms", "sum") or any(t.hops for t in b.terms)
    ]
    widths = [block.out_channels for block in blocks]
    return ModelConfig(family=CUSTOM, layers=len(propagating), hidden=max(widths[:-1] or widths))


def _notes(
    module: torch.nn.Module, reader: Reader, call: Call, graph: Graph, operators: tuple[Operator, ...]
) -> tuple[str, ...]:
    notes = []
    claimed = {
        id(p) for name, p in module.named_parameters(remove_duplicate=False) if name in reader.layers.claimed
    }
    idle = [name for name, p in module.named_parameters() if id(p) not in claimed]
    if idle:
        notes.append(f"not used by forward, and left as they are: {', '.join(idle)}")
    frozen = [n for n, p in module.named_parameters() if id(p) in claimed and not p.requires_grad]
    if frozen:
        notes.append(f"trained although requires_grad is False: {', '.join(frozen)}")
        warnings.warn(f"{type(module).__name__}: {notes[-1]}", stacklevel=3)
    if edges_of(graph).edge_weight is not None and not any(operator.weighted for operator in operators):
        notes.append(f"the edge weights of {graph.name} are not used: no layer is given them")
    return tuple(notes)
