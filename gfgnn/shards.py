"""What each part of a graph needs for training, cut out once by whoever has the whole graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.grid import ProcessGrid
from gfgnn.exchange.halo import ShardPropagation
from gfgnn.graph.features import select_rows
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_operator
from gfgnn.graph.order import Order, node_order, reordered
from gfgnn.graph.shard import HaloPlan, ShardMatrix, order_nodes, shard_matrix
from gfgnn.model.build import Model
from gfgnn.model.inputs import Inputs, make_inputs
from gfgnn.ops.spmm import from_parts, rows_of
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
    """The shard of every part.

    Args:
        assignment: the part of each node, ``[N]``.
        order: in which a part's interior rows, its boundary rows and its halo rows from each other part are stored;
            None for the graph's own.

    Raises:
        InputError: the graph does not fit the model, or a part has no node.
    """
    check_model_fits(model, graph)
    assert graph.x is not None
    sizes = torch.bincount(assignment, minlength=num_parts)
    if bool((sizes == 0).any()):
        raise InputError(f"part {int(sizes.argmin())} has no node; every part needs at least one.")
    order = order or node_order(graph, "none")
    x, assignment = graph.x, assignment[order.nodes]
    graph = reordered(
        graph.replace(x=None), order
    )  # parts take their rows of x from the given ones, without a copy
    s = build_operator(graph, model.operators[0]).to(dtype, "cpu")
    nodes = order_nodes(s.matrix, s.matrix_t, assignment, num_parts)
    matrices = shard_matrix(s.matrix, nodes, nodes)
    matrices_t = matrices if s.matrix_t is s.matrix else shard_matrix(s.matrix_t, nodes, nodes)
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    known = {name: graph.labelled(mask) for name, mask in masks.items()}
    heads: list[ShardMatrix | None] = [None] * num_parts
    heads_t = heads
    if model.blocks[-1].propagate in ("graph", "concat") and len(model.blocks) > 1:
        heads, heads_t = _head_shards(s.matrix, s.matrix_t, nodes, known["train"])
    facts = facts_of(graph)
    return [
        GraphShard(
            part=part, facts=facts, nodes=order.nodes[ids], matrix=matrices[part], matrix_t=matrices_t[part],
            scale=s.scale[ids], head=heads[part], head_t=heads_t[part],
            features=select_rows(x, order.nodes[ids]).to(dtype), y=graph.y[ids],
            **{name: torch.isin(ids, index).nonzero().squeeze(1) for name, index in known.items()},
        )
        for part, ids in enumerate(nodes)
    ]  # fmt: skip


def _head_shards(
    matrix: Tensor, matrix_t: Tensor, nodes: list[Tensor], train: Tensor
) -> tuple[list[ShardMatrix | None], list[ShardMatrix | None]]:
    """S[train] and its transpose, rows of both by the part of the node; labelled nodes in the order of local rows."""
    number = torch.full((matrix.size(0),), -1)
    number[train] = torch.arange(train.numel())
    labelled = [number[ids][number[ids] >= 0] for ids in nodes]
    rows = rows_of(matrix, train)
    # the transpose of S[train] is S' with the columns of other nodes left out
    crow, col = matrix_t.crow_indices().long(), number[matrix_t.col_indices().long()]
    kept = col >= 0
    before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    columns = from_parts(before[crow], col[kept], matrix_t.values()[kept], (matrix.size(0), train.numel()))
    return list(shard_matrix(rows, labelled, nodes)), list(shard_matrix(columns, nodes, labelled))


def shard_problem(
    model: Model,
    shard: GraphShard,
    grid: ProcessGrid,
    bounds: tuple[int, ...],
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> Problem:
    """The problem of one rank. Called by every rank; the first stage sends the halo of its features, once.

    Args:
        bounds: the first block of each stage, and the number of blocks.
    """
    propagation = ShardPropagation(
        grid.parts, shard.matrix, shard.matrix_t, shard.scale, shard.head, shard.head_t
    ).to(dtype, device)
    inputs: dict[int, Inputs] = {}
    if grid.stage == 0:
        assert shard.features is not None
        features = shard.features.to(device=device, dtype=dtype)
        first = make_inputs(model.blocks[0], propagation.for_purpose("setup"), features).for_purpose("halo")
        if first.table is not None:  # as large as the features, which nothing looks at again
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
