"""Shards: rows and labels of each part, heads, what does not fit, taken apart and put together again."""

from __future__ import annotations

import json
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grids import random_parts, run_open, small, small_directed, with_values
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.grid import make_grid
from gfgnn.config import ModelConfig
from gfgnn.graph import pieces
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.graph.order import Order, reordered
from gfgnn.graph.shard import ShardMatrix, halo_nodes
from gfgnn.model.build import build_model, propagation_settings
from gfgnn.ops.spmm import from_parts
from gfgnn.problem import facts_of, prepare
from gfgnn.shards import GraphShard, iter_shards, make_shards, pack, shard_problem, unpack


def cut(
    graph: Graph, num_parts: int, family: str = "gcn", assignment: Tensor | None = None
) -> list[GraphShard]:
    model = build_model(ModelConfig(family=family, layers=3, hidden=4), graph)
    parts = random_parts(graph.num_nodes, num_parts) if assignment is None else assignment
    return make_shards(model, graph, parts, num_parts, dtype=torch.float64)


def whole(shards: list[GraphShard], name: str, rows: list[Tensor], columns: list[Tensor]) -> Tensor:
    """A matrix put together from its rows on all parts; rows and columns by numbers in the whole matrix."""
    matrices: list[ShardMatrix] = [getattr(shard, name) for shard in shards]
    shape = sum(r.numel() for r in rows), sum(c.numel() for c in columns)
    found = torch.zeros(shape, dtype=torch.float64)
    for part, matrix in enumerate(matrices):
        halo = torch.zeros(matrix.num_rows, matrix.plan.num_halo, dtype=torch.float64)
        halo[matrix.start : matrix.stop] = matrix.halo.to_dense()
        names = torch.cat([columns[part], halo_nodes(matrix, columns, [m.plan for m in matrices], part)])
        local = torch.zeros(matrix.num_rows, shape[1], dtype=torch.float64)
        local[:, names] = torch.cat([matrix.owned.to_dense(), halo], dim=1)
        found[rows[part]] = local
    return found


@pytest.mark.parametrize("graph", [small(), small_directed()], ids=["undirected", "directed"])
@pytest.mark.parametrize("family", ["gcn", "sage"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_matrices_and_heads(graph: Graph, family: str, num_parts: int) -> None:
    """S, S', S[train] and its transpose; labelled nodes are numbered part by part in the order of local rows."""
    shards = cut(graph, num_parts, family)
    config = ModelConfig(family=family)
    s = build_propagation(graph, *propagation_settings(config))
    dense, nodes = s.matrix.to_dense(), [shard.nodes for shard in shards]
    assert torch.equal(whole(shards, "matrix", nodes, nodes), dense)
    assert torch.equal(whole(shards, "matrix_t", nodes, nodes), dense.t())
    assert all((shard.matrix_t is shard.matrix) == (s.matrix_t is s.matrix) for shard in shards)
    train = graph.train_mask.nonzero().squeeze(1)
    labelled = [torch.searchsorted(train, shard.nodes[shard.train]) for shard in shards]
    assert torch.equal(whole(shards, "head", labelled, nodes), dense[train])
    assert torch.equal(whole(shards, "head_t", nodes, labelled), dense[train].t())
    for shard in shards:
        assert torch.equal(shard.scale, s.scale[shard.nodes])


@pytest.mark.parametrize("family", ["gcnii", "resgcn", "sign"])
def test_outputs_that_do_not_propagate_have_no_heads(family: str) -> None:
    assert all(shard.head is None and shard.head_t is None for shard in cut(small(), 2, family))


@pytest.mark.parametrize("num_parts", [1, 4])
def test_rows_and_labels_of_each_part(num_parts: int) -> None:
    graph = small()
    y = graph.y.clone()
    y[::7] = -1  # unknown, in whichever split
    graph = graph.replace(y=y)
    shards = cut(graph, num_parts)
    assert graph.x is not None
    assert torch.equal(torch.cat([s.nodes for s in shards]).sort().values, torch.arange(graph.num_nodes))
    for name, mask in (("train", graph.train_mask), ("val", graph.val_mask), ("test", graph.test_mask)):
        found = torch.cat([shard.nodes[getattr(shard, name)] for shard in shards])
        assert torch.equal(found.sort().values, graph.labelled(mask))
    for part, shard in enumerate(shards):
        assert shard.part == part
        assert shard.facts == facts_of(graph)
        assert torch.equal(shard.y, graph.y[shard.nodes])
        assert torch.equal(shard.features, graph.x[shard.nodes].double())


def test_parts_without_labels() -> None:
    """All that is labelled lies in part 0."""
    graph = small()
    left = torch.arange(90) < 50
    bare = graph.replace(
        train_mask=graph.train_mask & left, val_mask=graph.val_mask & left, test_mask=graph.test_mask & left
    )
    shards = cut(bare, 2, assignment=(~left).long())
    assert shards[1].train.numel() == shards[1].val.numel() == shards[1].test.numel() == 0
    assert shards[1].head is not None
    assert shards[1].head.num_rows == 0
    assert shards[1].head_t is not None
    assert shards[1].head_t.owned.size(1) == 0


def test_what_does_not_fit() -> None:
    graph = small()
    model = build_model(ModelConfig(family="gcn", layers=3, hidden=4), graph)
    assignment = torch.zeros(90).long()
    with pytest.raises(InputError, match="part 1 has no node"):
        make_shards(model, graph, assignment, 2, dtype=torch.float64)
    with pytest.raises(InputError, match="multilabel"):
        make_shards(model, with_values("multilabel"), assignment, 1, dtype=torch.float64)


@pytest.mark.parametrize("family", ["gcn", "sage", "gcnii"])
@pytest.mark.parametrize("graph", [small(), small_directed()], ids=["undirected", "directed"])
def test_an_order_is_that_of_the_reordered_graph(
    graph: Graph, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is renumbered, but parts are cut as if all had been; in pieces as at once."""
    model = build_model(ModelConfig(family=family, layers=3, hidden=4), graph)
    nodes = torch.randperm(90, generator=torch.Generator().manual_seed(1))
    order, parts = Order(nodes, "metis"), random_parts(90, 3)
    wanted = make_shards(model, reordered(graph, order), parts[nodes], 3, dtype=torch.float32)
    monkeypatch.setattr(pieces, "PIECE", 7)
    found = make_shards(model, graph, parts, 3, order=order, dtype=torch.float32)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.nodes, nodes[other.nodes])
        for field in fields(one):
            value = getattr(one, field.name)
            if field.name == "scale":  # degrees are summed in the order of edges
                torch.testing.assert_close(value, other.scale)
            elif field.name != "nodes":
                assert alike(value, getattr(other, field.name)), field.name


def alike(one: Any, other: Any) -> bool:
    """The same structure and plans, values to rounding."""
    if isinstance(one, ShardMatrix):
        whole_one, whole_other = (
            torch.cat([m.owned.values(), m.halo.values()]).double() for m in (one, other)
        )
        torch.testing.assert_close(whole_one, whole_other, rtol=1e-6, atol=0)
        return same(one.absolute(), ShardMatrix(
            with_numbers(one.owned, other.owned), with_numbers(one.halo, other.halo), one.start, one.stop,
            other.plan,
        )) and (one.start, one.stop) == (other.start, other.stop)  # fmt: skip
    return same(one, other)


def with_numbers(one: Tensor, other: Tensor) -> Tensor:
    """The magnitudes of ``one`` on the non-zeros of ``other``."""
    return from_parts(other.crow_indices(), other.col_indices(), one.values().abs(), tuple(other.shape))


def test_one_shard_at_a_time_from_files(tmp_path: Path) -> None:
    """Edges and features of 16 bits are mapped; a shard is made when it is asked for, and errors come at once."""
    graph = small()
    assert graph.x is not None
    half = graph.x.half()
    np.save(tmp_path / "edges.npy", graph.edge_index.numpy())
    np.save(tmp_path / "x.npy", half.numpy())
    edges, x = (torch.from_numpy(np.load(tmp_path / f"{name}.npy", mmap_mode="c")) for name in ("edges", "x"))
    model = build_model(ModelConfig(family="gcn", layers=3, hidden=4), graph)
    parts = random_parts(90, 4)
    wanted = make_shards(model, graph.replace(x=half.float()), parts, 4, dtype=torch.float32)
    shards = iter_shards(model, graph.replace(edge_index=edges, x=x), parts, 4, dtype=torch.float32)
    seen = []
    for shard in shards:  # enumerate would hold it
        seen.append(shard.part)
        for field in fields(shard):
            assert same(getattr(shard, field.name), getattr(wanted[seen[-1]], field.name)), field.name
        left = weakref.ref(shard)
        del shard
        assert left() is None, "nobody else holds it"
    assert seen == [0, 1, 2, 3]
    with pytest.raises(InputError, match="part 4 has no node"):
        iter_shards(model, graph, parts, 5, dtype=torch.float32)


def sparse() -> Graph:
    graph = small_directed()
    assert graph.x is not None
    return graph.replace(x=torch.where(graph.x > 0, graph.x, 0.0).to_sparse_csr())


def same(a: Any, b: Any) -> bool:
    """Equal in every value, shape and precision."""
    if isinstance(a, ShardMatrix):
        plans = (a.plan.send_counts, a.plan.recv_counts, a.start, a.stop)
        return (
            plans == (b.plan.send_counts, b.plan.recv_counts, b.start, b.stop)
            and torch.equal(a.plan.send_index, b.plan.send_index)
            and same(a.owned, b.owned)
            and same(a.halo, b.halo)
        )
    if isinstance(a, Tensor) and a.layout == torch.sparse_csr:
        parts = [  # indices may be narrower than before
            (m.crow_indices().long(), m.col_indices().long(), m.values(), torch.tensor(tuple(m.shape)))
            for m in (a, b)
        ]
        return all(same(x, y) for x, y in zip(*parts, strict=True))
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return bool(a == b)


@pytest.mark.parametrize("graph", [small(), small_directed(), sparse(), with_values("multilabel")])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_packed_and_unpacked(graph: Graph, family: str) -> None:
    """What lies between is tensors and a text."""
    for shard in cut(graph, 3, family):
        tensors, about = pack(shard)
        assert all(tensor.layout == torch.strided for tensor in tensors.values())
        found = unpack(tensors, json.loads(json.dumps(about)))
        assert (found.matrix_t is found.matrix) == (shard.matrix_t is shard.matrix)
        for field in fields(shard):
            assert same(getattr(shard, field.name), getattr(found, field.name)), field.name


@pytest.mark.parametrize("graph", [small(), sparse()], ids=["dense", "sparse"])
def test_stages_above_the_first_need_no_features(graph: Graph) -> None:
    shard = cut(graph, 2)[1]
    tensors, about = pack(shard, with_features=False)
    assert not any(name.startswith("features") for name in tensors)
    found = unpack(tensors, about)
    assert found.features is None
    assert same(found.matrix, shard.matrix)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sign"])
def test_problems_of_parts_are_rows_of_the_whole_problem(family: str) -> None:
    """Propagated features, targets and splits; only the first stage has inputs."""
    graph = small_directed()
    model = build_model(ModelConfig(family=family, layers=3, hidden=4), graph)
    alone = prepare(model, graph, dtype=torch.float64)
    shards = make_shards(model, graph, random_parts(90, 2), 2, dtype=torch.float64)
    bounds = (0, 1, len(model.blocks))

    def job(world: Any) -> Any:
        grid = make_grid(world, 2, 2)
        return shard_problem(model, shards[grid.part], grid, bounds, dtype=torch.float64)

    problems, left = run_open(4, job)
    assert left == 0
    eye = torch.eye(alone.inputs.fan_in, dtype=torch.float64)
    for problem in problems:
        ids, stage = problem.node_ids, problem.grid.stage
        assert (problem.is_first, problem.is_last) == (stage == 0, stage == 1)
        assert problem.span == range(*bounds[stage : stage + 2])
        assert (not problem.block_inputs) == (stage == 1)
        if problem.is_first:
            torch.testing.assert_close(problem.inputs.matmul(eye), alone.inputs.matmul(eye)[ids])
        place = torch.searchsorted(alone.train_index, ids[problem.train_index])
        assert torch.equal(problem.targets, alone.targets[place])
        assert torch.equal(problem.y, alone.y[ids])
