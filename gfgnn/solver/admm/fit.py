"""What blocks make of the variables below them, and the dual."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gfgnn.model.blocks import activate, propagate, transform
from gfgnn.problem import Problem
from gfgnn.solver.admm.state import AdmmState


def fitted(
    problem: Problem, index: int, weight: Tensor, bias: Tensor | None, below: Mapping[int, Tensor]
) -> Tensor:
    """``S p W + b`` of a block, ``[N, d]``, a new array; ``below`` has p, or the activations, by number of the block
    that they come from."""
    if index == 0:
        z = problem.inputs.matmul(weight)
        return z if bias is None else z.add_(bias)
    block, h = problem.model.blocks[index], below[index - 1]
    if block.out_channels < block.in_channels:  # the narrower product
        z = propagate(block, problem.propagation, h @ weight)
        return z if bias is None else z.add_(bias)
    return transform(propagate(block, problem.propagation, h), weight, bias)


def activated(problem: Problem, index: int, z: Tensor) -> Tensor:
    """f of block ``index``."""
    block = problem.model.blocks[index]
    return activate(z, block.activation, block.slope)


def dual(problem: Problem, state: AdmmState, index: int) -> Tensor:
    """u of ``p_{l+1} = q_l``: ``nu (q - f(z))``, which is what the last update of q left."""
    if index < problem.span.start:
        assert state.sent_dual is not None
        return state.sent_dual
    return (state.q[index] - activated(problem, index, state.z[index])).mul_(state.nu)


def weighted_square(x: Tensor, c: Tensor) -> float:
    """``|x|_c^2 = sum_i c_i |x_i|^2``."""
    return float(c.double() @ x.double().square().sum(1))
