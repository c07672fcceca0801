"""Products with the columns that a part owns, against dense ones."""

from __future__ import annotations

import pytest
import torch
from grids import random_parts, run_open, small, small_directed
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.config import ModelConfig
from gfgnn.exchange.neighbours import neighbourhood_of
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.model.build import build_model
from gfgnn.shards import make_shards, shard_problem


def table(graph: Graph, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_nodes, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("graph", [small(), small_directed()], ids=["undirected", "directed"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_products_are_those_of_the_whole_matrix(graph: Graph, parts: int) -> None:
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    assignment = random_parts(graph.num_nodes, parts)
    shards = make_shards(model, graph, assignment, parts, dtype=torch.float64)
    dense = build_propagation(graph).matrix.to_dense().double()
    h, q = table(graph, 0), table(graph, 1)

    def job(world: Communicator) -> None:
        grid = make_grid(world, parts, 1)
        problem = shard_problem(model, shards[grid.part], grid, (0, 2), dtype=torch.float64)
        near, own = neighbourhood_of(problem.propagation), problem.node_ids
        ids = near.around(own[:, None]).squeeze(1)
        reached = dense[:, own].abs().sum(1).nonzero().squeeze(1)
        assert set(ids.tolist()) == set(reached.tolist()) | set(own.tolist())
        assert ids.unique().numel() == ids.numel()
        torch.testing.assert_close(near.around(q[own]), q[ids])
        torch.testing.assert_close(near.apply(h[own]), dense[ids][:, own] @ h[own])
        torch.testing.assert_close(near.adjoint(q[ids]), dense.t()[own] @ q)

    assert run_open(parts, job)[1] == 0


def test_one_device_is_its_own_neighbourhood() -> None:
    s = build_propagation(small_directed())
    near, h = neighbourhood_of(s), table(small_directed(), 2).to(s.matrix.dtype)
    assert near.around(h) is h
    torch.testing.assert_close(near.apply(h), s.apply(h))
    torch.testing.assert_close(near.adjoint(h), s.adjoint(h))
