"""What an iteration of community-based ADMM reports."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.config import CommunityConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.problem import Problem
from gfgnn.solver.community.phases import link, summed
from gfgnn.solver.community.state import CommunityState
from gfgnn.solver.community.updates import square
from gfgnn.solver.embeddings import embedding_accuracy
from gfgnn.solver.head import loss_sum


def lagrangian(problem: Problem, state: CommunityState, config: CommunityConfig) -> float:
    """The augmented Lagrangian of :mod:`gfgnn.solver.community.updates`. Called by every community."""
    return summed(problem, _lagrangian(problem, state, config))


def _lagrangian(problem: Problem, state: CommunityState, config: CommunityConfig) -> float:
    """This community's share; the ridge is the first one's."""
    scores = state.z[state.last][problem.train_index]
    total = loss_sum(problem.model.task, scores, problem.targets)
    total += sum(link(problem, state, config, index).value(a) for index, a in state.fit.items())
    if problem.grid.part == 0:
        total += config.ridge / 2 * sum(square(state.layer(index)[0]) for index in state.fit)
    return total


def measures(
    problem: Problem, state: CommunityState, config: CommunityConfig, before: Tensor, loss: float
) -> tuple[float, dict[str, float]]:
    """Numbers about the state after an iteration. Called by every community, all get the same; sends a few sums and the
    scores of labelled nodes.

    Args:
        before: Z_L as it was.
        loss: this community's share of the loss.

    Returns:
        The loss, and ``primal``: ``|Z_L - S Z_{L-1} W_L|``; ``dual``: ``rho |Z_L - before|`` (Boyd et al. 2011, section
        3.3), both over the rows that count; ``lagrangian``; ``auxiliary_val`` and ``auxiliary_test``: scores of the
        embeddings, where the split has labels.
    """
    moved = state.z[state.last] - before
    if state.own_counted is not None:
        moved = moved * state.own_counted
    primal = square(link(problem, state, config, state.last).apart(state.fit[state.last]))
    values = [loss, primal, square(moved), _lagrangian(problem, state, config)]
    own = problem.y.new_tensor(values, dtype=torch.float64)
    (sums,) = sum_over(problem.grid.parts, own, purpose="control")
    loss, primal, change, value = sums.tolist()
    found = {"primal": primal**0.5, "dual": config.rho * change**0.5, "lagrangian": value}
    found |= embedding_accuracy(problem, state.fit[state.last])
    return loss, found
