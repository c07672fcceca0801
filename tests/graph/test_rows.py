"""Rows made from edges: pieces, symmetry, and the same matrix as by the long way, in every normalisation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

from gfgnn.graph import pieces as lengths
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator, edge_rows
from gfgnn.graph.pieces import pieces, row_pieces, rows_named
from gfgnn.graph.propagation import Propagation, make_propagation
from gfgnn.graph.rows import StoredRows, in_pieces, whole
from gfgnn.graph.symmetry import mirrors_itself
from gfgnn.ops.spmm import sort_columns, transpose

several = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**20)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that small graphs have many of; some rows are longer than one."""
    monkeypatch.setattr(lengths, "PIECE", 4)


@several
@given(st.lists(st.integers(0, 9), max_size=12))
def test_pieces_are_the_whole_in_order(counts: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    found = list(row_pieces(indptr))
    assert [row for first, last in found for row in range(first, last)] == list(range(len(counts)))
    assert all(last - first == 1 or indptr[last] - indptr[first] <= 4 for first, last in found)
    row = np.concatenate([np.zeros(0, np.int64), *(rows_named(indptr, first, last) for first, last in found)])
    assert np.array_equal(row, np.repeat(np.arange(len(counts)), counts))
    total = sum(counts)
    assert [i for piece in pieces(total) for i in range(total)[piece]] == list(range(total))


@several
@given(seeds, st.integers(1, 9), st.booleans(), st.booleans())
def test_symmetric_where_the_dense_matrix_is(seed: int, nodes: int, mirrored: bool, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 3, (nodes, nodes)) * 0.5
    if mirrored:
        dense = np.minimum(dense, dense.T)
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    row, column = np.nonzero(dense)
    stored = dense if weighted else dense != 0
    found = mirrors_itself(indptr, column, dense[row, column] if weighted else None)
    assert found == np.array_equal(stored, stored.T)


def long_way(graph: Graph, operator: Operator) -> Propagation:
    """From coordinates, summed and transposed."""
    source, target = graph.edge_index
    weight = graph.edge_weight if operator.weighted else None
    weight = torch.ones(graph.num_edges, dtype=torch.float64) if weight is None else weight.double()
    if operator.loops or operator.remaining:
        nodes = torch.arange(graph.num_nodes)
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        weight = torch.cat([weight, torch.full((graph.num_nodes,), operator.loops, dtype=torch.float64)])
    return make_propagation(source, target, weight, graph.num_nodes, operator.norm)


def check_same(found: Propagation, wanted: Propagation) -> None:
    for one, other in ((found.matrix, wanted.matrix), (found.matrix_t, wanted.matrix_t)):
        assert one.crow_indices().dtype == other.crow_indices().dtype == torch.int32
        assert torch.equal(one.crow_indices(), other.crow_indices())
        assert torch.equal(one.col_indices(), other.col_indices())
        assert torch.equal(one.values(), other.values())
    assert (found.matrix_t is found.matrix) == (wanted.matrix_t is wanted.matrix)
    assert torch.equal(found.scale, wanted.scale)


@several
@given(
    seeds, st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["sym", "rw", "none"]),
    st.sampled_from([0.0, 1.0, 2.5]), st.booleans(), st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_bit_for_bit_as_by_the_long_way(
    seed: int,
    directed: bool,
    weighted: bool,
    used: bool,
    norm: str,
    loops: float,
    remaining: bool,
    dtype: torch.dtype,
) -> None:
    graph = random_graph(seed, directed=directed, weighted=weighted, isolated=2)
    operator = Operator(norm=norm, loops=loops, weighted=used, remaining=remaining)
    check_same(build_operator(graph, operator, dtype), long_way(graph, operator).to(dtype, "cpu"))


def test_regular_graphs_and_wrong_names() -> None:
    """The mean over neighbours is symmetric on a ring; whether edges have directions is not taken on trust."""
    index = torch.arange(9)
    ring = Graph.from_edges(torch.stack([index, (index + 1) % 9]), 9, y=index % 2, symmetrise=True)
    mean = build_operator(ring, Operator(norm="rw"))
    assert mean.matrix_t is mean.matrix
    said = build_operator(ring.replace(directed=True), Operator())
    assert said.matrix_t is said.matrix
    one_way = random_graph(3, directed=True).replace(directed=False)
    check_same(build_operator(one_way, Operator()), long_way(one_way, Operator()))


def test_weighted_edges_without_directions_have_one_matrix() -> None:
    """``d_i^-1/2 w d_j^-1/2`` is rounded alike from either end."""
    graph = random_graph(4, weighted=True)
    s = build_operator(graph, Operator())
    assert s.matrix_t is s.matrix
    assert torch.equal(s.matrix.to_dense(), s.matrix.to_dense().t())


@pytest.mark.parametrize("norm", ["sym", "rw"])
def test_any_rows_in_any_order(norm: str) -> None:
    graph = random_graph(5, nodes=14, weighted=True)
    rows = edge_rows(graph, Operator(norm=norm), torch.float64)
    assert rows is not None
    assert rows.matrix_t is not None
    dense = long_way(graph, Operator(norm=norm)).matrix.to_dense()
    for index in (torch.tensor([9, 2, 13, 2]), torch.tensor([3, 4, 5]), torch.tensor([0]), torch.arange(0)):
        assert torch.equal(rows.matrix.take(index).to_dense(), dense[index])
        assert torch.equal(rows.matrix_t.take(index).to_dense(), dense.t()[index])
        named = torch.zeros(14, dtype=torch.bool)
        named[rows.matrix.columns(index)] = True
        assert torch.equal(named, (dense[index] != 0).any(0))


def test_edges_may_lie_in_a_file(tmp_path: Path) -> None:
    graph = random_graph(6)
    np.save(tmp_path / "edges.npy", graph.edge_index.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "edges.npy", mmap_mode="c"))
    there = graph.replace(edge_index=mapped)
    rows = edge_rows(there, Operator(), torch.float32)
    assert rows is not None
    assert rows.matrix.source.data_ptr() == mapped.data_ptr()
    check_same(build_operator(there, Operator()), long_way(graph, Operator()))


@several
@given(seeds, st.booleans())
def test_stored_rows_put_together(seed: int, directed: bool) -> None:
    matrix = build_operator(random_graph(seed, directed=directed), Operator()).matrix
    rows = StoredRows(matrix)
    assert torch.equal(whole(rows, torch.float64).to_dense(), matrix.to_dense())
    assert torch.equal(torch.cat(list(in_pieces(rows, torch.tensor([5, 1, 7])))), torch.tensor([5, 1, 7]))
    assert torch.equal(transpose(matrix).to_dense(), matrix.to_dense().t())
    turned = torch.sparse_csr_tensor(
        matrix.crow_indices(), matrix.col_indices().flip(0), matrix.values(), matrix.shape
    )
    dense = turned.to_dense()
    assert torch.equal(sort_columns(turned).to_dense(), dense)
    for first, last in zip(
        turned.crow_indices()[:-1].tolist(), turned.crow_indices()[1:].tolist(), strict=True
    ):
        assert bool((turned.col_indices()[first:last].diff() >= 0).all())


PEAK = """
import torch
from gfgnn import ModelConfig
from gfgnn.data.synthetic import parse_synthetic, synthetic_graph
from gfgnn.graph import pieces
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.model.build import build_model
from gfgnn.ops.memory import release_freed_memory, return_freed_memory
from gfgnn.shards import iter_shards

def held(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

def peak(work):
    release_freed_memory()
    open("/proc/self/clear_refs", "w").write("5")
    before = held("VmRSS")
    work()
    return held("VmHWM") - before

def all_shards():
    for shard in iter_shards(model, graph, torch.arange(20000) % 8, 8, dtype=torch.float32):
        del shard

pieces.PIECE = 1 << 16
return_freed_memory()
graph = synthetic_graph(parse_synthetic("nodes=20000,classes=40,degree=100,features=1"))
model = build_model(ModelConfig(layers=2, hidden=4), graph)
build_operator(graph.subgraph(torch.arange(50)), Operator())  # what is loaded on first use
print(graph.num_edges, peak(lambda: build_operator(graph, Operator(), torch.float32)), peak(all_shards))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not show peaks")
def test_memory_is_that_of_the_result_and_a_piece() -> None:
    """S takes 8 bytes an edge, and a shard of eight a share of that; made from coordinates it was 140."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    edges, operator, shards = (int(word) for word in done.stdout.split())
    assert edges > 1_000_000
    assert operator < 8 * edges + 24 * 2**20
    assert shards < 4 * edges + 24 * 2**20
