"""The steps of pdADMM-G: pure functions of tensors.

With rows for nodes, so that ``p W + b`` is the paper's ``W p + b`` transposed, the augmented Lagrangian is

    R(z_L; y) + nu/2 sum_{l<=L} |z_l - p_l W_l - b_l|^2 + nu/2 sum_{l<L} |q_l - f(z_l)|^2
    + sum_{l<L} <u_l, p_{l+1} - q_l> + rho/2 |p_{l+1} - q_l|^2        [+ ridge/2 sum_l |W_l|^2]

(Wang et al. 2021, arXiv 2105.09837, section III; the ridge is in the authors' program only).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfgnn.ops.prox import activation_prox


@dataclass(frozen=True)
class Grid:
    """The set Delta of values that quantised variables take: ``points`` of them, even, from ``low`` to ``high``."""

    low: float
    high: float
    points: int

    def nearest(self, x: Tensor) -> Tensor:
        """The value of the grid that is closest, elementwise."""
        step = (self.high - self.low) / (self.points - 1)
        return ((x - self.low) / step).round_().clamp_(0, self.points - 1).mul_(step).add_(self.low)


def square(x: Tensor) -> float:
    """``|x|_F^2``."""
    return float(x.double().square().sum())


def backtracked(curved: float, slope: float, start: float, factor: float) -> float:
    """tau, by backtracking: ``start`` times ``factor``, as often as it takes until ``phi(p - g / tau)`` is not above
    the majoriser ``phi(p) - |g|^2 / (2 tau)``.

    For a quadratic phi with Hessian H that is ``g' H g <= tau |g|^2``, so that trials cost nothing.

    Args:
        curved: ``g' H g``.
        slope: ``|g|^2``.
    """
    tau = start
    while curved > tau * slope:
        tau *= factor
    return tau


def copy_step(
    p: Tensor, q: Tensor, u: Tensor, misfit: Tensor, weight: Tensor, *, nu: float, rho: float, start: float,
    factor: float, grid: Grid | None = None,
) -> Tensor:  # fmt: skip
    """p after a majorised step, ``p - g / tau`` with ``g = nu (p W + b - z) W' + u + rho (p - q)``.

    With a grid, the nearest values of it: the minimiser of the majoriser there (pdADMM-G-Q). Never raises phi, if p
    lies on the grid.

    Args:
        misfit: ``p W + b - z`` ``[N, d']``.
    """
    slope = (misfit @ weight.t()).mul_(nu).add_(u).add_(p, alpha=rho).sub_(q, alpha=rho)
    if grid is None:
        curved = nu * square(slope @ weight) + rho * square(slope)
        return p - slope / backtracked(curved, square(slope), start, factor)
    tau = max(start, rho)
    while True:
        found = grid.nearest(p - slope / tau)
        moved = found - p
        if not nu * square(moved @ weight) + rho * square(moved) > tau * square(moved):
            return found
        tau *= factor


def weight_step(
    slope: Tensor, response: Tensor, *, nu: float, ridge: float, start: float, factor: float
) -> float:
    """theta of the step ``W - g / theta`` with ``g = nu p' (p W + b - z) + ridge W``.

    Args:
        slope: g.
        response: ``p g``.
    """
    curved = nu * square(response) + ridge * square(slope)
    return backtracked(curved, square(slope), start, factor)


def hidden_step(a: Tensor, q: Tensor, z: Tensor, slope: float) -> Tensor:
    """``argmin (z - a)^2 + (q - f(z))^2 + (z - z_old)^2``, ``a = p W + b``: z of a hidden layer, exactly.

    The last, proximal term is the paper's (its eq. for z_l, as in dlADMM).
    """
    return activation_prox((a + z).div_(2), q, slope, weight=2.0)
