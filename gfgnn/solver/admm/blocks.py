"""The updates of one block of ADMM: p, W and b, z, q, and the dual that they imply. Every part calls, in step."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.config import AdmmConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.model.blocks import propagate, propagate_adjoint, transform
from gfgnn.ops.prox import activation_prox
from gfgnn.ops.ridge import moment_sums, moments_from, weighted_squares
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import activated, dual, fitted, weighted_square
from gfgnn.solver.admm.state import AdmmState
from gfgnn.solver.admm.updates import activation_step, copy_step, held_dual, weight_charge, weight_step
from gfgnn.solver.head import CURVATURE, loss_prox, loss_sum
from gfgnn.solver.state import Update


def update_output(problem: Problem, state: AdmmState, config: AdmmConfig) -> float:
    """p, W, b and z of the output block; this part's share of the mean loss of the embeddings' scores before."""
    settings, head = state.fixed.settings, state.fixed.head
    assert head is not None
    assert state.scores is not None
    index, task = len(problem.model.blocks) - 1, problem.model.task
    k = problem.facts.num_train
    c = CURVATURE[task] / k
    weight, bias = state.layer(index)
    t = head.apply(state.p.__getitem__)
    fit = transform(t, weight, bias)
    loss, misfit = loss_sum(task, fit, problem.targets), fit - state.scores
    ((_, pull),) = head.message(c * state.nu * misfit, weight.t())
    _update_copy(problem, state, index, weight, pull)
    t = head.apply(state.p.__getitem__)
    rows = t.new_full((t.size(0),), c)
    missing = c * (state.scores - transform(t, weight, bias))
    _update_weights(
        problem, state, index, t, rows, missing, config, ridge=settings.ridge_output,
        dropout=settings.dropout_output,
    )  # fmt: skip
    a = transform(t, *state.layer(index))
    # (1/k) loss + nu c / 2 |z - a|^2, times k
    state.scores = loss_prox(task, a, problem.targets, state.nu * CURVATURE[task], state.scores)
    left = loss_sum(task, state.scores, problem.targets) / k
    state.misfits[index] = left + state.nu / 2 * weighted_square(state.scores - a, rows)
    return loss / k


def update_hidden(
    problem: Problem, state: AdmmState, index: int, config: AdmmConfig, *, again: bool = False
) -> None:
    """p, W, b, z, q and the dual of one block below the output.

    Args:
        again: it has been updated in this iteration already; the dual only ascends once, now.
    """
    block, fixed = problem.model.blocks[index], state.fixed
    c, nu, rho = fixed.masses[index], state.nu, state.rho
    weight, bias = state.layer(index)
    if index == 0:
        assert fixed.system is not None
        r = (state.z[0] - fitted(problem, 0, weight, bias, state.p)).mul_(c[:, None])
        cross, shift = fixed.system.cross(r)
        change = fixed.system.solve(cross - fixed.system.ridge[:, None] * weight)
        _apply(state, 0, Update(change, shift - fixed.system.mean @ change if block.bias else None))
        _book_ridge(problem, state, 0, fixed.system.ridge)
        a = fitted(problem, 0, *state.layer(0), state.p)
    else:
        t = propagate(block, problem.propagation, state.p[index - 1])
        misfit = (transform(t, weight, bias) - state.z[index]).mul_(nu * c[:, None])
        pull, _ = propagate_adjoint(block, problem.propagation, misfit @ weight.t())
        _update_copy(problem, state, index, weight, pull)
        t = propagate(block, problem.propagation, state.p[index - 1])
        missing = (state.z[index] - transform(t, weight, bias)).mul_(c[:, None])
        _update_weights(problem, state, index, t, c, missing, config, ridge=fixed.settings.ridge_hidden)
        a = transform(t, *state.layer(index))
    if again:
        f = activated(problem, index, state.z[index])
        u = held_dual(state.q[index], f, state.p[index], nu, rho)
    else:
        u = dual(problem, state, index)
    if config.penalties == "convergent":  # needs a proximal term, nu/2 |z - z_before|^2
        near, weighs = (a + state.z[index]).div_(2), 2.0
    else:
        near, weighs = a, 1.0
    state.z[index] = activation_prox(near, state.q[index], block.slope_below, weighs)
    relaxed = config.over_relaxation
    p = state.p[index] if relaxed == 1.0 else relaxed * state.p[index] + (1 - relaxed) * state.q[index]
    state.q[index] = activation_step(activated(problem, index, state.z[index]), p, u, nu, rho)
    state.misfits[index] = nu / 2 * weighted_square(state.z[index] - a, c)


def _update_copy(problem: Problem, state: AdmmState, index: int, weight: Tensor, pull: Tensor) -> None:
    """p of block ``index``, from the gradient ``pull`` of its fit, not yet over the node weights. q and z of the
    block below have not changed since their dual was left."""
    c = state.fixed.masses[index - 1]
    pull = pull * inverse_of(c)[:, None]
    p, q = state.p[index - 1], state.q[index - 1]
    state.p[index - 1] = copy_step(p, q, dual(problem, state, index - 1), pull, weight, state.nu, state.rho)


def _update_weights(
    problem: Problem, state: AdmmState, index: int, t: Tensor, c: Tensor, missing: Tensor, config: AdmmConfig, *,
    ridge: float, dropout: float = 0.0,
) -> None:  # fmt: skip
    """W and b of a block above the first, of what it does not fit yet, ``missing = c (z - T W - b)``."""
    block = problem.model.blocks[index]
    own = moment_sums(t, c, missing, centred=block.bias)
    *sums, squares = sum_over(problem.grid.parts, *own, weighted_squares(t, c))
    data = moments_from(sums)
    charge = weight_charge(data, squares, ridge=ridge, dropout=dropout)
    if config.penalties == "convergent":  # one objective for the whole run
        charge = state.charges.setdefault(index, charge)
    offset = state.offset(index).double()
    _apply(state, index, weight_step(data, charge, offset, prox=config.prox, bias=block.bias))
    _book_ridge(problem, state, index, charge)


def _book_ridge(problem: Problem, state: AdmmState, index: int, charge: Tensor) -> None:
    """``nu/2 sum_ij charge_i (W - W_ref)_ij^2``, which part 0 answers for."""
    value = float(charge.double() @ state.offset(index).double().square().sum(1))
    state.ridges[index] = state.nu / 2 * value if problem.grid.part == 0 else 0.0


def _apply(state: AdmmState, index: int, update: Update) -> None:
    for kind, change in (("weight", update.weight), ("bias", update.bias)):
        if change is not None:
            name = f"block{index}.{kind}"
            state.weights[name] = state.weights[name] + change.to(state.weights[name].dtype)


def inverse_of(c: Tensor) -> Tensor:
    """``1 / c`` where a node weighs anything, else 0."""
    return torch.where(c > 0, 1.0 / c.clamp(min=torch.finfo(c.dtype).tiny), 0.0)
