"""Conjugate gradients against a dense solve."""

from __future__ import annotations

import torch

from gfgnn.ops.cg import conjugate_gradient


def system(seed: int, p: int = 20, d: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    t = torch.randn(2 * p, p, generator=generator, dtype=torch.float64)
    scale = torch.logspace(-2, 2, p, dtype=torch.float64)  # columns of very different size
    a = (t * scale).t() @ (t * scale) + 1e-3 * torch.eye(p)
    return a, torch.randn(p, d, generator=generator, dtype=torch.float64)


def test_equals_a_dense_solve() -> None:
    a, rhs = system(0)
    x = conjugate_gradient(lambda v: a @ v, rhs, a.diagonal(), 200, tolerance=1e-12)
    torch.testing.assert_close(x, torch.linalg.solve(a, rhs), rtol=1e-8, atol=1e-10)


def test_stops_at_the_tolerance() -> None:
    a, rhs = system(1)
    calls = []

    def product(v: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return a @ v

    x = conjugate_gradient(product, rhs, a.diagonal(), 200, tolerance=1e-2)
    assert 0 < len(calls) < 100
    left = rhs - a @ x
    fall = ((left * left / a.diagonal()[:, None]).sum(0) / (rhs * rhs / a.diagonal()[:, None]).sum(0)).sqrt()
    assert float(fall.max()) <= 1.01e-2
    assert len(calls) > 1
    calls.clear()
    conjugate_gradient(product, rhs, a.diagonal(), 3, tolerance=0.0)
    assert len(calls) == 3


def test_more_iterations_come_closer() -> None:
    a, rhs = system(2)
    exact = torch.linalg.solve(a, rhs)

    def error(iterations: int) -> float:
        off = conjugate_gradient(lambda v: a @ v, rhs, a.diagonal(), iterations, tolerance=0.0) - exact
        return float((off * (a @ off)).sum())  # the norm in which every iteration is a descent

    errors = [error(k) for k in (0, 1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)


def test_diagonal_systems_take_one_step() -> None:
    diagonal = torch.linspace(0.1, 50, 10, dtype=torch.float64)
    rhs = torch.ones(10, 2, dtype=torch.float64)
    x = conjugate_gradient(lambda v: diagonal[:, None] * v, rhs, diagonal, 1)
    torch.testing.assert_close(x, rhs / diagonal[:, None])


def test_a_column_of_zeros_stays_zero() -> None:
    a, rhs = system(3)
    rhs[:, 1] = 0.0
    before = rhs.clone()
    x = conjugate_gradient(lambda v: a @ v, rhs, a.diagonal(), 50, tolerance=1e-10)
    assert bool(torch.isfinite(x).all())
    assert not bool(x[:, 1].any())
    assert torch.equal(rhs, before), "the right-hand side is left as it was"
