"""Scores and losses against scikit-learn and by hand."""

from __future__ import annotations

import math

import pytest
import torch

from gfgnn import metrics
from gfgnn.checks import InputError

sklearn = pytest.importorskip("sklearn.metrics")


def test_accuracy_counts_known_nodes_of_the_index() -> None:
    scores = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
    y = torch.tensor([0, 0, 0, -1])
    assert metrics.score("multiclass", scores, y, torch.tensor([0, 1])) == 0.5
    assert metrics.score("multiclass", scores, y, torch.tensor([0, 2, 3])) == 1.0
    assert math.isnan(metrics.score("multiclass", scores, y, torch.tensor([3])))


@pytest.mark.parametrize("digits", [0, 1, 6])
def test_roc_auc_equals_scikit_learn_with_ties(digits: int) -> None:
    generator = torch.Generator().manual_seed(digits)
    labels = torch.randint(2, (200,), generator=generator).float()
    scores = (torch.randn(200, generator=generator) + labels).mul(10**digits).round()
    assert metrics.roc_auc(scores, labels) == pytest.approx(sklearn.roc_auc_score(labels, scores))


def test_roc_auc_leaves_unknown_labels_out() -> None:
    scores, labels = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0.0, 1.0, math.nan])
    assert metrics.roc_auc(scores, labels) == 1.0
    assert math.isnan(metrics.roc_auc(scores, torch.tensor([1.0, 1.0, math.nan])))


def test_multilabel_score_averages_labels_that_can_be_scored() -> None:
    y = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    scores = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert metrics.score("multilabel", scores, y, torch.arange(3)) == pytest.approx(0.5)


def test_r_squared_equals_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(50, 2, generator=generator)
    values = y + 0.3 * torch.randn(50, 2, generator=generator)
    expected = sklearn.r2_score(y, values)
    assert metrics.score("regression", values, y, torch.arange(50)) == pytest.approx(expected, abs=1e-6)


def test_losses() -> None:
    scores = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    one_hot = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    expected = (math.log(2) + math.log(1 + math.e**2)) / 2
    assert float(metrics.loss("multiclass", scores, one_hot)) == pytest.approx(expected)
    sigmoid = (2 * math.log(2) + 2 * math.log(1 + math.e)) / 4
    assert float(metrics.loss("multilabel", scores, one_hot)) == pytest.approx(sigmoid)
    assert float(metrics.loss("regression", scores, one_hot)) == pytest.approx((1 + 0 + 1 + 4) / 8)


def test_unknown_task() -> None:
    with pytest.raises(InputError, match="task"):
        metrics.score("ranking", torch.zeros(1, 1), torch.zeros(1), torch.zeros(1, dtype=torch.long))
