"""Losses and scores of the network on each split."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.exchange.sums import gather_rows, sum_over
from gfgnn.forward import stage_forward
from gfgnn.problem import Problem, training_targets

SPLITS = ("train", "val", "test")


def evaluate(problem: Problem, weights: dict[str, Tensor]) -> dict[str, float | None]:
    """``loss``, ``val_loss`` and the scores of ``train``, ``val`` and ``test``; None where a split has no label.

    Called by every rank with the weights of its own blocks; every rank gets the same values. Beyond the forward pass it
    sends a few numbers or, where the score is not a mean over nodes, the scores of labelled nodes.
    """
    with torch.inference_mode():
        scores = stage_forward(problem, weights)
        if problem.model.task == "multiclass":
            values = _means(problem, scores)
        else:
            values = _of_all_rows(problem, scores)
    # a loss that is not a number shows that training has diverged; no labels show in the score alone
    known = {name: None if math.isnan(value) else value for name, value in values.items()}
    return (
        known | {"loss": values["loss"]} | ({"val_loss": values["val_loss"]} if problem.facts.num_val else {})
    )


def _means(problem: Problem, scores: Tensor | None) -> dict[str, float]:
    """Means over nodes are sums over parts."""
    sums = torch.zeros(3, len(SPLITS), dtype=torch.float64, device=problem.device)
    if scores is not None:
        for column, index in enumerate(_indices(problem)):
            picked, truth = scores[index], problem.y[index]
            losses = torch.nn.functional.cross_entropy(picked, truth, reduction="none")
            right = picked.argmax(1) == truth
            sums[:, column] = torch.stack([losses.double().sum(), right.double().sum(), _count(right)])
    (sums,) = sum_over(problem.grid.world, sums, purpose="evaluate")
    losses, right, count = sums  # 0 / 0 is NaN: a split without labels
    shares = dict(zip(SPLITS, (right / count).tolist(), strict=True))
    return {"loss": float(losses[0] / count[0]), "val_loss": float(losses[1] / count[1]), **shares}


def _of_all_rows(problem: Problem, scores: Tensor | None) -> dict[str, float]:
    """Ranks and squares need the scores of all labelled nodes in one place: every part of the last stage."""
    task, parts = problem.model.task, problem.grid.parts
    values = torch.zeros(2 + len(SPLITS), dtype=torch.float64, device=problem.device)
    if scores is not None:
        found = []
        for index in _indices(problem):
            picked, truth = (
                gather_rows(parts, rows[index], purpose="evaluate") for rows in (scores, problem.y)
            )
            targets = training_targets(problem.model, truth)
            some = torch.arange(truth.size(0))
            value = metrics.score(task, picked, truth, some) if truth.size(0) else math.nan
            loss = float(metrics.loss(task, picked, targets)) if truth.size(0) else math.nan
            found.append((loss, value))
        if problem.grid.part == 0:
            values = values.new_tensor([found[0][0], found[1][0], *(value for _, value in found)])
    (values,) = sum_over(problem.grid.world, values, purpose="evaluate")
    return dict(zip(("loss", "val_loss", *SPLITS), values.tolist(), strict=True))


def _indices(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    return problem.train_index, problem.val_index, problem.test_index


def _count(rows: Tensor) -> Tensor:
    return rows.new_tensor(rows.numel(), dtype=torch.float64)
