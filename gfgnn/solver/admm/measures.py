"""What an iteration of ADMM reports: residuals, the augmented Lagrangian, scores of the embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.exchange.sums import gather_rows, sum_over
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import dual, fitted, weighted_square
from gfgnn.solver.admm.state import AdmmState


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
        ``dual``: ``rho sqrt(sum_l |q_l - before_l|_c^2)`` (Boyd et al. 2011, section 3.3); ``lagrangian``, with
        the ridges, and ``rho``;
        ``auxiliary_val`` and ``auxiliary_test``: scores of the embeddings, where the split has labels.
    """
    masses, grid, rho = state.fixed.masses, problem.grid, state.rho
    links = range(
        max(0, problem.span.start - 1), problem.span.stop - 1
    )  # the stage above a copy answers for it
    apart = {index: state.p[index] - state.q[index] for index in links}
    primal = sum(weighted_square(p, masses[index]) for index, p in apart.items())
    moved = sum(weighted_square(state.q[index] - old, masses[index]) for index, old in before.items())
    value = sum(state.misfits.values()) + sum(state.ridges.values())
    for index, p in apart.items():
        c, u = masses[index], dual(problem, state, index)  # u = nu (q - f(z))
        value += weighted_square(u, c) / (2 * state.nu) + rho / 2 * weighted_square(p, c)
        value += float((c[:, None] * u * p).double().sum())
    scores = _auxiliary(problem, state) if problem.is_last else (0.0, 0.0)
    values = [loss, primal, moved, value, *(scores if grid.part == 0 else (0.0, 0.0))]
    own = problem.y.new_tensor(values, dtype=torch.float64)
    (sums,) = sum_over(grid.world, own, purpose="control")
    loss, primal, moved, value, *known = sums.tolist()
    found = {"primal": primal**0.5, "dual": rho * moved**0.5, "lagrangian": value, "rho": rho}
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
