"""How good scores are: one number per task, higher is better, and the training loss."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gfgnn.checks import InputError

#: what :func:`score` measures, in tables, pictures and ``result.json``
NAMES = {"multiclass": "accuracy", "multilabel": "ROC-AUC", "regression": "R²"}


def score(task: str, scores: Tensor, y: Tensor, index: Tensor) -> float:
    """The quality of ``scores`` on the nodes ``index``; what results call accuracy.

    Args:
        task: ``multiclass``: the share of right classes; ``multilabel``: ROC-AUC averaged over the labels that
            have both a positive and a negative among ``index``; ``regression``: R-squared, averaged over the
            outputs.
        scores: ``[N, C]`` logits (or values) of all nodes.
        y: labels of all nodes, as in :class:`gfgnn.graph.graph.Graph`; unknown ones, and unknown entries of a
            node's labels, are left out.
        index: node ids to score.

    Returns:
        The score, NaN where ``index`` holds no known label.
    """
    index = index.to(scores.device)
    picked, truth = scores[index], y.to(scores.device)[index]
    if task == "multiclass":
        return _accuracy(picked, truth)
    columns = zip(picked.t().contiguous(), truth.t().contiguous(), strict=True)
    if task == "multilabel":
        return _mean_finite(roc_auc(values, labels) for values, labels in columns)
    if task == "regression":
        return _mean_finite(r_squared(values, labels) for values, labels in columns)
    raise InputError(f"task must be one of multiclass, multilabel, regression; got {task!r}.")


def loss(task: str, scores: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of ``scores`` ``[k, C]`` against ``targets`` ``[k, C]``, a scalar tensor.

    Cross-entropy for classes, binary cross-entropy for labels, half the squared error for regression; the latter two in
    the mean over the known entries, those that are not NaN.
    """
    if task == "multiclass":
        return F.cross_entropy(scores, targets.to(scores.dtype))
    known = ~torch.isnan(targets)
    targets = torch.where(known, targets, 0.0).to(scores.dtype)
    if task == "multilabel":
        entries = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    else:
        entries = 0.5 * (scores - targets).square()
    return torch.where(known, entries, 0.0).sum() / known.sum()


def roc_auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve: the share of pairs of a positive and a negative whose positive has the higher score,
    ties as half; O(n log n).

    NaN labels are ignored; NaN is returned where one of the two classes is missing.
    """
    known = ~torch.isnan(labels)
    # numpy sorts several times faster than torch here
    values, positive = scores[known].cpu().numpy(), (labels[known] > 0.5).cpu().numpy()
    above, below = values[positive], values[~positive]
    if not above.size or not below.size:
        return math.nan
    if above.size > below.size:  # the fewer are looked up among the more
        return 1.0 - _share_above(below, above)
    return _share_above(above, below)


def _share_above(few: NDArray[np.floating], many: NDArray[np.floating]) -> float:
    """The share of all pairs with a higher value in ``few`` than in ``many``, ties as half."""
    few, many = np.sort(few), np.sort(many)
    twice = np.searchsorted(many, few, "left") + np.searchsorted(many, few, "right")
    return float(twice.sum()) / (2.0 * few.size * many.size)


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
