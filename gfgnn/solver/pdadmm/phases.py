"""The phases of an iteration, in the paper's order: p, W, b, z, q, u.

Within a phase a layer looks only at what the phases before have left (and at no other layer's outcome of the same
phase), so that all layers could run at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.config import PdadmmConfig
from gfgnn.model.blocks import transform
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import activated
from gfgnn.solver.admm.updates import activation_step
from gfgnn.solver.head import loss_prox
from gfgnn.solver.pdadmm.state import PdadmmState
from gfgnn.solver.pdadmm.updates import Grid, copy_step, hidden_step, weight_step


def grid_of(config: PdadmmConfig, *, q: bool = False) -> Grid | None:
    """Where p (or q) may lie; None anywhere."""
    if not (config.quantise_q if q else config.quantise):
        return None
    return Grid(config.grid_low, config.grid_high, config.grid_points)


def update_p(state: PdadmmState, config: PdadmmConfig) -> None:
    """A majorised step of every copy; none where the step would leave the grid it lies on."""
    for index, above in state.links():
        weight, bias = state.layer(above)
        p = state.p[index]
        state.p[index] = copy_step(
            p, state.q[index], state.u[index], transform(p, weight, bias) - state.z[above], weight,
            nu=state.nu, rho=state.rho, start=config.first_curvature, factor=config.backtrack,
            grid=grid_of(config),
        )  # fmt: skip


def update_weights(state: PdadmmState, config: PdadmmConfig) -> None:
    """A majorised step of every W, and what the layers fit with it."""
    below = {above: state.p[index] for index, above in state.links()}
    for index in state.active:
        weight, bias = state.layer(index)
        fit = state.fit[0] if index == 0 else transform(below[index], weight, bias)
        misfit = fit - state.z[index]
        slope = state.inputs.adjoint(misfit) if index == 0 else below[index].t() @ misfit
        slope = slope.mul_(state.nu).add_(weight, alpha=config.ridge)
        response = state.inputs.matmul(slope) if index == 0 else below[index] @ slope
        theta = weight_step(
            slope, response, nu=state.nu, ridge=config.ridge, start=config.first_curvature,
            factor=config.backtrack,
        )  # fmt: skip
        state.weights[f"block{index}.weight"] = weight - slope / theta
        state.fit[index] = fit.sub_(response.div_(theta)) if index else fit - response / theta


def update_biases(state: PdadmmState) -> None:
    """b, exactly: the mean of ``z - p W``."""
    for index in state.active:
        bias = state.layer(index)[1]
        if bias is not None:
            change = (state.z[index] - state.fit[index]).mean(0)
            state.weights[f"block{index}.bias"] = bias + change
            state.fit[index] = state.fit[index] + change


def update_z(problem: Problem, state: PdadmmState, config: PdadmmConfig) -> None:
    """Hidden layers exactly, by branches. The output's labelled rows by the proximal map of the loss, from where they
    are; its other rows have no loss and take what the layer fits."""
    for index in state.active[:-1]:
        block = problem.model.blocks[index]
        state.z[index] = hidden_step(state.fit[index], state.q[index], state.z[index], block.slope_below)
    last, rows = state.active[-1], state.labelled
    z = state.fit[last].clone()
    z[rows] = loss_prox(
        problem.model.task, z[rows], problem.targets, state.nu, state.z[last][rows], config.scores_steps
    )
    state.z[last] = z


def update_q(problem: Problem, state: PdadmmState, config: PdadmmConfig) -> None:
    """q, exactly; on a grid the value nearest to it, which is optimal there, since q's curvature is the same in all
    directions."""
    grid = grid_of(config, q=True)
    for index, _ in state.links():
        f = activated(problem, index, state.z[index])
        q = activation_step(f, state.p[index], state.u[index], state.nu, state.rho)
        state.q[index] = q if grid is None else grid.nearest(q)


def update_u(state: PdadmmState) -> None:
    """Ascent: ``u + rho (p - q)``."""
    for index, _ in state.links():
        state.u[index] = state.u[index] + state.rho * (state.p[index] - state.q[index])


def embed(problem: Problem, state: PdadmmState, config: PdadmmConfig) -> None:
    """Sets z, q and p to the network's own embeddings, rounded to the grid where there is one, and the duals to 0."""
    p_grid, q_grid = grid_of(config), grid_of(config, q=True)
    weight, bias = state.layer(0)
    fit = state.inputs.matmul(weight)
    state.fit[0] = fit if bias is None else fit.add_(bias)
    state.z[0] = state.fit[0].clone()
    for index, above in state.links():
        h = activated(problem, index, state.z[index])
        state.q[index] = h.clone() if q_grid is None else q_grid.nearest(h)
        state.p[index] = h.clone() if p_grid is None else p_grid.nearest(h)
        state.u[index] = torch.zeros_like(h)
        state.fit[above] = transform(state.p[index], *state.layer(above))
        state.z[above] = state.fit[above].clone()


def network_scores(problem: Problem, state: PdadmmState) -> Tensor:
    """Scores of the network on the labelled rows, ``[k, C]``."""
    h = state.fit[0][state.labelled]
    for index, above in state.links():
        h = transform(activated(problem, index, h), *state.layer(above))
    return h
