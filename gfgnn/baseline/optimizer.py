"""Adam on lists of tensors, by torch's fused kernel.

``torch.optim.Adam(fused=True)`` computes the same, but making the first one of a process imports the compiler of torch,
which takes seconds that a comparison of training times must not contain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPS = 1e-8


@dataclass(eq=False)
class Group:
    """Parameters that share a weight decay (added to the gradient, as in ``torch.optim.Adam``), and their moments."""

    parameters: list[Tensor]
    weight_decay: float
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]


def make_group(parameters: list[Tensor], weight_decay: float) -> Group:
    zeros = [torch.zeros_like(p, requires_grad=False) for p in parameters]
    steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in parameters]
    return Group(parameters, weight_decay, zeros, [torch.zeros_like(z) for z in zeros], steps)


@torch.no_grad()
def adam_step(groups: list[Group], gradients: list[list[Tensor]], lr: float) -> None:
    """One update of every group, in place (Kingma and Ba 2015)."""
    for group, grads in zip(groups, gradients, strict=True):
        torch._foreach_add_(group.steps, 1.0)
        torch._fused_adam_(
            group.parameters, grads, group.first, group.second, [], group.steps,
            lr=lr, beta1=BETAS[0], beta2=BETAS[1], weight_decay=group.weight_decay, eps=EPS,
            amsgrad=False, maximize=False,
        )  # fmt: skip
