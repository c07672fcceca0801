"""The ridge system of the first block, set up once: its inputs and node weights never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn.model.inputs import Inputs
from gfgnn.ops.cg import conjugate_gradient
from gfgnn.ops.ridge import factor

#: Features above which the Gram matrix is never formed and conjugate gradients solve the system.
GRAM_LIMIT = 4096
CG_ITERATIONS = 12


@dataclass(frozen=True, eq=False)
class InputSystem:
    """``(T'CT - s m m' + diag(damping))^-1`` for T the propagated features and C the node weights of block 0.

    Attributes:
        mean: m ``[fan_in]``, zeros where the block has no bias.
        total: s.
        ridge: ``[fan_in]``, what the weights themselves are charged.
        damping: ``[fan_in]``, the ridge and the proximal term.
        scale: mean diagonal of the centred Gram matrix.
        lower: Cholesky factor, or None where conjugate gradients are used.
        diagonal: of the whole matrix, the preconditioner of conjugate gradients.
    """

    inputs: Inputs
    c: Tensor
    mean: Tensor
    total: Tensor
    ridge: Tensor
    damping: Tensor
    scale: Tensor
    lower: Tensor | None
    diagonal: Tensor

    def cross(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """``T'r - s m rbar'`` ``[fan_in, d]`` and ``rbar`` ``[d]`` for weighted shifts ``r`` ``[N, d]``."""
        shift = r.sum(0) / self.total
        return self.inputs.adjoint(r).sub_(self.total * torch.outer(self.mean, shift)), shift

    def solve(self, rhs: Tensor) -> Tensor:
        """The system's solution for ``rhs`` ``[fan_in, d]``."""
        if self.lower is not None:
            return torch.cholesky_solve(rhs, self.lower)
        return conjugate_gradient(self._product, rhs, self.diagonal, CG_ITERATIONS)

    def _product(self, w: Tensor) -> Tensor:
        z = self.inputs.matmul(w).mul_(self.c[:, None])
        centre = self.total * torch.outer(self.mean, self.mean @ w)
        return self.inputs.adjoint(z).sub_(centre).add_(self.damping[:, None] * w)


def make_input_system(
    inputs: Inputs, c: Tensor, *, centred: bool, ridge: float, dropout: float, prox: float
) -> InputSystem:
    """Sets the system up.

    The ridge of feature j is ``p/(1-p) sum_i c_i T_ij^2`` (closed-form dropout: the expected square of the noise that
    dropping features with probability p adds) plus ``ridge + prox`` times the mean diagonal.
    """
    options: dict[str, Any] = {"dtype": c.dtype, "device": c.device}
    total = c.sum().clamp(min=torch.finfo(c.dtype).tiny)  # where no row counts, all means are zero
    squares = inputs.square_sums(c)
    mean = inputs.adjoint(c[:, None]).squeeze(1) / total if centred else torch.zeros(inputs.fan_in, **options)
    centred_squares = (squares - total * mean.square()).clamp(min=0)
    scale = centred_squares.mean().clamp(min=torch.finfo(c.dtype).tiny)
    charge = dropout / (1 - dropout) * squares + ridge * scale
    damping = charge + prox * scale
    lower = None
    if inputs.fan_in <= GRAM_LIMIT:
        gram = inputs.gram(c).sub_(total * torch.outer(mean, mean))
        lower = factor(gram, damping)
    return InputSystem(inputs, c, mean, total, charge, damping, scale, lower, centred_squares + damping)
