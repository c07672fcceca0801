"""Conjugate gradients for many right-hand sides."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def conjugate_gradient(
    product: Callable[[Tensor], Tensor],
    rhs: Tensor,
    diagonal: Tensor,
    iterations: int,
    tolerance: float = 1e-3,
) -> Tensor:
    """Solves ``A x = rhs`` for every column of ``rhs`` ``[p, d]``, preconditioned by A's ``diagonal`` ``[p]``.

    A (symmetric positive definite) is given by its ``product`` with a ``[p, d]`` matrix. Stops after ``iterations`` or
    when every column's preconditioned residual has fallen by ``tolerance``. Hestenes and Stiefel 1952.
    """
    tiny = torch.finfo(rhs.dtype).tiny
    x = torch.zeros_like(rhs)
    residual = rhs.clone()
    z = residual / diagonal[:, None]
    direction = z.clone()
    energy = (residual * z).sum(0)
    target = tolerance**2 * energy
    for _ in range(iterations):
        image = product(direction)
        step = energy / (direction * image).sum(0).clamp(min=tiny)
        x.addcmul_(direction, step.expand_as(direction))
        residual.addcmul_(image, step.expand_as(image), value=-1.0)
        z = residual / diagonal[:, None]
        new_energy = (residual * z).sum(0)
        if bool((new_energy <= target).all()):
            break
        direction = z.addcmul_(direction, (new_energy / energy.clamp(min=tiny)).expand_as(direction))
        energy = new_energy
    return x
