"""What an iteration of ADMM reports: residuals, the augmented Lagrangian, scores of the embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.exchange.sums import gather_rows, sum_over
from gfgnn.model.blocks import activate, propagate, transform
from gfgnn.problem import Problem
from gfgnn.solver.admm.state import AdmmState
from gfgnn.solver.head import CURVATURE, loss_sum


def measures(problem: Problem, state: AdmmState, before: Sequence[Tensor]) -> dict[str, float]:
    """Numbers about the state after an iteration; ``before`` is q as it was. Called by every part; sends a few sums and
    the scores of labelled nodes.

    Returns:
        ``primal``: ``sqrt(sum_l |p_{l+1} - q_l|_c^2)``; ``dual``: ``rho sqrt(sum_l |q_l - before_l|_c^2)`` (Boyd et al.
        2011, section 3.3); ``lagrangian``; ``auxiliary_val`` and ``auxiliary_test``: scores of the embeddings, where
        the split has labels.
    """
    masses, parts = state.fixed.masses, problem.grid.parts
    primal = sum(_square(p - q, c) for p, q, c in zip(state.p, state.q, masses[:-1], strict=True))
    moved = sum(_square(q - old, c) for q, old, c in zip(state.q, before, masses[:-1], strict=True))
    sums = problem.y.new_tensor([primal, moved, _lagrangian(problem, state)], dtype=torch.float64)
    primal, moved, value = sum_over(parts, sums)[0].tolist()
    found = {"primal": primal**0.5, "dual": state.rho * moved**0.5, "lagrangian": value}
    scores = auxiliary_scores(problem, state)
    for split, index in (("val", problem.val_index), ("test", problem.test_index)):
        rows, truth = (gather_rows(parts, v[index], purpose="evaluate") for v in (scores, problem.y))
        if rows.size(0):
            everyone = torch.arange(rows.size(0), device=rows.device)
            found[f"auxiliary_{split}"] = metrics.score(problem.model.task, rows, truth, everyone)
    return found


def auxiliary_scores(problem: Problem, state: AdmmState) -> Tensor:
    """What the output block makes of the embeddings p below it, ``[N, C]``: predictions for this graph's nodes only."""
    return transform(
        propagate(problem.model.blocks[-1], problem.propagation, state.p[-1]), *_of(state, len(state.q))
    )


def lagrangian(problem: Problem, state: AdmmState) -> float:
    """The augmented Lagrangian of :mod:`gfgnn.solver.admm.updates`, without the ridges. Called by every part."""
    own = problem.y.new_tensor(_lagrangian(problem, state), dtype=torch.float64)
    return float(sum_over(problem.grid.parts, own)[0])


def _lagrangian(problem: Problem, state: AdmmState) -> float:
    """This part's terms of it."""
    blocks, task, k = problem.model.blocks, problem.model.task, problem.facts.num_train
    nu, rho, masses = state.nu, state.rho, state.fixed.masses
    t = state.fixed.head.apply(lambda _: state.p[-1])
    misfit = state.scores - transform(t, *_of(state, len(state.q)))
    total = loss_sum(task, state.scores, problem.targets) / k
    total += nu / 2 * CURVATURE[task] / k * float(misfit.double().square().sum())
    for index, (z, q, p) in enumerate(zip(state.z, state.q, state.p, strict=True)):
        weight, bias = _of(state, index)
        if index == 0:
            a = problem.inputs.matmul(weight)
            a = a if bias is None else a + bias
        else:
            a = transform(propagate(blocks[index], problem.propagation, state.p[index - 1]), weight, bias)
        c, off = masses[index], q - activate(z, blocks[index].activation)
        total += nu / 2 * (_square(z - a, c) + _square(off, c)) + rho / 2 * _square(p - q, c)
        total += nu * float((c[:, None] * off * (p - q)).double().sum())  # u = nu (q - f(z))
    return total


def _of(state: AdmmState, index: int) -> tuple[Tensor, Tensor | None]:
    return state.weights[f"block{index}.weight"], state.weights.get(f"block{index}.bias")


def _square(x: Tensor, c: Tensor) -> float:
    """``|x|_c^2``."""
    return float(c.double() @ x.double().square().sum(1))
