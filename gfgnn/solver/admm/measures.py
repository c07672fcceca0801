"""What an iteration of ADMM reports: residuals, the augmented Lagrangian, scores of the embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.exchange.sums import gather_rows, sum_over
from gfgnn.model.blocks import activate, propagate, transform
from gfgnn.problem import Problem
from gfgnn.solver.admm.state import AdmmState
from gfgnn.solver.head import CURVATURE, loss_sum


def fitted(
    problem: Problem, index: int, weight: Tensor, bias: Tensor | None, below: Mapping[int, Tensor]
) -> Tensor:
    """``S p W + b`` of a block, ``[N, d]``, a new array; ``below`` has p, or the activations, by number of the block
    that they come from."""
    if index == 0:
        z = problem.inputs.matmul(weight)
        return z if bias is None else z.add_(bias)
    return transform(
        propagate(problem.model.blocks[index], problem.propagation, below[index - 1]), weight, bias
    )


def activated(problem: Problem, index: int, z: Tensor) -> Tensor:
    """f of block ``index``."""
    block = problem.model.blocks[index]
    return activate(z, block.activation, block.slope)


def measures(
    problem: Problem, state: AdmmState, before: Mapping[int, Tensor], loss: float
) -> tuple[float, dict[str, float]]:
    """Numbers about the state after an iteration. Called by every rank, all get the same; sends a few sums and, within
    the last stage, the scores of labelled nodes.

    Args:
        before: q of this stage's blocks as it was.
        loss: this rank's share of the loss.

    Returns:
        The loss, and ``primal``: ``sqrt(sum_l |p_{l+1} - q_l|_c^2)``;
        ``dual``: ``rho sqrt(sum_l |q_l - before_l|_c^2)`` (Boyd et al. 2011, section 3.3); ``lagrangian``;
        ``auxiliary_val`` and ``auxiliary_test``: scores of the embeddings, where the split has labels.
    """
    masses, grid = state.fixed.masses, problem.grid
    primal = sum(_square(state.p[index] - state.q[index], masses[index]) for index in state.z)
    moved = sum(_square(state.q[index] - old, masses[index]) for index, old in before.items())
    scores = _auxiliary(problem, state) if problem.is_last else (0.0, 0.0)
    values = [loss, primal, moved, _lagrangian(problem, state), *(scores if grid.part == 0 else (0.0, 0.0))]
    own = problem.y.new_tensor(values, dtype=torch.float64)
    (sums,) = sum_over(grid.world, own, purpose="control")
    loss, primal, moved, value, *known = sums.tolist()
    found = {"primal": primal**0.5, "dual": state.rho * moved**0.5, "lagrangian": value}
    for split, score in zip(("val", "test"), known, strict=True):
        if score == score:  # NaN: no labels
            found[f"auxiliary_{split}"] = score
    return loss, found


def _auxiliary(problem: Problem, state: AdmmState) -> tuple[float, float]:
    """Scores of the embeddings on validation and test nodes; NaN without labels. Called by the last stage."""
    scores, parts, found = auxiliary_scores(problem, state), problem.grid.parts, []
    for index in (problem.val_index, problem.test_index):
        rows, truth = (gather_rows(parts, v[index], purpose="evaluate") for v in (scores, problem.y))
        everyone = torch.arange(rows.size(0), device=rows.device)
        found.append(
            metrics.score(problem.model.task, rows, truth, everyone) if rows.size(0) else float("nan")
        )
    return found[0], found[1]


def auxiliary_scores(problem: Problem, state: AdmmState) -> Tensor:
    """What the output block makes of the embeddings p below it, ``[N, C]``: predictions for this graph's nodes only."""
    last = len(problem.model.blocks) - 1
    return fitted(problem, last, *state.layer(last), state.p)


def lagrangian(problem: Problem, state: AdmmState) -> float:
    """The augmented Lagrangian of :mod:`gfgnn.solver.admm.updates`, without the ridges. Called by every rank."""
    own = problem.y.new_tensor(_lagrangian(problem, state), dtype=torch.float64)
    return float(sum_over(problem.grid.world, own, purpose="control")[0])


def _lagrangian(problem: Problem, state: AdmmState) -> float:
    """This rank's terms of it."""
    task, k = problem.model.task, problem.facts.num_train
    nu, rho, masses, total = state.nu, state.rho, state.fixed.masses, 0.0
    if state.fixed.head is not None:
        assert state.scores is not None
        t = state.fixed.head.apply(state.p.__getitem__)
        misfit = state.scores - transform(t, *state.layer(len(problem.model.blocks) - 1))
        total += loss_sum(task, state.scores, problem.targets) / k
        total += nu / 2 * CURVATURE[task] / k * float(misfit.double().square().sum())
    for index, z in state.z.items():
        a = fitted(problem, index, *state.layer(index), state.p)
        c, q, apart = masses[index], state.q[index], state.p[index] - state.q[index]
        off = q - activated(problem, index, z)
        total += nu / 2 * (_square(z - a, c) + _square(off, c)) + rho / 2 * _square(apart, c)
        total += nu * float((c[:, None] * off * apart).double().sum())  # u = nu (q - f(z))
    return total


def _square(x: Tensor, c: Tensor) -> float:
    """``|x|_c^2``."""
    return float(c.double() @ x.double().square().sum(1))
