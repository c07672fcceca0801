"""Differentiable products with fixed sparse matrices, and the first layer, where the features enter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from gfgnn.exchange.sums import sum_over
from gfgnn.graph.propagation import Product, Propagation, Propagator
from gfgnn.model.inputs import Inputs
from gfgnn.ops.spmm import spmm, transpose
from gfgnn.problem import Problem

#: Dense features with a smaller share of non-zeros are dropped as sparse ones.
SPARSE_BELOW = 0.2
#: Numbers in the dense table of labelled rows that a one-layer model may hold.
TABLE_LIMIT = 2**26


class Operator(Protocol):
    """A fixed linear map and its transpose; :class:`Propagation` is one."""

    def apply(self, h: Tensor) -> Tensor: ...

    def adjoint(self, q: Tensor) -> Tensor: ...


#: Inverted dropout of a tensor: ``(h, p, generator)``.
Dropping = Callable[[Tensor, float, torch.Generator], Tensor]


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: Operator, h: Tensor, plus: Tensor | None) -> Tensor:
        ctx.operator, ctx.adds = operator, plus is not None
        product = operator.apply(h)
        return product if plus is None else product.add_(plus)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor | None]:
        return None, ctx.operator.adjoint(grad.contiguous()), grad if ctx.adds else None


def times(operator: Operator, h: Tensor, plus: Tensor | None = None) -> Tensor:
    """``operator.apply(h) + plus``; its derivative is ``operator.adjoint``, the kernels the block solver uses."""
    return _Times.apply(operator, h, plus)


def drop(h: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Inverted dropout with masks from ``generator``."""
    return h if p == 0.0 else h * dropout_mask(h, p, generator)


def drop_rows(h: Tensor, p: float, generator: torch.Generator, *, node_ids: Tensor, num_nodes: int) -> Tensor:
    """:func:`drop` of the rows ``node_ids`` of a graph's ``num_nodes``, with the mask that all rows would get.

    The same entries are dropped however the nodes are spread over parts, but each part draws the masks of all.
    """
    if p == 0.0:
        return h
    return h * dropout_mask(h.new_empty(num_nodes, h.size(1)), p, generator)[node_ids]


def dropout_mask(like: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """A mask of 0 (with probability ``p``) and 1 / (1 - p).

    On the CPU each number takes 16 random bits, so that p is met to 1/65536; ``bernoulli_`` takes eight times as
    long there, and half of a whole epoch.
    """
    if like.device.type != "cpu":
        keep = 1.0 - p
        return torch.empty_like(like, requires_grad=False).bernoulli_(keep, generator=generator).div_(keep)
    threshold = round((1.0 - p) * 65536) - 32768
    words = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(
        -(2**63), None, generator=generator
    )
    bits = words.view(torch.int16)[: like.numel()].view(like.shape)
    mask = torch.empty(like.shape, dtype=like.dtype)
    torch.lt(bits, threshold, out=mask)
    return mask.mul_(65536 / (threshold + 32768))


@dataclass(frozen=True, eq=False)
class Pair:
    """A fixed sparse CSR matrix and its transpose."""

    matrix: Tensor
    matrix_t: Tensor

    def apply(self, h: Tensor) -> Tensor:
        return spmm(self.matrix, h)

    def adjoint(self, q: Tensor) -> Tensor:
        return spmm(self.matrix_t, q)


@dataclass(frozen=True, eq=False)
class Products:
    """A linear map and its transpose, as functions."""

    apply: Product
    adjoint: Product


def scaled(propagation: Propagator, factor: float) -> Operator:
    """``factor * S``; where one device has all of S it is multiplied once."""
    if not isinstance(propagation, Propagation):
        return Products(partial(propagation.apply, scale=factor), partial(propagation.adjoint, scale=factor))
    matrix = propagation.matrix * factor
    symmetric = propagation.matrix_t is propagation.matrix
    return Pair(matrix, matrix if symmetric else propagation.matrix_t * factor)


class Droppable:
    """A fixed sparse CSR matrix whose stored values are dropped at random, in the transpose alike."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix
        numbers = torch.arange(matrix.values().numel(), device=matrix.device, dtype=torch.float64)
        self._pattern_t = transpose(_with_values(matrix, numbers))
        self._order = self._pattern_t.values().long()

    def dropped(self, p: float, generator: torch.Generator) -> Pair:
        """The matrix with each stored value dropped with probability ``p``."""
        values = drop(self._matrix.values(), p, generator)
        return Pair(_with_values(self._matrix, values), _with_values(self._pattern_t, values[self._order]))


def _with_values(matrix: Tensor, values: Tensor) -> Tensor:
    crow, col, shape = matrix.crow_indices(), matrix.col_indices(), tuple(matrix.shape)
    return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


class FirstLayer:
    """``T W`` of block 0 while training.

    Without dropout T is what the problem prepared. Dropped features have to be propagated again in every
    iteration; ``S (X W)`` or ``(S X) W`` is chosen by cost.

    Args:
        rows: the labelled nodes, where block 0 is the output and no other row is needed.
        dropping: drops entries of dense features; the non-zeros of sparse ones get masks of each part's own.
    """

    def __init__(
        self, problem: Problem, dropout: float, rows: Tensor | None, dropping: Dropping = drop
    ) -> None:
        self.dropping = dropping
        self.inputs = problem.inputs
        self.block = self.inputs.block
        self.dropout = dropout if self.block.propagate in ("none", "graph") else 0.0
        self.rows = rows
        self.table = None if self.dropout else _table(self.inputs, rows)
        self.matrix: Droppable | None = None
        if self.dropout and (sparse := _sparse(problem)) is not None:
            self.matrix = Droppable(sparse)

    def __call__(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        if self.table is not None:
            return self.table @ weight
        z = times(Stored(self.inputs), weight) if self.dropout == 0.0 else self._dropped(weight, generator)
        return z if self.rows is None else z[self.rows]

    def _dropped(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        propagation, graph = self.inputs.propagation, self.block.propagate == "graph"
        if self.matrix is not None:
            z = times(self.matrix.dropped(self.dropout, generator), weight)
            return times(propagation, z) if graph else z
        x = self.dropping(self.inputs.features, self.dropout, generator)
        # S X needs no derivative, so one product of in_channels columns stands against two of out_channels.
        if graph and x.size(1) < 2 * self.block.out_channels:
            return propagation.apply(x) @ weight
        z = x @ weight
        return times(propagation, z) if graph else z


class Stored:
    """The problem's T as an :class:`Operator`."""

    def __init__(self, inputs: Inputs) -> None:
        self.apply, self.adjoint = inputs.matmul, inputs.adjoint


def _table(inputs: Inputs, rows: Tensor | None) -> Tensor | None:
    """The rows of T that training needs, dense, where that is affordable."""
    if inputs.table is not None:
        return inputs.table if rows is None else inputs.table[rows]
    whole = isinstance(inputs.propagation, Propagation)
    if rows is None or not whole or rows.numel() * inputs.fan_in > TABLE_LIMIT:
        return None
    chosen = inputs.features.values().new_zeros(inputs.features.size(0), rows.numel())
    chosen[rows, torch.arange(rows.numel(), device=rows.device)] = 1.0
    return inputs.adjoint(chosen).t().contiguous()


def _sparse(problem: Problem) -> Tensor | None:
    """X as sparse CSR when it is mostly zeros, else None. Called by every part; they decide as one."""
    features = problem.inputs.features
    if features.layout == torch.sparse_csr:
        return features
    counts = torch.tensor([int(torch.count_nonzero(features)), features.numel()], dtype=torch.float64)
    filled, size = sum_over(problem.grid.parts, counts, purpose="setup")[0].tolist()
    return features.to_sparse_csr() if filled < SPARSE_BELOW * size else None
