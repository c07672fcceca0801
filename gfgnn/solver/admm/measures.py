"""What an iteration of ADMM reports: residuals, the augmented Lagrangian, scores of the embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gfgnn.exchange.sums import sum_over
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import dual, fitted, weighted_square
from gfgnn.solver.admm.state import AdmmState
from gfgnn.solver.embeddings import embedding_accuracy

AUXILIARY = ("auxiliary_val", "auxiliary_test")


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
    known = embedding_accuracy(problem, auxiliary_scores(problem, state)) if problem.is_last else {}
    speaks = problem.is_last and grid.part == 0
    scores = [known.get(name, math.nan) if speaks else 0.0 for name in AUXILIARY]
    values = [loss, primal, moved, value, *scores]
    own = problem.y.new_tensor(values, dtype=torch.float64)
    (sums,) = sum_over(grid.world, own, purpose="control")
    loss, primal, moved, value, *scores = sums.tolist()
    found = {"primal": primal**0.5, "dual": rho * moved**0.5, "lagrangian": value, "rho": rho}
    return loss, found | {n: s for n, s in zip(AUXILIARY, scores, strict=True) if not math.isnan(s)}


def auxiliary_scores(problem: Problem, state: AdmmState) -> Tensor:
    """What the output block makes of the embeddings p below it, ``[N, C]``: predictions for this graph's nodes only."""
    last = len(problem.model.blocks) - 1
    return fitted(problem, last, *state.layer(last), state.p)
