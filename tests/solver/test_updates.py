"""Each closed-form update against the objective it solves; autograd is used as an oracle here, and here only."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from random_graphs import randn
from torch import Tensor
from torch.nn import functional as F

from gfgnn.ops.ridge import Moments, factor, moments
from gfgnn.solver.head import CURVATURE, loss_sum, residual
from gfgnn.solver.updates import Update, head_update, pass_down, polar_direction, sweep_update

N, P, D = 50, 5, 3


def rows(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, node weights, wanted shifts and present weights of a random layer."""
    c = randn(N, seed=seed + 1).abs()
    c[::7] = 0.0
    return randn(N, P, seed=seed) + 0.5, c, randn(N, D, seed=seed + 2) + 0.3, randn(P, D, seed=seed + 3)


def applied(update: Update) -> tuple[Tensor, Tensor]:
    return update.weight, torch.zeros(D, dtype=torch.float64) if update.bias is None else update.bias


def slopes(
    objective: Callable[[Tensor, Tensor], Tensor], weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    return torch.autograd.grad(objective(weight, bias), (weight, bias))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bias", [True, False])
def test_head_update_is_the_minimum_of_its_objective(seed: int, bias: bool) -> None:
    t, c, shift, weight = rows(seed)
    data = moments(t, c, c[:, None] * shift, centred=bias)
    ridge, dropout, prox, gain = 0.4, 0.3, 0.2, 2.0
    update = head_update(
        data, c @ t.square(), weight, ridge=ridge, dropout=dropout, prox=prox, gain=gain, bias=bias
    )
    charge = dropout / (1 - dropout) * (c @ t.square()) + ridge * data.scale

    def objective(dw: Tensor, db: Tensor) -> Tensor:
        fit = (c[:, None] * (gain * shift - t @ dw - db).square()).sum()
        return fit + (charge[:, None] * (weight + dw).square()).sum() + prox * data.scale * dw.square().sum()

    dw, db = applied(update)
    assert (update.bias is None) == (not bias)
    slope_w, slope_b = slopes(objective, dw, db)
    torch.testing.assert_close(slope_w, torch.zeros_like(dw), rtol=0, atol=1e-9)
    if bias:
        torch.testing.assert_close(slope_b, torch.zeros_like(db), rtol=0, atol=1e-9)
    assert float(objective(dw, db)) <= float(objective(torch.zeros_like(dw), torch.zeros_like(db)))


@pytest.mark.parametrize("task", list(CURVATURE))
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_head_updates_never_raise_the_regularised_loss(task: str, dropout: float) -> None:
    """Majorised steps with gain 1, repeated: loss and ridge together go down every time, and settle."""
    t, y = randn(N, P) + 0.5, randn(N, D, seed=1)
    if task != "regression":
        y = F.one_hot(y.argmax(1), D).double() if task == "multiclass" else (y > 0).double()
    h = CURVATURE[task]
    c = torch.full((N,), h / N, dtype=torch.float64)
    weight, bias = 3 * randn(P, D, seed=2), randn(D, seed=3)
    values = []
    for _ in range(300):
        r = residual(task, t @ weight + bias, y)
        data = moments(t, c, c[:, None] * r, centred=True)
        charge = dropout / (1 - dropout) * (c @ t.square()) + 0.05 * data.scale
        values.append(
            loss_sum(task, t @ weight + bias, y) / y.size(0)
            + 0.5 * float((charge[:, None] * weight.square()).sum())
        )
        update = head_update(
            data, c @ t.square(), weight, ridge=0.05, dropout=dropout, prox=0.1, gain=1.0, bias=True
        )
        weight, bias = weight + applied(update)[0], bias + applied(update)[1]
    assert all(b <= a + 1e-12 for a, b in pairwise(values))
    assert values[0] - values[-1] > 0.1
    assert values[-2] - values[-1] < 1e-8


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bias", [True, False])
def test_sweep_update_is_the_minimum_of_its_objective(seed: int, bias: bool) -> None:
    """The full step is the minimum; shorter ones go part of the way and never raise the objective."""
    t, c, shift, offset = rows(seed)
    data = moments(t, c, c[:, None] * shift, centred=bias)
    ridge, prox = 0.7, 0.2

    def objective(dw: Tensor, db: Tensor) -> Tensor:
        fit = (c[:, None] * (shift - t @ dw - db).square()).sum()
        return fit + data.scale * (ridge * (offset + dw).square().sum() + prox * dw.square().sum())

    zero = torch.zeros(P, D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64)
    full = applied(sweep_update(data, offset, ridge=ridge, prox=prox, step=1.0, bias=bias))
    slope_w, slope_b = slopes(objective, *full)
    torch.testing.assert_close(slope_w, zero[0], rtol=0, atol=1e-9)
    if bias:
        torch.testing.assert_close(slope_b, zero[1], rtol=0, atol=1e-9)
    last = float(objective(*zero))
    for step in (0.1, 0.5, 1.0):
        part = applied(sweep_update(data, offset, ridge=ridge, prox=prox, step=step, bias=bias))
        torch.testing.assert_close(part[0], step * full[0])
        torch.testing.assert_close(part[1], step * full[1])
        value = float(objective(*part))
        assert value <= last
        last = value


def natural_step(data: Moments) -> tuple[Tensor, Tensor]:
    """The undamped step of the layer's linear model and the gradient it comes from."""
    return torch.cholesky_solve(data.cross, factor(data.gram, torch.tensor(0.0))), data.cross / data.total


@pytest.mark.parametrize("bias", [True, False])
def test_polar_direction_makes_the_change_white(bias: bool) -> None:
    """The second moment of the change of Z over the weighted rows is the identity."""
    t, c, shift, _ = rows(0)
    data = moments(t, c, c[:, None] * shift, centred=bias)
    natural, gradient = natural_step(data)
    direction = polar_direction(natural, gradient, data.shift, data.mean, 1e-12)
    change = t @ direction.weight + (direction.bias if bias else 0.0)
    second = change.t() @ (c[:, None] * change) / c.sum()
    torch.testing.assert_close(second, torch.eye(D, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert float((c[:, None] * change * shift).sum()) > 0, "it moves towards what is wanted"


def test_polar_direction_with_a_floor() -> None:
    """The floor shrinks what is weak: eigenvalues of the second moment are F / (F + floor * mean), below 1."""
    t, c, shift, _ = rows(1)
    shift = shift * torch.tensor([1.0, 0.1, 0.001])
    data = moments(t, c, c[:, None] * shift, centred=True)
    natural, gradient = natural_step(data)
    direction = polar_direction(natural, gradient, data.shift, data.mean, 0.1)
    change = t @ direction.weight + direction.bias
    values = torch.linalg.eigvalsh(change.t() @ (c[:, None] * change) / c.sum())
    plain = torch.linalg.eigvalsh(natural.t() @ gradient + torch.outer(data.shift, data.shift))
    torch.testing.assert_close(values, plain / (plain + 0.1 * plain.mean()))
    assert float(values.max()) < 1.0
    assert float(values.min()) < 1e-3


def test_polar_direction_without_anything_to_do() -> None:
    zero = torch.zeros(P, D, dtype=torch.float64)
    direction = polar_direction(zero, zero, zero[0], torch.ones(P, dtype=torch.float64), 0.1)
    assert not bool(direction.weight.any())
    assert not bool(direction.bias.any())


@pytest.mark.parametrize(("p", "d"), [(5, 3), (3, 5), (4, 4), (1, 6), (6, 1)])
@pytest.mark.parametrize("relative", [True, False])
def test_pass_down_equals_the_dense_formula(p: int, d: int, relative: bool) -> None:
    w, rho = randn(p, d), 0.3
    small = w.t() @ w if d <= p else w @ w.t()
    damping = rho * (float(small.diagonal().mean()) if relative else 1.0)
    expected = w.t() @ torch.linalg.inv(w @ w.t() + damping * torch.eye(p))
    torch.testing.assert_close(expected, torch.linalg.inv(w.t() @ w + damping * torch.eye(d)) @ w.t())
    torch.testing.assert_close(pass_down(w, rho, relative), expected)
    torch.testing.assert_close(pass_down(w.float(), rho, relative), expected, rtol=1e-4, atol=1e-5)


def test_pass_down_of_a_zero_matrix_is_zero() -> None:
    """The output layer starts at zero: then nothing is passed, and no NaN."""
    assert not bool(pass_down(torch.zeros(4, 3), 0.1, True).any())
