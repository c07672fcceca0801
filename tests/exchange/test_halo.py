"""Products over parts against products with the whole matrix; exact bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scipy.sparse
import torch
from grids import random_parts, run_open
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import randn, random_graph
from torch import Tensor

from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.config import ModelConfig
from gfgnn.exchange.halo import ShardPropagation, halo_exchange
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.graph.propagation import Propagation
from gfgnn.graph.shard import halo_nodes
from gfgnn.model.build import build_model
from gfgnn.shards import GraphShard, make_shards

several = settings(max_examples=10, deadline=None)
KINDS = [(False, False), (False, True), (True, False), (True, True)]


def cut(graph: Graph, num_parts: int) -> list[GraphShard]:
    """Shards with rows of S[train]."""
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    assignment = random_parts(graph.num_nodes, num_parts)
    return make_shards(model, graph, assignment, num_parts, dtype=torch.float64)


def propagation_of(comm: Any, shard: GraphShard) -> ShardPropagation:
    return ShardPropagation(comm, shard.matrix, shard.matrix_t, shard.scale, shard.head, shard.head_t)


def on_parts(shards: list[GraphShard], function: Callable[[ShardPropagation, GraphShard], Tensor]) -> Tensor:
    """Runs ``function`` on every part: its rows in the order of the whole graph. Nothing may be left in the hub."""
    rows, left = run_open(
        len(shards), lambda comm: function(propagation_of(comm, shards[comm.rank]), shards[comm.rank])
    )
    assert left == 0
    joined = torch.cat(rows)
    out = torch.full_like(joined, torch.nan)
    out[torch.cat([shard.nodes for shard in shards])] = joined
    return out


def whole(graph: Graph) -> Propagation:
    return build_propagation(graph)


@several
@given(st.integers(0, 2**20), st.sampled_from(KINDS), st.integers(1, 5))
def test_products_are_those_of_the_whole_matrix(seed: int, kind: tuple[bool, bool], num_parts: int) -> None:
    graph = random_graph(seed, nodes=14, directed=kind[0], weighted=kind[1], isolated=2)
    s, shards = whole(graph), cut(graph, num_parts)
    x = randn(14, 3, seed=seed)
    mass = randn(14, seed=seed + 1).abs()
    torch.testing.assert_close(on_parts(shards, lambda p, shard: p.apply(x[shard.nodes])), s.apply(x))
    torch.testing.assert_close(on_parts(shards, lambda p, shard: p.adjoint(x[shard.nodes])), s.adjoint(x))
    torch.testing.assert_close(on_parts(shards, lambda p, shard: p.carry(mass[shard.nodes])), s.carry(mass))


@several
@given(st.integers(0, 2**20), st.booleans(), st.integers(2, 4))
def test_the_adjoint_is_the_transpose(seed: int, directed: bool, num_parts: int) -> None:
    """``<S x, y> = <x, S' y>``, with the sums taken over parts."""
    graph = random_graph(seed, nodes=14, directed=directed, weighted=True)
    shards, x, y = cut(graph, num_parts), randn(14, 3, seed=seed), randn(14, 3, seed=seed + 1)

    def job(comm: Any) -> tuple[Tensor, Tensor]:
        shard = shards[comm.rank]
        p, own_x, own_y = propagation_of(comm, shard), x[shard.nodes], y[shard.nodes]
        return (p.apply(own_x) * own_y).sum(), (own_x * p.adjoint(own_y)).sum()

    results, _ = run_open(num_parts, job)
    torch.testing.assert_close(sum(a for a, _ in results), sum(b for _, b in results))


@pytest.mark.parametrize(("directed", "weighted"), KINDS)
@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_labelled_rows(directed: bool, weighted: bool, num_parts: int) -> None:
    """Gathered by the part that has the label, scattered to whoever has the neighbour; as S[train] of one device."""
    graph = random_graph(4, nodes=14, directed=directed, weighted=weighted)
    s, shards = whole(graph), cut(graph, num_parts)
    train = graph.train_mask.nonzero().squeeze(1)
    gather, scatter = s.rows(train)
    x, r = randn(14, 3), randn(14, 2, seed=1)

    def job(comm: Any) -> tuple[Tensor, Tensor]:
        shard = shards[comm.rank]
        up, down = propagation_of(comm, shard).rows(shard.train)
        return up(x[shard.nodes]), down(r[shard.nodes[shard.train]])

    results, _ = run_open(num_parts, job)
    for shard, (gathered, scattered) in zip(shards, results, strict=True):
        place = torch.searchsorted(train, shard.nodes[shard.train])
        torch.testing.assert_close(gathered, gather(x)[place])
        torch.testing.assert_close(scattered, scatter(r[train])[shard.nodes])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sparse_tables(directed: bool, dtype: str) -> None:
    graph = random_graph(5, nodes=14, directed=directed, weighted=True)
    s, shards = whole(graph).to(getattr(torch, dtype), "cpu"), cut(graph, 3)
    table = scipy.sparse.random(14, 6, 0.3, format="csr", random_state=0, dtype=dtype)

    def job(comm: Any) -> scipy.sparse.csr_matrix:
        shard = shards[comm.rank]
        own = propagation_of(comm, shard).to(getattr(torch, dtype), "cpu")
        return own.apply_sparse(table[shard.nodes.numpy()])

    results, left = run_open(3, job)
    assert left == 0
    expected = s.apply_sparse(table).toarray()
    for shard, found in zip(shards, results, strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(
            torch.from_numpy(found.toarray()), torch.from_numpy(expected[shard.nodes.numpy()])
        )


@pytest.mark.parametrize("num_parts", [2, 14])
def test_halo_rows_arrive_in_the_order_of_the_halo_columns(num_parts: int) -> None:
    graph = random_graph(6, nodes=14, directed=True)
    shards = cut(graph, num_parts)
    ids = torch.arange(14.0)[:, None]
    halos, _ = run_open(
        num_parts,
        lambda comm: halo_exchange(comm, shards[comm.rank].matrix.plan, ids[shards[comm.rank].nodes]).wait(),
    )
    columns, plans = [shard.nodes for shard in shards], [shard.matrix.plan for shard in shards]
    for part, halo in enumerate(halos):
        expected = halo_nodes(shards[part].matrix, columns, plans, part)
        assert halo.squeeze(1).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_and_purposes(dtype: torch.dtype) -> None:
    """``num_sent * d`` numbers in a message to each part that needs some, under the propagation's purpose."""
    graph = random_graph(7, nodes=14, directed=True)
    shards = cut(graph, 4)

    def job(inner: Any) -> list[dict[str, dict[str, float]]]:
        comm = CountingCommunicator(inner)
        shard = shards[comm.rank]
        p = propagation_of(comm, shard).to(dtype, "cpu")
        x, books = torch.ones(shard.nodes.numel(), 5, dtype=dtype), []
        up, down = p.rows(shard.train)
        labelled = torch.ones(shard.train.numel(), 2, dtype=dtype)
        for act in (
            lambda: p.apply(x),
            lambda: p.adjoint(x),
            lambda: p.for_purpose("evaluate").apply(x),
            lambda: up(x),
            lambda: down(labelled),
            lambda: p.for_purpose("setup").carry(x[:, 0]),
        ):
            act()
            books.append(comm.books())
            comm.reset()
        return books

    results, _ = run_open(4, job)
    item, sent = torch.empty(0, dtype=dtype).element_size(), 0
    for shard, books in zip(shards, results, strict=True):
        plans = [shard.matrix, shard.matrix_t, shard.matrix, shard.head, shard.head_t]
        purposes = ["halo", "halo", "evaluate", "halo", "halo"]
        for matrix, purpose, width, book in zip(plans, purposes, [5, 5, 5, 5, 2], books, strict=False):
            assert matrix is not None
            counts = matrix.plan.send_counts
            assert book[purpose]["bytes"] == sum(counts) * width * item
            assert book[purpose]["messages"] == sum(count > 0 for count in counts)
            assert sum(entry["bytes"] for entry in book.values()) == book[purpose]["bytes"]
            sent += sum(counts)
        both = shard.matrix.plan.num_sent + shard.matrix_t.plan.num_sent
        assert books[-1]["setup"]["bytes"] == both * item
    assert sent > 0


def test_one_part_sends_nothing_and_needs_no_halo() -> None:
    graph = random_graph(8)
    (shard,) = cut(graph, 1)
    comm = CountingCommunicator(SerialCommunicator())
    found = propagation_of(comm, shard).apply(randn(12, 2)[shard.nodes])
    assert torch.equal(found, whole(graph).apply(randn(12, 2))[shard.nodes])
    assert not any(entry["messages"] for entry in comm.books().values())
