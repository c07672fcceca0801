"""The closed-form updates of one layer: pure functions of tensors. Formulas and sources: docs/solver.md."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.ops.ridge import Moments, mean_diagonal, solve
from gfgnn.solver.state import Update


def head_update(
    data: Moments,
    squares: Tensor,
    weight: Tensor,
    *,
    ridge: float,
    dropout: float,
    prox: float,
    gain: float,
    bias: bool,
) -> Update:
    """One majorised Newton step of the output layer (Böhning 1992).

    ``dW = (G + R + prox kappa I)^-1 (gain * cross - R W)`` with ``R = diag(p/(1-p) sum c t^2 + ridge kappa)``;
    the bias follows from the means.
    """
    kappa = data.scale
    charge = dropout / (1 - dropout) * squares + ridge * kappa
    rhs = gain * data.cross - charge[:, None] * weight
    change = solve(data.gram, charge + prox * kappa, rhs)
    return Update(change, gain * data.shift - data.mean @ change if bias else None)


def sweep_update(
    data: Moments, offset: Tensor, *, ridge: float, prox: float, step: float, bias: bool
) -> Update:
    """A ridge step of a hidden layer: ``dW = step (G + (ridge + prox) kappa I)^-1 (T'R - ridge kappa (W - W_ref))``.

    Args:
        offset: ``W - W_ref``, ``[p, d]``.
    """
    kappa = data.scale
    change = step * solve(data.gram, (ridge + prox) * kappa, data.cross - ridge * kappa * offset)
    return Update(change, step * data.shift - data.mean @ change if bias else None)


@dataclass(frozen=True)
class PolarDirection:
    """The natural step of a layer and the matrix that makes its effect on Z white.

    Attributes:
        weight: d_0 Q ``[p, d]``, the weight change that moves every direction of Z by rms 1.
        bias: its bias, ``[d]``.
    """

    weight: Tensor
    bias: Tensor


def polar_direction(
    natural: Tensor, gradient: Tensor, shift: Tensor, mean: Tensor, floor: float
) -> PolarDirection:
    """Whitens the natural step ``natural = A^-1 s g``.

    ``F = natural'g + shift shift'`` is the second moment of the change of Z that the step makes;
    ``Q = (F + floor * mean eigenvalue * I)^-1/2`` turns it into the identity, so that no direction starves.
    """
    second = natural.t() @ gradient + torch.outer(shift, shift)
    if not bool(
        torch.isfinite(second).all()
    ):  # the eigendecomposition would raise; the safeguard goes back instead
        return PolarDirection(torch.full_like(natural, torch.nan), torch.full_like(shift, torch.nan))
    values, vectors = torch.linalg.eigh((second + second.t()) / 2)
    damped = values.clamp(min=0) + floor * values.mean().clamp(min=1e-300)
    whitener = (vectors * damped.rsqrt()) @ vectors.t()
    weight = natural @ whitener
    return PolarDirection(weight, shift @ whitener - mean @ weight)


def pass_down(weight: Tensor, rho: float, relative: bool) -> Tensor:
    """The matrix ``[d, p]`` through which row shifts of Z become row shifts of T.

    The regularised inverse ``W' (W W' + rho s I)^-1`` = ``(W'W + rho s I)^-1 W'`` of the layer, with s = 1, or the mean
    diagonal of the smaller Gram matrix where ``relative``.
    """
    w = weight.double()
    small = w.t() @ w if w.size(1) <= w.size(0) else w @ w.t()
    damping = rho * mean_diagonal(small) if relative else torch.as_tensor(rho, dtype=w.dtype)
    if w.size(1) <= w.size(0):
        return solve(small, damping, w.t().contiguous())
    return solve(small, damping, w).t()
