"""The phases of an iteration, in the paper's order: W, Z, U. Every community calls each, with its own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from gfgnn.config import CommunityConfig
from gfgnn.exchange.neighbours import Neighbourhood
from gfgnn.exchange.sums import sum_over
from gfgnn.graph.propagation import Propagator
from gfgnn.problem import Problem
from gfgnn.solver.community.state import CommunityState
from gfgnn.solver.community.updates import Link, backtracked, square
from gfgnn.solver.head import loss_prox


def summed(problem: Problem, value: float) -> float:
    """The sum of a number over the communities; sends it."""
    (total,) = sum_over(problem.grid.parts, problem.y.new_tensor(value, dtype=torch.float64))
    return float(total)


def link(problem: Problem, state: CommunityState, config: CommunityConfig, index: int) -> Link:
    """The terms of block ``index``, for this community's rows."""
    if index == state.last:
        return Link(config.rho, state.z[index], 1.0, state.u, state.own_counted)
    return Link(config.nu, state.z[index], problem.model.blocks[index].slope_below)


def refit(problem: Problem, state: CommunityState, index: int) -> None:
    """``fit`` of a block from the Z below it. Sends the halo of Z W (the paper's messages p)."""
    weight, bias = state.layer(index)
    a = _product(problem, state, index, weight)
    state.fit[index] = a if bias is None else a.add_(bias)


def update_weights(problem: Problem, state: CommunityState, config: CommunityConfig) -> None:
    """A majorised step of every W (and b); no layer's depends on another's."""
    for index in state.fit:
        update_weight(problem, state, config, index)


def update_weight(problem: Problem, state: CommunityState, config: CommunityConfig, index: int) -> None:
    """W and b of a block after a majorised step for all communities' rows: what the paper's weight agent does.

    Sends two halos of the block's columns (for block 0 with sparse features only), the sums of the gradient, and a
    number for each trial of the search.
    """
    weight, bias = state.layer(index)
    terms, a = link(problem, state, config, index), state.fit[index]
    pull = terms.slope(a)
    if index == 0:
        slope = problem.inputs.adjoint(pull)
    else:
        slope = state.z[index - 1].t() @ problem.propagation.adjoint(pull)
    slope, shift = sum_over(problem.grid.parts, slope, pull.sum(0))
    slope = torch.add(slope, weight, alpha=config.ridge)
    response, squared = _product(problem, state, index, slope), square(slope)
    if bias is not None:
        response, squared = response.add_(shift), squared + square(shift)

    def value(step: float) -> float:
        fit = summed(problem, terms.value(torch.sub(a, response, alpha=step)))
        return fit + config.ridge / 2 * square(torch.sub(weight, slope, alpha=step))

    step = _step(state, config, f"W{index}", value, squared)
    state.weights[f"block{index}.weight"] = torch.sub(weight, slope, alpha=step)
    if bias is not None:
        state.weights[f"block{index}.bias"] = torch.sub(bias, shift, alpha=step)
    state.fit[index] = torch.sub(a, response, alpha=step)


def moved(problem: Problem, state: CommunityState, config: CommunityConfig, index: int) -> Tensor:
    """Z of a hidden block after a majorised step for ``nu/2 |Z - f(a)|^2`` and the terms of the block above.

    Each community searches for a step of its own as if the others stood still: it receives Z, a and U of the block
    above in the neighbours' rows (the paper's messages s), and then judges its trials without another message. With
    ``steps="joint"`` all communities take the same step, judged by their sum.
    """
    z, weight = state.z[index], state.layer(index + 1)[0]
    above, a = link(problem, state, config, index + 1), state.fit[index + 1]
    products: Neighbourhood | Propagator = problem.propagation
    judged: Callable[[float], float] = partial(summed, problem)
    if config.steps == "community":
        above, a = _around(state, above, a)
        products, judged = state.neighbourhood, float
    off = link(problem, state, config, index).apart(state.fit[index])
    slope = torch.add(products.adjoint(above.slope(a)) @ weight.t(), off, alpha=config.nu)
    response = products.apply(slope @ weight)

    def value(step: float) -> float:
        own = config.nu / 2 * square(torch.sub(off, slope, alpha=step))
        return judged(own + above.value(torch.sub(a, response, alpha=step)))

    step = _step(state, config, f"Z{index}", value, judged(square(slope)))
    return torch.sub(z, slope, alpha=step)


def update_embeddings(
    problem: Problem, state: CommunityState, config: CommunityConfig, indices: Sequence[int]
) -> None:
    """Z of some blocks, each from the others as they were, and then what the blocks above them fit."""
    hidden = [index for index in indices if index != state.last]
    found = {index: moved(problem, state, config, index) for index in hidden}
    if state.last in indices:
        found[state.last] = _scores(problem, state, config)
    state.z |= found
    for index in hidden:
        refit(problem, state, index + 1)


def update_dual(problem: Problem, state: CommunityState, config: CommunityConfig) -> None:
    """Ascent: ``U + rho (Z_L - S Z_{L-1} W_L)`` in the rows that count."""
    off = link(problem, state, config, state.last).apart(state.fit[state.last])
    state.u = torch.add(state.u, off, alpha=config.rho)


def _around(state: CommunityState, above: Link, a: Tensor) -> tuple[Link, Tensor]:
    """The same terms with those of the neighbours' rows, in one message."""
    own = [above.values, a] if above.dual is None else [above.values, a, above.dual]
    values, a, *dual = state.neighbourhood.around(torch.cat(own, dim=1)).chunk(len(own), dim=1)
    counted = None if above.counted is None else state.counted
    return Link(above.penalty, values, above.slope_below, dual[0] if dual else None, counted), a


def _scores(problem: Problem, state: CommunityState, config: CommunityConfig) -> Tensor:
    """Z_L: the proximal map of the loss at ``a - U / rho`` in labelled rows; others have no loss and take that value
    itself where they count, and a where they do not."""
    a, rows = state.fit[state.last], problem.train_index
    wanted = torch.sub(a, state.u, alpha=1 / config.rho)
    start, task = state.z[state.last][rows], problem.model.task
    found = loss_prox(task, wanted[rows], problem.targets, config.rho, start, config.scores_steps)
    return wanted.index_copy_(0, rows, found)


def _product(problem: Problem, state: CommunityState, index: int, weight: Tensor) -> Tensor:
    """``S Z_below weight``, a new array."""
    if index == 0:
        return problem.inputs.matmul(weight)
    return problem.propagation.apply(state.z[index - 1] @ weight)


def _step(
    state: CommunityState, config: CommunityConfig, name: str, value: Callable[[float], float], slope: float
) -> float:
    """1 / tau of a search that begins one trial below where the last one for the same variable ended; 0 without one."""
    first = config.first_curvature
    start = max(first, state.curvature.get(name, first) / config.backtrack)
    tau = backtracked(value, slope, start, config.backtrack)
    if tau is None:
        return 0.0
    state.curvature[name] = tau
    return 1 / tau
