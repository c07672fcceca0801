"""How good scores are: one number per task, higher is better, and the training loss."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from gfgnn.checks import InputError


def score(task: str, scores: Tensor, y: Tensor, index: Tensor) -> float:
    """The quality of ``scores`` on the nodes ``index``; what results call accuracy.

    Args:
        task: ``multiclass``: the share of right classes; ``multilabel``: ROC-AUC averaged over the labels that
            have both a positive and a negative among ``index``; ``regression``: R-squared, averaged over the
            outputs.
        scores: ``[N, C]`` logits (or values) of all nodes.
        y: labels of all nodes, as in :class:`gfgnn.graph.graph.Graph`; unknown ones are left out.
        index: node ids to score.

    Returns:
        The score, NaN where ``index`` holds no known label.
    """
    index = index.to(scores.device)
    picked, truth = scores[index], y.to(scores.device)[index]
    if task == "multiclass":
        return _accuracy(picked, truth)
    if task == "multilabel":
        return _mean_finite(roc_auc(picked[:, c], truth[:, c]) for c in range(truth.size(1)))
    if task == "regression":
        return _mean_finite(r_squared(picked[:, c], truth[:, c]) for c in range(truth.size(1)))
    raise InputError(f"task must be one of multiclass, multilabel, regression; got {task!r}.")


def loss(task: str, scores: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of ``scores`` ``[k, C]`` against ``targets`` ``[k, C]``, a scalar tensor.

    Cross-entropy for classes, binary cross-entropy for labels (mean over nodes and labels), half the mean
    squared error for regression.
    """
    if task == "multiclass":
        return F.cross_entropy(scores, targets.to(scores.dtype))
    if task == "multilabel":
        return F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype))
    return 0.5 * F.mse_loss(scores, targets.to(scores.dtype))


def roc_auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve from the ranks of the scores, ties at their mean rank; O(n log n).

    NaN labels are ignored; NaN is returned where one of the two classes is missing.
    """
    known = ~torch.isnan(labels)
    scores, positive = scores[known].double(), labels[known] > 0.5
    num_positive = int(positive.sum())
    num_negative = positive.numel() - num_positive
    if num_positive == 0 or num_negative == 0:
        return math.nan
    _, tie, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    rank = (last - (counts.double() - 1.0) / 2.0)[tie]
    above = float(rank[positive].sum()) - num_positive * (num_positive + 1) / 2.0
    return above / (num_positive * num_negative)


def r_squared(values: Tensor, truth: Tensor) -> float:
    """1 - residual over total sum of squares; NaN labels are ignored, NaN where the truth does not vary."""
    known = ~torch.isnan(truth)
    values, truth = values[known].double(), truth[known].double()
    total = float((truth - truth.mean()).square().sum()) if truth.numel() else 0.0
    return 1.0 - float((truth - values).square().sum()) / total if total > 0 else math.nan


def _accuracy(scores: Tensor, classes: Tensor) -> float:
    known = classes >= 0
    if not bool(known.any()):
        return math.nan
    return float((scores.argmax(1) == classes)[known].double().mean())


def _mean_finite(values: Iterable[float]) -> float:
    finite = [v for v in values if not math.isnan(v)]
    return sum(finite) / len(finite) if finite else math.nan
