"""The ridge system of the first block, set up once: its inputs and node weights never change."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.exchange.sums import sum_over
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
        parts: the ranks that hold the other rows of T and C; they must make the same calls.
        mean: m ``[fan_in]``, zeros where the block has no bias.
        total: s.
        ridge: ``[fan_in]``, what the weights themselves are charged.
        damping: ``[fan_in]``, the ridge and the proximal term.
        scale: mean diagonal of the centred Gram matrix.
        lower: Cholesky factor, or None where conjugate gradients are used.
        diagonal: of the whole matrix, the preconditioner of conjugate gradients.
    """

    inputs: Inputs
    parts: Communicator
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
        cross, shift = sum_over(self.parts, self.inputs.adjoint(r), r.sum(0))
        shift = shift / self.total
        return cross - self.total * torch.outer(self.mean, shift), shift

    def solve(self, rhs: Tensor) -> Tensor:
        """The system's solution for ``rhs`` ``[fan_in, d]``."""
        if self.lower is not None:
            return torch.cholesky_solve(rhs, self.lower)
        return conjugate_gradient(self._product, rhs, self.diagonal, CG_ITERATIONS)

    def _product(self, w: Tensor) -> Tensor:
        z = self.inputs.matmul(w).mul_(self.c[:, None])
        centre = self.total * torch.outer(self.mean, self.mean @ w)
        (image,) = sum_over(self.parts, self.inputs.adjoint(z))
        return image - centre + self.damping[:, None] * w


def make_input_system(
    inputs: Inputs,
    c: Tensor,
    parts: Communicator,
    *,
    centred: bool,
    ridge: float,
    dropout: float,
    prox: float,
) -> InputSystem:
    """Sets the system up. Called by every part of the first stage; sends the Gram matrix and a few columns.

    The ridge of feature j is ``p/(1-p) sum_i c_i T_ij^2`` (closed-form dropout: the expected square of the noise that
    dropping features with probability p adds) plus ``ridge + prox`` times the mean diagonal.
    """
    setting_up = inputs.for_purpose("setup")
    own_sums = setting_up.square_sums(c), setting_up.adjoint(c[:, None]).squeeze(1), c.sum()
    squares, weighted, total = sum_over(parts, *own_sums, purpose="setup")
    total = total.clamp(min=torch.finfo(c.dtype).tiny)  # where no row counts, all means are zero
    mean = weighted / total if centred else torch.zeros_like(weighted)
    centred_squares = (squares - total * mean.square()).clamp(min=0)
    scale = centred_squares.mean().clamp(min=torch.finfo(c.dtype).tiny)
    charge = dropout / (1 - dropout) * squares + ridge * scale
    damping = charge + prox * scale
    lower = None
    if inputs.fan_in <= GRAM_LIMIT:
        (gram,) = sum_over(parts, setting_up.gram(c), purpose="setup")
        lower = factor(gram - total * torch.outer(mean, mean), damping)
    return InputSystem(
        inputs, parts, c, mean, total, charge, damping, scale, lower, centred_squares + damping
    )
