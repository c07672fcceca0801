"""The closed-form updates of ADMM and the function they minimise: pure functions of tensors.

With row weights c and ``|x|_c^2 = sum_i c_i |x_i|^2``, the augmented Lagrangian is, in the notation of pdADMM-G (Wang
et al. 2021) and with true propagation ``T_l = S p_l``,

    mean loss(z_B) + nu/2 |z_B - T_B W_B - b_B|^2                                      over the labelled rows
    + sum_l nu/2 |z_l - T_l W_l - b_l|_c^2 + nu/2 |q_l - f(z_l)|_c^2                   l below the output
    + sum_l <u_l, p_{l+1} - q_l>_c + rho/2 |p_{l+1} - q_l|_c^2 .

Every update minimises it, or a majoriser of it that touches it, over one variable.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.ops.ridge import Moments, solve
from gfgnn.solver.state import Update


def copy_step(p: Tensor, q: Tensor, u: Tensor, pull: Tensor, weight: Tensor, nu: float, rho: float) -> Tensor:
    """p after one majorised step: ``p - (pull + u + rho (p - q)) (nu W W' + rho I)^-1``.

    The fit of the block above, ``nu/2 |z - S p W - b|_c^2``, curves by no more than ``nu W W'`` for rows weighted by
    ``carry(c)`` (:meth:`gfgnn.graph.propagation.Propagation.carry`), so no line search is needed.

    Args:
        pull: the gradient of that fit in p over the node weights of p, ``[N, d]``.
        weight: W ``[d, d']``.
    """
    w = weight.double()
    curvature = nu * (w @ w.t())
    curvature.diagonal().add_(rho)
    slope = pull + u + rho * (p - q)
    return p - slope @ torch.linalg.inv(curvature).to(p.dtype)


def activation_step(f: Tensor, p: Tensor, u: Tensor, nu: float, rho: float) -> Tensor:
    """q, exactly: ``(nu f(z) + rho p + u) / (nu + rho)``. The dual after it is ``u + rho (p - q) = nu (q - f(z))``."""
    return torch.add(u, f, alpha=nu).add_(p, alpha=rho).div_(nu + rho)


def held_dual(q: Tensor, f: Tensor, p: Tensor, nu: float, rho: float) -> Tensor:
    """The dual with which :func:`activation_step` came to q, before it ascends: ``(nu + rho) q - nu f(z) - rho p``."""
    return torch.sub((nu + rho) * q, f, alpha=nu).sub_(p, alpha=rho)


def weight_charge(data: Moments, squares: Tensor, *, ridge: float, dropout: float) -> Tensor:
    """The diagonal of R, ``[fan_in]``: ``p/(1-p) sum_i c_i t_ij^2 + ridge kappa``, the closed form of dropout with
    probability p on T, and the ridge.

    Args:
        data: moments of T.
        squares: ``sum_i c_i t_ij^2``, ``[fan_in]``.
    """
    return dropout / (1 - dropout) * squares + ridge * data.scale


def weight_step(data: Moments, charge: Tensor, offset: Tensor, *, prox: float, bias: bool) -> Update:
    """The change of W and b: a centred ridge regression of what the block does not fit yet,
    ``dW = (G + R + prox kappa I)^-1 (T'CE - R (W - W_ref))``.

    Args:
        data: moments of T and the weighted misfit ``c (z - T W - b)``.
        charge: the diagonal of R.
        offset: ``W - W_ref``.
    """
    change = solve(data.gram, charge + prox * data.scale, data.cross - charge[:, None] * offset)
    return Update(change, data.shift - data.mean @ change if bias else None)
