"""Matrices are kept while the graph is the same, and never longer."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from nn_cases import NODES, features, graph, weights
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import gfgnn.nn as ours
from gfgnn.nn import adjacency
from gfgnn.nn.adjacency import CACHED, Settings, matrix_of
from gfgnn.nn.cache import TensorCache
from gfgnn.nn.product import Matrix, product

DTYPE = torch.float64
SETTINGS = Settings(NODES, NODES, DTYPE)


@pytest.fixture(autouse=True)
def _empty() -> None:
    adjacency._matrices.clear()
    adjacency._structures.clear()


def made(edge_index: Tensor, weight: Tensor | None = None, settings: Settings = SETTINGS) -> Matrix:
    matrix = matrix_of(features(DTYPE), edge_index, weight, settings)
    assert matrix is not None
    return matrix


def expected(edge_index: Tensor, weight: Tensor | None = None, nodes: int = NODES) -> Tensor:
    index, value = gcn_norm(edge_index, weight, nodes, dtype=DTYPE)
    return torch.zeros(nodes, nodes, dtype=DTYPE).index_put((index[1], index[0]), value, accumulate=True)


def dense(matrix: Matrix) -> Tensor:
    return product(matrix, torch.eye(matrix.shape[1], dtype=DTYPE))


def check(edge_index: Tensor, weight: Tensor | None = None) -> None:
    torch.testing.assert_close(dense(made(edge_index, weight)), expected(edge_index, weight))


def test_kept_while_nothing_changes() -> None:
    edges, weight = graph("plain"), weights(graph("plain"), DTYPE)
    assert made(edges) is made(edges)
    assert made(edges, weight) is made(edges, weight)
    assert made(edges) is not made(edges.clone())


def test_changes_in_place_are_seen() -> None:
    edges = graph("plain")
    weight = weights(edges, DTYPE)
    check(edges)
    check(edges, weight)
    edges[0, 0] = 11
    check(edges)
    check(edges, weight)
    weight.mul_(2.0)
    weight[1] = 5.0
    check(edges, weight)
    edges.copy_(edges.flip(0))
    check(edges, weight)
    edges.t()[2].zero_()  # through a view
    check(edges, weight)


def test_other_memory_behind_the_same_tensor_is_seen() -> None:
    edges = graph("plain")
    check(edges)
    for shift in range(1, 20):
        edges.data = edges.roll(shift, 0).sub(1).clamp_(min=0)
        check(edges)
    edges.set_(graph("loops"))
    check(edges)


def test_memory_that_was_seen_is_not_given_to_others() -> None:
    """Else the same tensor could hold other numbers in the same place, and its version would not tell."""
    cache: TensorCache[Tensor] = TensorCache(1)
    edges = torch.zeros(2, 40, dtype=torch.long)
    for step in range(20):
        cache.get([edges], 0, edges.clone)
        place = edges.data_ptr()
        edges.data = torch.empty(0, dtype=torch.long)
        spare = [torch.full((2, 40), step + 1) for _ in range(3)]
        edges.data = next((tensor for tensor in spare if tensor.data_ptr() == place), spare[0])
        found = cache.get([edges], 0, edges.clone)
        assert found is not None
        assert torch.equal(found, edges)


def test_a_matrix_goes_with_its_tensor() -> None:
    edges = graph("plain")
    made(edges)
    assert len(adjacency._matrices) == 1
    del edges
    gc.collect()
    assert len(adjacency._matrices) == 0


def test_tensors_that_take_a_freed_tensors_place() -> None:
    identities: set[tuple[int, int]] = set()
    for seed in range(
        1500
    ):  # 60, or as many as it takes for an allocator that seldom gives out a place twice
        if seed >= 60 and len(identities) < seed:
            break
        edges = graph("plain", seed)
        weight = weights(edges, DTYPE, seed)
        identities.add((id(edges), edges.data_ptr()))
        check(edges, weight)
        del edges, weight
    assert len(identities) < seed, "no address was used twice: nothing was tested"


def test_other_settings_and_sizes_are_other_matrices() -> None:
    edges = graph("plain")
    check(edges)
    larger = Settings(NODES + 3, NODES + 3, DTYPE)
    torch.testing.assert_close(dense(made(edges, None, larger)), expected(edges, None, NODES + 3))
    single = made(edges, None, Settings(NODES, NODES, torch.float32))
    assert single.value.dtype == torch.float32
    weight = weights(edges, DTYPE)
    improved = made(edges, weight, Settings(NODES, NODES, DTYPE, improved=True))
    assert not torch.equal(dense(improved), dense(made(edges, weight)))


def test_bounded() -> None:
    graphs = [graph("plain", seed) for seed in range(3 * CACHED)]
    for edges in graphs:
        made(edges)
    assert len(adjacency._matrices) == CACHED
    last = made(graphs[-1])
    assert made(graphs[-1]) is last
    for edges in graphs:
        check(edges)


def test_weights_that_are_learnt_keep_only_the_structure() -> None:
    edges = graph("plain")
    weight = weights(edges, DTYPE).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        torch.testing.assert_close(dense(made(edges, weight)), expected(edges, weight))
        dense(made(edges, weight)).square().sum().backward()
        optimizer.step()
    assert len(adjacency._matrices) == 0
    assert len(adjacency._structures) == 1


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo, torch.sparse_csc])
def test_sparse_tensors_are_compared_by_content(layout: torch.layout) -> None:
    """Their versions do not count changes of the tensors they were made of."""
    settings = Settings(NODES, NODES, DTYPE, normalize=False)
    a = torch.zeros(NODES, NODES, dtype=DTYPE)
    a[0, 3] = a[2, 1] = 2.0
    value = torch.tensor([2.0, 2.0], dtype=DTYPE)
    if layout == torch.sparse_coo:
        place = torch.tensor([[0, 2], [3, 1]])
        adj_t = torch.sparse_coo_tensor(place, value, a.shape, is_coalesced=True, check_invariants=False)
    else:
        other = a.to_sparse(layout=layout)
        build = torch.sparse_csr_tensor if layout == torch.sparse_csr else torch.sparse_csc_tensor
        parts = (
            (other.crow_indices(), other.col_indices())
            if layout == torch.sparse_csr
            else (other.ccol_indices(), other.row_indices())
        )
        adj_t = build(*parts, value, a.shape, check_invariants=False)
    first = made(adj_t, None, settings)
    assert torch.equal(dense(first), a)
    assert made(adj_t, None, settings) is first
    value.mul_(3.0)
    assert torch.equal(dense(made(adj_t, None, settings)), 3.0 * a)


def test_tensors_of_inference_mode_are_not_kept() -> None:
    """They count no versions; and what is made in inference mode serves training afterwards."""
    with torch.inference_mode():
        edges = graph("plain")
        check(edges)
        edges[0, 0] = 11
        check(edges)
    check(edges)
    assert len(adjacency._matrices) == 0
    outside = graph("plain")
    with torch.inference_mode():
        kept = made(outside)
    assert made(outside) is kept
    x = features(DTYPE).requires_grad_()
    product(kept, x).sum().backward()
    ours.GCNConv(6, 3).double()(features(DTYPE), edges).sum().backward()


def test_none_is_not_kept_and_errors_pass() -> None:
    cache: TensorCache[int] = TensorCache(2)
    tensor = torch.zeros(2)
    assert cache.get([tensor], 0, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        cache.get([tensor], 0, lambda: 1 // 0)
    assert cache.get([tensor], 0, lambda: 3) == 3
    assert cache.get([tensor], 0, lambda: 4) == 3


def test_many_threads() -> None:
    graphs = [graph("plain", seed) for seed in range(2 * CACHED)]
    wanted = [expected(edges) for edges in graphs]
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for step in range(40):
                number = (offset * 7 + step) % len(graphs)
                torch.testing.assert_close(dense(made(graphs[number])), wanted[number])
                short_lived = graph("plain", step)
                made(short_lived)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert len(adjacency._matrices) <= CACHED
