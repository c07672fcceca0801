"""Rows of sparse matrices by part: together they are the whole matrix, and the plans bring what each part lacks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from torch import Tensor

from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.graph.propagation import Propagation
from gfgnn.graph.rows import StoredRows
from gfgnn.graph.shard import ShardMatrix, cut_matrix, halo_nodes, order_nodes
from gfgnn.ops.spmm import with_values

several = settings(max_examples=25, deadline=None)
NODES = 12


def assigned(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    """A part for each node, at least one node in each."""
    generator = torch.Generator().manual_seed(seed)
    assignment = torch.randint(num_parts, (num_nodes,), generator=generator)
    assignment[torch.randperm(num_nodes, generator=generator)[:num_parts]] = torch.arange(num_parts)
    return assignment


def together(shards: list[ShardMatrix], rows: list[Tensor], columns: list[Tensor], total: int) -> Tensor:
    """The whole matrix ``[total, N]``: columns of each part are the owned ones and then the halo's."""
    whole = torch.zeros(total, sum(c.numel() for c in columns), dtype=torch.float64)
    plans = [shard.plan for shard in shards]
    for part, shard in enumerate(shards):
        halo = torch.zeros(shard.num_rows, shard.plan.num_halo, dtype=torch.float64)
        halo[shard.start : shard.stop] = shard.halo.to_dense()
        names = torch.cat([columns[part], halo_nodes(shard, columns, plans, part)])
        assert names.unique().numel() == names.numel(), "no column comes twice"
        local = torch.zeros(shard.num_rows, whole.size(1), dtype=torch.float64)
        local[:, names] = torch.cat([shard.owned.to_dense(), halo], dim=1)
        whole[rows[part]] = local
    return whole


def check_plans(shards: list[ShardMatrix], columns: list[Tensor]) -> None:
    """What one part sends, another receives; nothing goes to a part itself, nothing goes twice, nothing in vain."""
    for p, shard in enumerate(shards):
        plan = shard.plan
        assert plan.send_counts[p] == plan.recv_counts[p] == 0
        assert plan.send_index.numel() == plan.num_sent
        for q, other in enumerate(shards):
            assert plan.send_counts[q] == other.plan.recv_counts[p]
        for sent in plan.send_index.split(list(plan.send_counts)):
            assert sent.unique().numel() == sent.numel()
            assert not sent.numel() or 0 <= int(sent.min()) <= int(sent.max()) < columns[p].numel()
        assert shard.halo.size(1) == plan.num_halo
        used = torch.zeros(plan.num_halo, dtype=torch.bool)
        used[shard.halo.col_indices().long()] = True
        assert bool(used.all()), "every halo column has a non-zero"


def structure(matrix: Tensor) -> Tensor:
    """Which entries are stored, zeros among them (of edges out of nodes without a degree), bool ``[N, N]``."""
    return with_values(matrix, torch.ones_like(matrix.values())).to_dense() > 0


def check_interior(shards: list[ShardMatrix], matrix: Tensor, rows: list[Tensor], owner: Tensor) -> None:
    """Rows from ``start`` to ``stop``, and no others, may have columns of other parts; the range is tight."""
    stored = structure(matrix)
    for part, shard in enumerate(shards):
        crosses = (stored[rows[part]] & (owner != part)[None, :]).any(1)
        inside = torch.zeros_like(crosses)
        inside[shard.start : shard.stop] = True
        assert not bool((crosses & ~inside).any())
        if shard.stop > shard.start:
            assert bool(crosses[shard.start])
            assert bool(crosses[shard.stop - 1])


def check_cut(s: Propagation, assignment: Tensor, num_parts: int) -> None:
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), assignment, num_parts)
    assert torch.equal(torch.cat(nodes).sort().values, torch.arange(s.num_nodes))
    for part, ids in enumerate(nodes):
        assert bool((assignment[ids] == part).all())
    for matrix in (s.matrix, s.matrix_t):
        shards = list(cut_matrix(StoredRows(matrix), nodes, nodes))
        assert torch.equal(together(shards, nodes, nodes, s.num_nodes), matrix.to_dense())
        check_plans(shards, nodes)
        check_interior(shards, matrix, nodes, assignment)
        stored = structure(matrix)
        for part, shard in enumerate(
            shards
        ):  # the boundary rows of either matrix stand together, without a gap
            crosses = (stored[nodes[part]] & (assignment != part)[None, :]).any(1)
            assert int(crosses.sum()) == shard.stop - shard.start


@several
@given(st.integers(0, 2**20), st.booleans(), st.booleans(), st.integers(1, NODES), st.booleans())
def test_local_rows_together_are_the_matrix(
    seed: int, directed: bool, weighted: bool, num_parts: int, loops: bool
) -> None:
    graph = random_graph(seed, nodes=NODES, directed=directed, weighted=weighted, isolated=2)
    s = build_propagation(graph, "sym", loops)
    check_cut(s, assigned(NODES, num_parts, seed), num_parts)


@several
@given(st.integers(0, 2**20), st.booleans(), st.integers(1, 5), st.integers(0, NODES))
def test_labelled_rows_and_their_transpose(seed: int, directed: bool, num_parts: int, labelled: int) -> None:
    """Matrices that are not square; parts without any labelled node have no rows, or no columns."""
    s = build_propagation(random_graph(seed, nodes=NODES, directed=directed, weighted=True))
    assignment = assigned(NODES, num_parts, seed)
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), assignment, num_parts)
    train = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))[:labelled].sort().values
    number = torch.full((NODES,), -1)
    number[train] = torch.arange(labelled)
    own = [number[ids][number[ids] >= 0] for ids in nodes]
    rows = s.matrix.to_dense()[train]
    for whole, row, column in ((rows, own, nodes), (rows.t(), nodes, own)):
        shards = list(cut_matrix(StoredRows(whole.to_sparse_csr()), row, column))
        assert torch.equal(together(shards, row, column, whole.size(0)), whole)
        check_plans(shards, column)


def test_each_node_its_own_part() -> None:
    graph = random_graph(1, nodes=7, directed=True, weighted=True)
    check_cut(build_propagation(graph), torch.arange(7).flip(0), 7)


@pytest.mark.parametrize("loops", [True, False])
def test_without_edges_nothing_is_sent(loops: bool) -> None:
    graph = random_graph(2, nodes=6, labelled=3)
    bare = graph.replace(edge_index=graph.edge_index[:, :0])
    s = build_propagation(bare, "sym", loops)
    check_cut(s, torch.tensor([0, 1, 2, 0, 1, 2]), 3)
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), torch.tensor([0, 1, 2, 0, 1, 2]), 3)
    for shard in list(cut_matrix(StoredRows(s.matrix), nodes, nodes)):
        assert shard.plan.num_sent == shard.plan.num_halo == 0
        assert shard.start == shard.stop


def path(directed: bool) -> Graph:
    """0 - 1 - 2 - 3 - 4 - 5."""
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    return Graph.from_edges(edges, 6, x=torch.ones(6, 1), y=torch.zeros(6).long(), symmetrise=not directed)


def test_a_path_by_hand() -> None:
    """Cut in the middle: 2 and 3 are the boundary rows, and each part sends the other one."""
    s = build_propagation(path(directed=False))
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), torch.tensor([0, 0, 0, 1, 1, 1]), 2)
    assert [ids.tolist() for ids in nodes] == [[0, 1, 2], [4, 5, 3]]
    left, right = list(cut_matrix(StoredRows(s.matrix), nodes, nodes))
    assert (left.start, left.stop, right.start, right.stop) == (2, 3, 2, 3)
    assert left.plan.send_index.tolist() == [2]
    assert (left.plan.send_counts, left.plan.recv_counts) == ((0, 1), (0, 1))
    assert right.plan.send_index.tolist() == [2]  # node 3 has local number 2
    assert (right.plan.send_counts, right.plan.recv_counts) == ((1, 0), (1, 0))


def test_one_way_edges_send_one_way() -> None:
    """3 gathers from 2: for S the left part sends, for S' the right one."""
    s = build_propagation(path(directed=True))
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), torch.tensor([0, 0, 0, 1, 1, 1]), 2)
    forward, backward = (list(cut_matrix(StoredRows(m), nodes, nodes)) for m in (s.matrix, s.matrix_t))
    assert [m.plan.num_sent for m in forward] == [1, 0]
    assert [m.plan.num_sent for m in backward] == [0, 1]


def test_magnitudes_and_precision() -> None:
    graph = random_graph(3, directed=True, weighted=True)
    s = build_propagation(graph)
    negative = with_values(s.matrix, -s.matrix.values())
    nodes = order_nodes(StoredRows(s.matrix), StoredRows(s.matrix_t), assigned(NODES, 3, 0), 3)
    whole = s.matrix.to_dense()
    absolute = [m.absolute() for m in list(cut_matrix(StoredRows(negative), nodes, nodes))]
    assert torch.equal(together(absolute, nodes, nodes, NODES), whole)
    single = [m.to(torch.float32, "cpu") for m in list(cut_matrix(StoredRows(s.matrix), nodes, nodes))]
    assert all(m.owned.dtype == m.halo.dtype == torch.float32 for m in single)
    torch.testing.assert_close(together(single, nodes, nodes, NODES).float(), whole.float())
