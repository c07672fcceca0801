"""Proximal steps in closed form, elementwise: pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def activation_prox(a: Tensor, q: Tensor, slope: float, weight: float = 1.0) -> Tensor:
    """``argmin_z weight (z - a)^2 + (q - f(z))^2``, elementwise, ``f(z) = z`` where z > 0 and ``slope z`` elsewhere.

    Each branch of f leaves a parabola, whose minimum is cut off at 0 where it lies in the other branch:
    with weight 1 ``z = max((a + q) / 2, 0)`` and ``z = min((a + slope q) / (1 + slope^2), 0)``; the better of the two
    is taken. This is the z-subproblem of dlADMM (Wang et al. 2019) with both penalties equal; slope 0 is ReLU, 1 the
    identity.
    """
    wanted = a if weight == 1.0 else weight * a
    above = ((wanted + q) / (weight + 1)).clamp_(min=0)
    below = ((wanted + slope * q) / (weight + slope**2)).clamp_(max=0)
    near = ((above - a).square_() - (below - a).square_()).mul_(weight)
    gain = near + (q - above).square_() - (q - slope * below).square_()
    return torch.where(gain <= 0, above, below)
