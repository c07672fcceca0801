"""Sums over the parts of a graph within a derivative, and batch normalisation by them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gfgnn.comm.base import Communicator
from gfgnn.exchange.sums import sum_over
from gfgnn.problem import Problem

#: what sums over the parts are booked under that only backprop needs
PURPOSE = "weights"


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Communicator, x: Tensor) -> Tensor:
        ctx.comm = comm
        return sum_over(comm, x, purpose=PURPOSE)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, sum_over(ctx.comm, grad, purpose=PURPOSE)[0]


def total(comm: Communicator, x: Tensor) -> Tensor:
    """The sum of ``x`` over the ranks of ``comm``, on each.

    The loss is the sum of what all ranks call theirs, and each of them uses the sum: the derivative by ``x`` is the sum
    of all ranks' derivatives by it. Called by every rank, forward and backward; sends ``x`` and its like.
    """
    return _Total.apply(comm, x)


def batch_norm(
    z: Tensor,
    running: tuple[Tensor, Tensor],
    affine: tuple[Tensor, Tensor],
    constants: tuple[float, float],
    problem: Problem,
) -> Tensor:
    """Batch normalisation of ``z`` ``[n, d]`` with mean and variance over the nodes of all parts.

    Every part of a stage must call it, and its derivative: each sends four rows of d numbers.

    Args:
        running: mean and variance kept for later, ``[d]`` each; moved towards those of ``z``, in place.
        affine: scale and shift, ``[d]`` each.
        constants: the share of the newest statistics in the running ones, and epsilon.
    """
    parts, n = problem.grid.parts, problem.facts.num_nodes
    momentum, eps = constants
    if parts.size == 1:
        return F.batch_norm(z, *running, *affine, training=True, momentum=momentum, eps=eps)
    mean = total(parts, z.sum(0)) / n
    centred = z - mean
    var = total(parts, centred.square().sum(0)) / n
    with torch.no_grad():  # torch keeps the unbiased variance
        running[0].lerp_(mean, momentum)
        running[1].lerp_(var * (n / (n - 1)), momentum)
    return torch.addcmul(affine[1], centred, affine[0] * (var + eps).rsqrt())


__all__ = ["PURPOSE", "batch_norm", "total"]
