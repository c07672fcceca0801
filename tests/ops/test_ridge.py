"""Moments and ridge systems against their definitions, in float64."""

from __future__ import annotations

import pytest
import torch

from gfgnn.ops import ridge as module
from gfgnn.ops.ridge import factor, mean_diagonal, moment_sums, moments, solve


def problem(seed: int = 0, n: int = 30, p: int = 4, d: int = 3) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    t = torch.randn(n, p, generator=generator, dtype=torch.float64) + 2.0
    c = torch.rand(n, generator=generator, dtype=torch.float64)
    c[::5] = 0.0
    return t, c, torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("centred", [False, True])
def test_moments_follow_their_definition(centred: bool) -> None:
    t, c, shift = problem()
    data = moments(t, c, c[:, None] * shift, centred)
    s = c.sum()
    m = (c[:, None] * t).sum(0) / s if centred else torch.zeros(4, dtype=torch.float64)
    rbar = (c[:, None] * shift).sum(0) / s if centred else torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(data.gram, (t - m).t() @ torch.diag(c) @ (t - m))
    torch.testing.assert_close(data.cross, (t - m).t() @ torch.diag(c) @ (shift - rbar))
    torch.testing.assert_close(data.mean, m)
    torch.testing.assert_close(data.shift, rbar)
    torch.testing.assert_close(data.total, s)
    torch.testing.assert_close(data.scale, data.gram.trace() / 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_moments_of_many_rows_are_taken_in_pieces(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as at once, also of rows kept in fewer bits, of chosen rows alone, and without the Gram matrix."""
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr(module, "PIECE", 8192)
    n = 2 * 8192 // 5 + 17
    t, c, r = (torch.rand(n, w, generator=generator, dtype=torch.float64) for w in (5, 1, 3))
    t, c, rows = t.to(dtype), c.squeeze(1), torch.arange(0, n, 3)
    r = r.float() if dtype != torch.float64 else r
    c = c.to(r.dtype)
    c[1::3] = c[2::3] = 0.0
    wide = t.double()
    expected = [wide.t() @ (wide * c.double()[:, None]), wide[::3].t() @ r[::3].double(), c.double().sum()]
    expected += [c.double() @ wide, r[::3].double().sum(0)]
    found = moment_sums(t, c, r[::3].contiguous(), True, rows=rows)
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-5 if r.dtype == torch.float32 else 1e-12, atol=0.0)
    assert not moment_sums(t, c, r, True, gram=False)[0].any()


def test_moments_of_single_precision_are_kept_in_double() -> None:
    t, c, shift = (v.float() for v in problem())
    data = moments(t, c, c[:, None] * shift, True)
    assert data.gram.dtype == data.cross.dtype == data.mean.dtype == data.total.dtype == torch.float64
    exact = moments(*(v.double() for v in (t, c, c[:, None] * shift)), True)
    torch.testing.assert_close(data.gram, exact.gram, rtol=1e-4, atol=1e-4)


def test_centred_ridge_is_least_squares_with_a_free_bias() -> None:
    """The centred system and ``bias = rbar - m' W`` minimise ``sum c |shift - t W - b|^2 + |W|^2_damping``."""
    t, c, shift = problem()
    damping = torch.tensor([0.1, 1.0, 2.0, 0.5], dtype=torch.float64)
    data = moments(t, c, c[:, None] * shift, True)
    weight = solve(data.gram, damping, data.cross)
    bias = data.shift - data.mean @ weight
    root = c.sqrt()[:, None]
    rows = torch.cat(
        [
            root * torch.cat([t, torch.ones_like(root)], 1),
            torch.diag(damping.sqrt()) @ torch.eye(4, 5).double(),
        ]
    )
    right = torch.cat([root * shift, torch.zeros(4, 3, dtype=torch.float64)])
    expected = torch.linalg.lstsq(rows, right).solution
    torch.testing.assert_close(torch.cat([weight, bias[None]]), expected)


@pytest.mark.parametrize("damping", [torch.tensor(0.3), torch.tensor([0.1, 0.2, 0.3, 0.4])])
def test_solve_equals_a_dense_solve(damping: torch.Tensor) -> None:
    t, c, shift = problem(1)
    data = moments(t, c, c[:, None] * shift, False)
    damped = data.gram + torch.diag(damping.double().expand(4))
    torch.testing.assert_close(
        solve(data.gram, damping.double(), data.cross), torch.linalg.solve(damped, data.cross)
    )


def test_matrices_without_full_rank_can_be_factored() -> None:
    v = torch.ones(5, 1, dtype=torch.float64)
    none = torch.tensor(0.0, dtype=torch.float64)
    for gram in (v @ v.t(), torch.zeros(5, 5, dtype=torch.float64), v @ v.t() - 1e-12 * torch.eye(5)):
        lower = factor(gram, none)
        assert bool(torch.isfinite(lower).all())
        torch.testing.assert_close(lower @ lower.t(), gram, rtol=0, atol=1e-4)
    assert float(mean_diagonal(torch.zeros(5, 5))) > 0


@pytest.mark.parametrize("place", [(1, 1), (2, 1)])
def test_what_is_not_finite_stays_visible(place: tuple[int, int]) -> None:
    """A diverged run must end with a loss of NaN, not search for a damping for ever."""
    gram = torch.eye(3, dtype=torch.float64)
    gram[place] = float("nan")
    assert bool(torch.isnan(solve(gram, torch.tensor(0.1), torch.ones(3, 2, dtype=torch.float64))).any())
