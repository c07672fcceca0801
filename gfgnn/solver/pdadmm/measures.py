"""What an iteration of pdADMM-G reports."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gfgnn.config import PdadmmConfig
from gfgnn.model.blocks import transform
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import activated
from gfgnn.solver.embeddings import embedding_accuracy
from gfgnn.solver.head import loss_sum
from gfgnn.solver.pdadmm.state import PdadmmState
from gfgnn.solver.pdadmm.updates import square


def lagrangian(problem: Problem, state: PdadmmState, config: PdadmmConfig) -> float:
    """The augmented Lagrangian of :mod:`gfgnn.solver.pdadmm.updates` over the active layers."""
    last = state.active[-1]
    total = loss_sum(problem.model.task, state.z[last][state.labelled], problem.targets)
    below = {above: state.p[index] for index, above in state.links()}
    for index in state.active:
        weight, bias = state.layer(index)
        fit = state.fit[0] if index == 0 else transform(below[index], weight, bias)
        total += state.nu / 2 * square(state.z[index] - fit) + config.ridge / 2 * square(weight)
    for index, _ in state.links():
        off = state.q[index] - activated(problem, index, state.z[index])
        apart = state.p[index] - state.q[index]
        total += state.nu / 2 * square(off) + state.rho / 2 * square(apart)
        total += float((state.u[index] * apart).double().sum())
    return total


def measures(
    problem: Problem, state: PdadmmState, config: PdadmmConfig, before: Mapping[int, Tensor]
) -> dict[str, float]:
    """``primal`` ``sqrt(sum_l |p_{l+1} - q_l|^2)``; ``dual`` ``rho sqrt(sum_l |q_l - before_l|^2)`` (Boyd et al. 2011,
    section 3.3); ``lagrangian``; ``layers``, ``nu`` and ``rho`` as they are now; and, where embeddings of all nodes are
    variables, ``auxiliary_val`` and ``auxiliary_test``: scores of the embeddings.

    Args:
        before: q of the active blocks before the iteration.
    """
    primal = sum(square(state.p[index] - state.q[index]) for index, _ in state.links())
    moved = sum(square(state.q[index] - old) for index, old in before.items())
    found = {
        "primal": primal**0.5, "dual": state.rho * moved**0.5, "lagrangian": lagrangian(problem, state, config),
        "layers": float(len(state.active)), "nu": state.nu, "rho": state.rho,
    }  # fmt: skip
    if config.nodes == "all":
        found |= embedding_accuracy(problem, state.fit[state.active[-1]])
    return found
