"""What each part of a graph needs for training, cut out once by whoever has the whole graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.grid import ProcessGrid
from gfgnn.exchange.halo import ShardPropagation
from gfgnn.graph.features import select_rows
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator, edge_rows
from gfgnn.graph.order import Order
from gfgnn.graph.rows import Rows, StoredRows
from gfgnn.graph.shard import HaloPlan, ShardMatrix, cut_matrix, order_nodes
from gfgnn.model.build import Model
from gfgnn.model.inputs import Inputs, make_inputs
from gfgnn.ops.memory import page_out
from gfgnn.ops.spmm import from_parts
from gfgnn.problem import Facts, Problem, check_model_fits, facts_of, training_targets


@dataclass(frozen=True, eq=False)
class GraphShard:
    """One part of a graph.

    Attributes:
        part: its number.
        facts: about the whole graph.
        nodes: original numbers of the owned nodes in local order, ``[n]``: interior rows first.
        matrix, matrix_t: the owned rows of the propagation matrix S and of S'; the same object where S is symmetric.
        scale: u of :class:`gfgnn.graph.propagation.Propagation`, ``[n]`` float64.
        head, head_t: rows of S[train] and S[train]' where the output block propagates, else None.
        features: ``[n, F]``, dense or sparse CSR; None on ranks that do not hold block 0.
        y: labels of the owned nodes.
        train, val, test: labelled nodes of each split, local numbers.
    """

    part: int
    facts: Facts
    nodes: Tensor
    matrix: ShardMatrix
    matrix_t: ShardMatrix
    scale: Tensor
    head: ShardMatrix | None
    head_t: ShardMatrix | None
    features: Tensor | None
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor


def make_shards(
    model: Model,
    graph: Graph,
    assignment: Tensor,
    num_parts: int,
    *,
    order: Order | None = None,
    dtype: torch.dtype,
) -> list[GraphShard]:
    """The shards of all parts at once; see :func:`iter_shards`."""
    return list(iter_shards(model, graph, assignment, num_parts, order=order, dtype=dtype))


def iter_shards(
    model: Model,
    graph: Graph,
    assignment: Tensor,
    num_parts: int,
    *,
    order: Order | None = None,
    dtype: torch.dtype,
) -> Iterator[GraphShard]:
    """The shard of every part, one after the other: who is done with one and drops it never holds two.

    Rows of S are made from the edges of ``graph`` as a part needs them, and features are gathered from ``graph.x``;
    both may be mapped from files. Memory is that of the shard under way, a few numbers for each node, 4 bytes for each
    halo row of all parts, and pieces. For directed graphs, given weights and edges with relations S and S' are built
    as a whole first.

    Args:
        assignment: the part of each node, ``[N]``.
        order: in which a part's interior rows, its boundary rows and its halo rows from each other part are stored;
            None for the graph's own.
        dtype: of the shards' numbers.

    Raises:
        InputError: at once; the graph does not fit the model, or a part has no node.
    """
    check_model_fits(model, graph)
    sizes = torch.bincount(assignment, minlength=num_parts)
    if bool((sizes == 0).any()):
        raise InputError(f"part {int(sizes.argmin())} has no node; every part needs at least one.")
    sequence = None if order is None or order.is_given else order.nodes
    return _shards(model, graph, assignment, num_parts, sequence, dtype)


def _shards(
    model: Model,
    graph: Graph,
    assignment: Tensor,
    num_parts: int,
    sequence: Tensor | None,
    dtype: torch.dtype,
) -> Iterator[GraphShard]:
    assert graph.x is not None
    matrix, matrix_t, scale = _rows(graph, model.operators[0], dtype)
    nodes = order_nodes(matrix, matrix_t, assignment, num_parts, sequence)
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    known = {name: _inside(graph.labelled(mask), graph.num_nodes) for name, mask in masks.items()}
    parts = cut_matrix(matrix, nodes, nodes)
    parts_t = None if matrix_t is matrix else cut_matrix(matrix_t, nodes, nodes)
    heads = heads_t = None
    if model.blocks[-1].propagate in ("graph", "concat") and len(model.blocks) > 1:
        # the transpose of S[train] is S' with the columns of other nodes left out
        labelled = [ids[known["train"][ids]] for ids in nodes]
        heads, heads_t = cut_matrix(matrix, labelled, nodes), cut_matrix(matrix_t, nodes, labelled)
    facts, x = facts_of(graph), graph.x

    def shard(part: int, ids: Tensor) -> GraphShard:
        own = next(parts)
        found = GraphShard(
            part=part, facts=facts, nodes=ids, matrix=own, matrix_t=own if parts_t is None else next(parts_t),
            scale=scale[ids], head=None if heads is None else next(heads),
            head_t=None if heads_t is None else next(heads_t), features=select_rows(x, ids).to(dtype),
            y=graph.y[ids], **{name: mask[ids].nonzero().squeeze(1) for name, mask in known.items()},
        )  # fmt: skip
        page_out(graph.mapped_parts())
        return found

    page_out(graph.mapped_parts())
    for part, ids in enumerate(nodes):
        yield shard(part, ids)  # without a name here, which would hold it until the next one is there


def _rows(graph: Graph, operator: Operator, dtype: torch.dtype) -> tuple[Rows, Rows, Tensor]:
    """S and S' by rows, the same object where S is symmetric, and u ``[N]``."""
    rows = edge_rows(graph, operator, dtype)
    if rows is not None and rows.matrix_t is not None:
        return rows.matrix, rows.matrix_t, rows.scale.to(dtype)
    s = build_operator(graph, operator, dtype)
    matrix = StoredRows(s.matrix)
    return matrix, matrix if s.matrix_t is s.matrix else StoredRows(s.matrix_t), s.scale


def _inside(nodes: Tensor, num_nodes: int) -> Tensor:
    """Whether each node is one of ``nodes``, bool ``[N]``."""
    return torch.zeros(num_nodes, dtype=torch.bool).index_fill_(0, nodes, True)


def shard_problem(
    model: Model,
    shard: GraphShard,
    grid: ProcessGrid,
    bounds: tuple[int, ...],
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    keep_features: bool = False,
) -> Problem:
    """The problem of one rank. Called by every rank; the first stage sends the halo of its features, once.

    Args:
        bounds: the first block of each stage, and the number of blocks.
        keep_features: also where they have been propagated into a table, for solvers that drop them at random.
    """
    propagation = ShardPropagation(
        grid.parts, shard.matrix, shard.matrix_t, shard.scale, shard.head, shard.head_t
    ).to(dtype, device)
    inputs: dict[int, Inputs] = {}
    if grid.stage == 0:
        assert shard.features is not None
        features = shard.features.to(device=device, dtype=dtype)
        first = make_inputs(model.blocks[0], propagation.for_purpose("setup"), features).for_purpose("halo")
        if (
            first.table is not None and not keep_features
        ):  # as large as the features, which nothing looks at again
            first = replace(first, features=features.new_empty(0, features.size(1)))
        inputs[0] = first
    y = shard.y.to(device)
    train = shard.train.to(device)
    return Problem(
        model=model,
        grid=grid,
        bounds=bounds,
        facts=shard.facts,
        propagations=(propagation,),
        block_inputs=inputs,
        features=None,
        y=y,
        node_ids=shard.nodes.to(device),
        targets=training_targets(model, y[train]).to(device=device, dtype=dtype),
        train_index=train,
        val_index=shard.val.to(device),
        test_index=shard.test.to(device),
        dtype=dtype,
        device=torch.device(device),
    )


def pack(shard: GraphShard, *, with_features: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A shard as plain tensors by name, and the rest as a JSON-ready object; :func:`unpack` is the inverse."""
    tensors: dict[str, Tensor] = {}
    about: dict[str, Any] = {"part": shard.part, "facts": asdict(shard.facts), "matrices": {}}
    about["symmetric"] = shard.matrix_t is shard.matrix
    for field in fields(shard):
        value = getattr(shard, field.name)
        if field.name == "matrix_t" and about["symmetric"]:
            continue
        if isinstance(value, ShardMatrix):
            about["matrices"][field.name] = {
                "start": value.start, "stop": value.stop, "send_counts": value.plan.send_counts,
                "recv_counts": value.plan.recv_counts,
            }  # fmt: skip
            tensors[f"{field.name}.send_index"] = value.plan.send_index
            _pack_tensor(tensors, about, f"{field.name}.owned", value.owned)
            _pack_tensor(tensors, about, f"{field.name}.halo", value.halo)
        elif isinstance(value, Tensor) and (field.name != "features" or with_features):
            _pack_tensor(tensors, about, field.name, value)
    return tensors, about


def unpack(tensors: dict[str, Tensor], about: dict[str, Any]) -> GraphShard:
    """The shard that :func:`pack` took apart."""
    values: dict[str, Any] = {
        "part": about["part"], "facts": Facts(**about["facts"]), "head": None, "head_t": None, "features": None,
    }  # fmt: skip
    for name in ("nodes", "scale", "features", "y", "train", "val", "test"):
        if name in tensors or f"{name}.crow" in tensors:
            values[name] = _unpack_tensor(tensors, about, name)
    for name, m in about["matrices"].items():
        plan = HaloPlan(tensors[f"{name}.send_index"], tuple(m["send_counts"]), tuple(m["recv_counts"]))
        owned, halo = (_unpack_tensor(tensors, about, f"{name}.{kind}") for kind in ("owned", "halo"))
        values[name] = ShardMatrix(owned, halo, m["start"], m["stop"], plan)
    if about["symmetric"]:
        values["matrix_t"] = values["matrix"]
    return GraphShard(**values)


def _pack_tensor(tensors: dict[str, Tensor], about: dict[str, Any], name: str, value: Tensor) -> None:
    if value.layout != torch.sparse_csr:
        tensors[name] = value
        return
    tensors |= {
        f"{name}.crow": value.crow_indices(), f"{name}.col": value.col_indices(), f"{name}.value": value.values(),
    }  # fmt: skip
    about[f"{name}.shape"] = list(value.shape)


def _unpack_tensor(tensors: dict[str, Tensor], about: dict[str, Any], name: str) -> Tensor:
    if name in tensors:
        return tensors[name]
    crow, col, value = (tensors[f"{name}.{kind}"] for kind in ("crow", "col", "value"))
    rows, columns = about[f"{name}.shape"]
    return from_parts(crow, col, value, (rows, columns))
