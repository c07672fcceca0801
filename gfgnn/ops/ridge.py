"""Weighted, centred ridge regression on small Gram matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.ops.arena import converted, empty, recycle
from gfgnn.profiling.costs import moments_cost
from gfgnn.profiling.labels import labelled

#: Bytes of the rows that are taken at a time. More would be another large array; with less, threads that share a busy
#: machine wait for each other too often.
PIECE = 16 << 20


@dataclass(frozen=True)
class Moments:
    """Weighted second moments of rows t (inputs) and r (weighted shifts wanted of the outputs).

    Attributes:
        gram: ``T'CT`` (centred: ``- s m m'``), ``[p, p]``.
        cross: ``T'R`` (centred: ``- s m rbar'``), ``[p, d]``.
        mean: m, the C-weighted mean of T, ``[p]``; zeros where not centred.
        shift: rbar = 1'R / s, the mean shift, ``[d]``; zeros where not centred.
        total: s = sum of C.
    """

    gram: Tensor
    cross: Tensor
    mean: Tensor
    shift: Tensor
    total: Tensor

    @property
    def scale(self) -> Tensor:
        """kappa, the mean diagonal of the Gram matrix."""
        return mean_diagonal(self.gram)


def mean_diagonal(gram: Tensor) -> Tensor:
    """Mean of the diagonal, kept above zero so that a matrix of zeros can still be damped."""
    return gram.diagonal().mean().clamp(min=torch.finfo(gram.dtype).tiny)


def moments(t: Tensor, c: Tensor, r: Tensor, centred: bool) -> Moments:
    """The moments of ``t`` ``[N, p]``, weights ``c`` ``[N]`` and *weighted* shifts ``r = c * D`` ``[N, d]``."""
    return moments_from(moment_sums(t, c, r, centred))


@labelled("Gram", moments_cost)
def moment_sums(
    t: Tensor, c: Tensor, r: Tensor, centred: bool, *, rows: Tensor | None = None, gram: bool = True
) -> list[Tensor]:
    """The sums over rows that :func:`moments_from` needs, in float64; those of several sets of rows may be added up.

    ``T'CT``, ``T'R`` and ``1'C1``; where centred, ``1'CT`` and ``1'R`` too. They are taken in the precision of ``r``,
    to which ``t`` is brought, some rows at a time: without another array as large as ``t``.

    Args:
        rows: the only ones that count, where the others' ``c`` is 0; ``r`` then has these alone.
        gram: whether ``T'CT`` is taken; else it is left at zero.
    """
    gram_sum, cross = r.new_zeros(t.size(1), t.size(1)), r.new_zeros(t.size(1), r.size(1))
    means, shifts = r.new_zeros(t.size(1)), r.new_zeros(r.size(1))
    step = max(1, PIECE // (r.element_size() * max(1, t.size(1))))
    for start in range(0, r.size(0), step):
        which = slice(start, start + step) if rows is None else rows[start : start + step]
        stored, weights, shift = t[which], c[which], r[start : start + step]
        some = converted(stored, r.dtype)
        if gram:
            weighted = torch.mul(some, weights[:, None], out=empty(some.size(0), some.size(1), some))
            gram_sum.addmm_(some.t(), weighted)
            recycle(weighted)
        cross.addmm_(some.t(), shift)
        if centred:
            means.addmv_(some.t(), weights)
            shifts += shift.sum(0)
        if some is not stored:
            recycle(some)
    sums = [gram_sum, cross, c.sum()] + ([means, shifts] if centred else [])
    return [value.double() for value in sums]


def weighted_squares(t: Tensor, c: Tensor) -> Tensor:
    """``sum_i c_i t_ij^2`` for each column j, ``[p]``, in float64; some rows at a time."""
    total = t.new_zeros(t.size(1))
    step = max(1, PIECE // (t.element_size() * max(1, t.size(1))))
    for some, weights in zip(t.split(step), c.split(step), strict=True):
        total += weights @ some.square()
    return total.double()


def moments_from(sums: Sequence[Tensor]) -> Moments:
    """The moments that the sums stand for."""
    gram, cross, total, *centre = sums
    # kept above zero: where no row counts, all means are zero
    total = total.clamp(min=torch.finfo(torch.float64).tiny)
    if not centre:
        return Moments(gram, cross, torch.zeros_like(gram[0]), torch.zeros_like(cross[0]), total)
    mean, shift = (value / total for value in centre)
    gram = gram - total * torch.outer(mean, mean)
    return Moments(gram, cross - total * torch.outer(mean, shift), mean, shift, total)


def solve(gram: Tensor, damping: Tensor, rhs: Tensor) -> Tensor:
    """``(gram + diag(damping))^-1 rhs``, ``gram`` ``[p, p]`` positive semi-definite, ``damping`` scalar or ``[p]``."""
    return torch.cholesky_solve(rhs, factor(gram, damping))


def factor(gram: Tensor, damping: Tensor) -> Tensor:
    """Lower Cholesky factor of ``gram + diag(damping)``; rounding that makes it indefinite is damped away.

    A matrix that is not finite has a factor of NaN, so that the loss shows it.
    """
    damped = gram.clone()
    damped.diagonal().add_(damping)
    lower, failed = torch.linalg.cholesky_ex(damped)
    jitter = 1e-6 * float(mean_diagonal(damped).abs())
    while bool(failed):
        if not math.isfinite(jitter):
            return torch.full_like(lower, math.nan)
        damped.diagonal().add_(jitter)
        lower, failed = torch.linalg.cholesky_ex(damped)
        jitter *= 10.0
    return lower
