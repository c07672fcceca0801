"""What is computed once per problem: the head's rows, node weights, the response, references."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from random_graphs import randn, random_graph
from torch import Tensor

from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.blocks import Block, propagate, propagate_adjoint
from gfgnn.model.build import build_model
from gfgnn.problem import Problem, prepare
from gfgnn.solver.head import CURVATURE
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights, response

DEEP = ["gcn", "gcnii", "resgcn", "sage", "sign"]


def problem(
    family: str, layers: int = 4, graph: Graph | None = None, hidden: int = 5, **changes: object
) -> Problem:
    graph = random_graph(1, directed=True, weighted=True) if graph is None else graph
    config = ModelConfig(family=family, layers=layers, hidden=hidden, **changes)  # type: ignore[arg-type]
    return prepare(build_model(config, graph), graph, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["none", "graph", "concat"])
def test_head_rows_are_rows_of_the_full_propagation(kind: str) -> None:
    p = problem("gcn")
    block = Block(propagate=kind, in_channels=5, out_channels=3)
    index = torch.tensor([4, 0, 7])
    model = replace(p.model, blocks=(*p.model.blocks[:-1], block))
    head = make_head_rows(replace(p, model=model, train_index=index))
    h, r, inverse = randn(p.propagation.num_nodes, 5), randn(3, 3, seed=1), randn(3, block.fan_in, seed=2)
    torch.testing.assert_close(head.apply(lambda _: h), propagate(block, p.propagation, h)[index])
    full = torch.zeros(p.propagation.num_nodes, block.fan_in, dtype=torch.float64)
    full[index] = r @ inverse
    below, _ = propagate_adjoint(block, p.propagation, full)
    ((source, message),) = head.message(r, inverse)
    assert source == len(model.blocks) - 2
    torch.testing.assert_close(message, below)


@pytest.mark.parametrize("family", DEEP)
@pytest.mark.parametrize("kind", ["mass", "uniform"])
def test_node_weights_are_one_per_block_and_node(family: str, kind: str) -> None:
    p = problem(family)
    weights = node_weights(p, kind)
    assert len(weights) == len(p.model.blocks)
    assert all(w.shape == (p.propagation.num_nodes,) and bool((w >= 0).all()) for w in weights)
    top = torch.zeros_like(weights[-1])
    top[p.train_index] = CURVATURE["multiclass"] / p.train_index.numel()
    torch.testing.assert_close(weights[-1], top)
    if kind == "uniform":
        for w in weights[:-1]:
            torch.testing.assert_close(w, torch.full_like(w, 0.5 / w.numel()))


def averaged(block: Block, t: Tensor) -> Tensor:
    """Z of a block with identity weights (half of it on each half of a concatenation)."""
    return sum(t.split(block.in_channels, dim=1)) / (t.size(1) // block.in_channels)  # type: ignore[return-value]


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage"])
@pytest.mark.parametrize("directed", [False, True])
def test_node_weights_bound_what_reaches_the_labels(family: str, directed: bool) -> None:
    """With identity weights a shift of H_0 moves the labelled rows' T by no more than block 0's weights say."""
    p = problem(family, 6, random_graph(2, directed=directed, isolated=0), norm="rw")
    weights, blocks = node_weights(p, "mass"), p.model.blocks
    slack = torch.tensor([1 + (b.skip or 0.0) for b in blocks]).square().prod().item()
    for seed in range(5):
        h = h0 = randn(p.propagation.num_nodes, 5, seed=seed)
        for block in blocks[1:-1]:
            z = averaged(block, propagate(block, p.propagation, h, h0))
            if block.skip is None:
                h = z
            else:  # the mass is shared between both paths; what they sum to is larger by (1 + tau)^2
                h = h + block.skip * z
        t = averaged(blocks[-1], propagate(blocks[-1], p.propagation, h, h0))
        reached = float(weights[-1] @ t.square().sum(1))
        assert reached <= slack * float(weights[0] @ h0.square().sum(1)) * (1 + 1e-9)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage", "sign"])
def test_node_weights_keep_their_mass_with_the_random_walk(family: str) -> None:
    p = problem(family, 20, random_graph(3, isolated=0), norm="rw")
    for w in node_weights(p, "mass")[
        : 1 if family == "gcnii" else None
    ]:  # H_0 of GCNII gets its share at the end
        assert float(w.sum()) == pytest.approx(CURVATURE["multiclass"])


def two_pairs() -> Graph:
    """Two pairs of connected nodes; one node of each is labelled, with another class. S halves: S S = S."""
    index = torch.arange(4)
    return Graph.from_edges(
        torch.tensor([[0, 2], [1, 3]]), 4, x=torch.eye(4), y=torch.tensor([0, 0, 1, 1]), symmetrise=True,
        train_mask=index % 2 == 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("family", "layers", "expected"),
    [
        ("gcn", 2, 0.5),  # S S' = S, whose diagonal is 1/2
        ("gcn", 5, 0.5),
        ("gcnii", 2, (1 + 0.1**2) / 2),
        (
            "resgcn",
            2,
            ((1 + 0.5**0.5) ** 4 + 1) / 2,
        ),  # (I + tau S)^4 is (1 + tau)^4 on one half of E, 1 on the other
        ("sign", 3, 1.0),
        ("sgc", 3, 1.0),
    ],
)
def test_response_by_hand(family: str, layers: int, expected: float) -> None:
    p = problem(family, layers, two_pairs())
    assert response(p) == pytest.approx(expected)


def test_response_of_sage_by_hand() -> None:
    """The mean over neighbours swaps the two nodes of a pair: (I + P)/2 is idempotent, as S above."""
    p = problem("sage", 4, two_pairs())
    assert response(p) == pytest.approx(0.5)


def test_response_of_targets_that_do_not_differ() -> None:
    graph = two_pairs().replace(y=torch.tensor([1, 1, 1, 0]))
    p = problem("gcn", 3, graph)
    assert response(p) > 0


@pytest.mark.parametrize("family", [*DEEP, "sgc"])
def test_references_are_the_identity_for_square_hidden_blocks(family: str) -> None:
    p = problem(family, hidden=5)
    references = reference_weights(p)
    assert list(references) == [f"block{i}.weight" for i in range(len(p.model.blocks))]
    for index, block in enumerate(p.model.blocks):
        reference = references[f"block{index}.weight"]
        assert reference.shape == (block.fan_in, block.out_channels)
        if block.reference == "identity":
            h = randn(7, 5)
            t = torch.cat([h] * (block.fan_in // 5), dim=1)
            torch.testing.assert_close(t @ reference, h)
        else:
            assert not bool(reference.any())
