"""The encoder's system: Cholesky, conjugate gradients and a dense solve agree."""

from __future__ import annotations

import pytest
import torch
from random_graphs import randn, random_graph
from torch import Tensor

from gfgnn.comm.serial import SerialCommunicator
from gfgnn.graph.operators import build_propagation
from gfgnn.model.blocks import Block
from gfgnn.model.inputs import make_inputs
from gfgnn.ops.cg import conjugate_gradient
from gfgnn.solver import input_system as module
from gfgnn.solver.input_system import InputSystem, make_input_system

N, F, D = 40, 6, 3


def system(
    kind: str, centred: bool, *, sparse: bool = False, cg: bool = False, **changes: float
) -> tuple[InputSystem, Tensor, Tensor]:
    """A system, T written out, and the node weights; some nodes weigh nothing."""
    graph = random_graph(0, nodes=N, directed=True)
    s = build_propagation(graph)
    x = randn(N, F, seed=1) + 1.0
    x = x * (randn(N, F, seed=2) > 0)
    block = Block(propagate=kind, in_channels=F, out_channels=D, hops=2, bias=centred)
    inputs = make_inputs(block, s, x.to_sparse_csr() if sparse else x)
    c = randn(N, seed=3).abs()
    c[::6] = 0.0
    options = {"ridge": 0.3, "dropout": 0.2, "prox": 0.1, **changes}
    with pytest.MonkeyPatch.context() as patch:
        if cg:
            patch.setattr(module, "GRAM_LIMIT", 0)
        return (
            make_input_system(inputs, c, SerialCommunicator(), centred=centred, **options),
            inputs.matmul(torch.eye(inputs.fan_in).double()),
            c,
        )


def dense_matrix(t: Tensor, c: Tensor, centred: bool, ridge: float, dropout: float, prox: float) -> Tensor:
    m = (c @ t) / c.sum() if centred else torch.zeros(t.size(1), dtype=torch.float64)
    gram = (t - m).t() @ torch.diag(c) @ (t - m)
    scale = gram.diagonal().mean()
    return gram + torch.diag(dropout / (1 - dropout) * (c @ t.square()) + (ridge + prox) * scale)


@pytest.mark.parametrize("kind", ["none", "graph", "hops"])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_three_ways_agree(kind: str, centred: bool, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, t, c = system(kind, centred, sparse=sparse)
    iterative, _, _ = system(kind, centred, sparse=sparse, cg=True)
    assert exact.lower is not None
    assert iterative.lower is None
    rhs = randn(t.size(1), D, seed=4)
    expected = torch.linalg.solve(dense_matrix(t, c, centred, 0.3, 0.2, 0.1), rhs)
    torch.testing.assert_close(exact.solve(rhs), expected)
    off = torch.linalg.norm(iterative.solve(rhs) - expected) / torch.linalg.norm(expected)
    assert float(off) < 5e-3  # as shipped: a few iterations to a stated tolerance
    monkeypatch.setattr(
        module, "conjugate_gradient", lambda p, r, d, i: conjugate_gradient(p, r, d, 200, 1e-12)
    )
    torch.testing.assert_close(iterative.solve(rhs), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("centred", [True, False])
def test_cross_moments(centred: bool) -> None:
    made, t, c = system("graph", centred)
    shift = randn(N, D, seed=5)
    r = c[:, None] * shift
    before = r.clone()
    cross, mean_shift = made.cross(r)
    m = (c @ t) / c.sum() if centred else torch.zeros(t.size(1), dtype=torch.float64)
    rbar = r.sum(0) / c.sum()
    torch.testing.assert_close(mean_shift, rbar)
    torch.testing.assert_close(cross, t.t() @ r - c.sum() * torch.outer(m, rbar))
    assert torch.equal(r, before)


def test_diagonal_is_that_of_the_matrix() -> None:
    made, t, c = system("graph", True)
    matrix = dense_matrix(t, c, True, 0.3, 0.2, 0.1)
    torch.testing.assert_close(made.diagonal, matrix.diagonal())
    torch.testing.assert_close(made._product(torch.eye(t.size(1)).double()), matrix)
    torch.testing.assert_close(made.damping - made.ridge, torch.full((t.size(1),), 0.1).double() * made.scale)


def test_features_that_never_occur() -> None:
    """A column of zeros gets a weight of zero, and no NaN."""
    s = build_propagation(random_graph(0, nodes=N))
    x = randn(N, F)
    x[:, 2] = 0.0
    block = Block(propagate="none", in_channels=F, out_channels=D)
    c = torch.ones(N, dtype=torch.float64)
    made = make_input_system(
        make_inputs(block, s, x), c, SerialCommunicator(), centred=True, ridge=0.1, dropout=0.0, prox=0.0
    )
    cross, _ = made.cross(randn(N, D, seed=1))
    solution = made.solve(cross)
    assert bool(torch.isfinite(solution).all())
    assert float(solution[2].abs().max()) < 1e-12
