"""Losses, residuals and curvature bounds of the output layer, with autograd as the oracle."""

from __future__ import annotations

import pytest
import torch
from random_graphs import randn
from torch import Tensor
from torch.nn import functional as F

from gfgnn.solver.head import CURVATURE, loss_prox, loss_sum, predict_mean, residual

TASKS = list(CURVATURE)
K, C = 20, 4


def targets(task: str) -> Tensor:
    if task == "multiclass":
        return F.one_hot(torch.arange(K) % C, C).double()
    return (randn(K, C, seed=1) > 0).double() if task == "multilabel" else randn(K, C, seed=1)


def loss(task: str, scores: Tensor, y: Tensor) -> float:
    """The mean over rows."""
    return loss_sum(task, scores, y) / y.size(0)


def reference(task: str, scores: Tensor, y: Tensor) -> Tensor:
    """The losses as torch has them; sums over outputs, means over rows."""
    if task == "multiclass":
        return F.cross_entropy(scores, y.argmax(1))
    if task == "multilabel":
        return C * F.binary_cross_entropy_with_logits(scores, y)
    return C * F.mse_loss(scores, y) / 2


@pytest.mark.parametrize("task", TASKS)
def test_loss_and_residual_are_those_of_torch(task: str) -> None:
    y, scores = targets(task), (3 * randn(K, C)).requires_grad_()
    value = reference(task, scores, y)
    assert loss(task, scores.detach(), y) == pytest.approx(float(value.detach()))
    value.backward()
    assert scores.grad is not None
    torch.testing.assert_close(residual(task, scores.detach(), y), -K * scores.grad / CURVATURE[task])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_the_curvature_bound_majorises(task: str, size: float) -> None:
    """``loss(s + d) <= loss(s) - h <R, d> / k + h |d|^2 / (2 k)``; so the residual itself never raises the loss."""
    y, h = targets(task), CURVATURE[task]
    for seed in range(5):
        scores, shift = 2 * randn(K, C, seed=seed), size * randn(K, C, seed=100 + seed)
        r = residual(task, scores, y)
        bound = loss(task, scores, y) + h / K * float(shift.square().sum() / 2 - (r * shift).sum())
        assert loss(task, scores + shift, y) <= bound + 1e-12
        assert loss(task, scores + r, y) <= loss(task, scores, y)


@pytest.mark.parametrize("task", TASKS)
def test_the_bound_is_tight_somewhere(task: str) -> None:
    scores = torch.zeros(1, 2 if task == "multiclass" else 1, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(
        lambda s: reference(task, s, torch.zeros_like(s)) * (1 if task == "multiclass" else 1 / C), scores
    )
    largest = torch.linalg.eigvalsh(hessian.reshape(scores.numel(), -1)).max()
    assert float(largest) == pytest.approx(CURVATURE[task])


def test_means_are_probabilities_or_values() -> None:
    scores = randn(K, C)
    torch.testing.assert_close(predict_mean("multiclass", scores).sum(1), torch.ones(K, dtype=torch.float64))
    torch.testing.assert_close(predict_mean("multilabel", scores), torch.sigmoid(scores))
    assert torch.equal(predict_mean("regression", scores), scores)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_large_scores_stay_finite(task: str) -> None:
    y = targets(task)
    scores = 1e4 * (2 * y - 1)
    assert loss(task, scores, y) == pytest.approx(0.0)
    assert 1e3 < loss(task, -scores, y) < 1e6
    assert bool(torch.isfinite(residual(task, -scores, y)).all())


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_unknown_targets_have_no_loss_and_move_nothing(task: str) -> None:
    y, scores = targets(task), randn(K, C, seed=2)
    unknown = randn(K, C, seed=3) > 0
    partly = torch.where(unknown, torch.nan, y)
    rows = [loss_sum(task, scores[i, c], y[i, c]) for i, c in (~unknown).nonzero().tolist()]
    assert loss_sum(task, scores, partly) == pytest.approx(sum(rows))
    expected = torch.where(unknown, 0.0, residual(task, scores, y))
    torch.testing.assert_close(residual(task, scores, partly), expected)
    a = randn(K, C, seed=4)
    expected = torch.where(unknown, a, loss_prox(task, a, y, 0.3, scores, steps=400))
    torch.testing.assert_close(loss_prox(task, a, partly, 0.3, scores, steps=400), expected)
