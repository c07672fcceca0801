"""Losses of the output layer: residuals and the curvature bound that majorises them.

Targets of NaN are unknown: such an entry has no loss, and its score has nothing to move for.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Upper bounds of the Hessian of each loss in the scores (Böhning 1992 for softmax; 1/4 for the sigmoid).
CURVATURE = {"multiclass": 0.5, "multilabel": 0.25, "regression": 1.0}


def predict_mean(task: str, scores: Tensor) -> Tensor:
    """The mean the scores stand for: softmax, sigmoid, or the scores themselves; ``[k, C]``."""
    if task == "multiclass":
        return torch.softmax(scores, dim=1)
    return torch.sigmoid(scores) if task == "multilabel" else scores


def residual(task: str, scores: Tensor, targets: Tensor) -> Tensor:
    """The shift of the scores that minimises the majoriser: ``(Y - mean(scores)) / h``, ``[k, C]``."""
    return _missing(task, scores, targets) / CURVATURE[task]


def loss_sum(task: str, scores: Tensor, targets: Tensor) -> float:
    """Sum over the k rows: cross-entropy, the sum of binary cross-entropies, or half the squared error."""
    if task == "multiclass":
        rows = -(torch.log_softmax(scores, dim=1) * targets)
    elif task == "multilabel":
        rows = torch.nn.functional.softplus(scores) - scores * targets
    else:
        rows = (scores - targets).square() / 2
    if task != "multiclass":
        rows = torch.where(torch.isnan(targets), 0.0, rows)
    return float(rows.double().sum())


def loss_prox(task: str, a: Tensor, targets: Tensor, penalty: float, start: Tensor, steps: int = 8) -> Tensor:
    """``argmin_z loss(z) + penalty / 2 |z - a|^2`` for each row, ``[k, C]``.

    Exact for regression, whose loss is a parabola; else ``steps`` minimisations of the majoriser of curvature h
    (Böhning 1992), from ``start``: ``z <- z - (mean(z) - Y + penalty (z - a)) / (h + penalty)``; none of them raises
    the sum.
    """
    if task == "regression":
        return torch.where(torch.isnan(targets), a, (targets + penalty * a) / (1 + penalty))
    z = start
    for _ in range(steps):
        slope = penalty * (z - a) - _missing(task, z, targets)
        z = z - slope / (CURVATURE[task] + penalty)
    return z


def _missing(task: str, scores: Tensor, targets: Tensor) -> Tensor:
    """``Y - mean(scores)``, 0 where Y is unknown, ``[k, C]``."""
    missing = targets - predict_mean(task, scores)
    return missing if task == "multiclass" else torch.where(torch.isnan(targets), 0.0, missing)
