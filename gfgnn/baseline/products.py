"""Differentiable products with fixed sparse matrices, and the first layer, where the features enter."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from gfgnn.graph.propagation import Propagation
from gfgnn.model.inputs import Inputs
from gfgnn.model.problem import Problem
from gfgnn.ops.spmm import spmm, transpose

#: Dense features with a smaller share of non-zeros are dropped as sparse ones.
SPARSE_BELOW = 0.2
#: Numbers in the dense table of labelled rows that a one-layer model may hold.
TABLE_LIMIT = 2**26


class Operator(Protocol):
    """A fixed linear map and its transpose; :class:`Propagation` is one."""

    def apply(self, h: Tensor) -> Tensor: ...

    def adjoint(self, q: Tensor) -> Tensor: ...


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: Operator, h: Tensor) -> Tensor:  # type: ignore[override]
        ctx.operator = operator
        return operator.apply(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        return None, ctx.operator.adjoint(grad.contiguous())


def times(operator: Operator, h: Tensor) -> Tensor:
    """``operator.apply(h)``, with ``operator.adjoint`` as its derivative: the kernels the block solver uses."""
    return _Times.apply(operator, h)


def drop(h: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Inverted dropout with masks from ``generator``."""
    if p == 0.0:
        return h
    keep = 1.0 - p
    mask = torch.empty_like(h, requires_grad=False).bernoulli_(keep, generator=generator).div_(keep)
    return h * mask


class Matrix:
    """A fixed sparse CSR matrix with its transpose, whose values can be dropped at random."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        order = torch.arange(matrix.values().numel(), device=matrix.device, dtype=torch.float64)
        shape = (matrix.size(0), matrix.size(1))
        numbered = torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), order, shape, check_invariants=False)
        pattern = transpose(numbered)
        self._order = pattern.values().long()
        self._crow_t, self._col_t = pattern.crow_indices(), pattern.col_indices()
        self.matrix_t = self._transposed(matrix.values())

    def _transposed(self, values: Tensor) -> Tensor:
        shape = (self.matrix.size(1), self.matrix.size(0))
        return torch.sparse_csr_tensor(self._crow_t, self._col_t, values[self._order], shape, check_invariants=False)

    def apply(self, h: Tensor) -> Tensor:
        return spmm(self.matrix, h)

    def adjoint(self, q: Tensor) -> Tensor:
        return spmm(self.matrix_t, q)

    def dropped(self, p: float, generator: torch.Generator) -> Operator:
        """The matrix with each stored value dropped with probability ``p``."""
        if p == 0.0:
            return self
        values = drop(self.matrix.values(), p, generator)
        crow, col = self.matrix.crow_indices(), self.matrix.col_indices()
        matrix = torch.sparse_csr_tensor(crow, col, values, self.matrix.shape, check_invariants=False)
        return Propagation(matrix, self._transposed(values), values)


def restrict(propagation: Propagation, rows: Tensor) -> Propagation:
    """The rows ``rows`` of S with their transpose: all that an output layer needs for its labelled nodes."""
    part = propagation.matrix.cpu().to_sparse_coo().index_select(0, rows.cpu()).coalesce().to_sparse_csr()
    part_t = transpose(part)
    device = propagation.matrix.device
    return Propagation(part.to(device), part_t.to(device), propagation.scale)


class FirstLayer:
    """``T W`` of block 0 while training.

    Without dropout T is what the problem prepared. Dropped features have to be propagated again in every iteration;
    ``S (X W)`` or ``(S X) W`` is chosen by cost.

    Args:
        rows: the labelled nodes, where block 0 is the output and no other row is needed.
    """

    def __init__(self, problem: Problem, dropout: float, rows: Tensor | None) -> None:
        self.inputs = problem.inputs
        self.block = self.inputs.block
        self.dropout = dropout if self.block.propagate in ("none", "graph") else 0.0
        self.rows = rows
        self.table = None if self.dropout else _table(self.inputs, rows)
        self.matrix: Matrix | None = None
        if self.dropout and (sparse := _sparse(self.inputs.features)) is not None:
            self.matrix = Matrix(sparse)

    def __call__(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        if self.table is not None:
            return self.table @ weight
        z = times(_Stored(self.inputs), weight) if self.dropout == 0.0 else self._dropped(weight, generator)
        return z if self.rows is None else z[self.rows]

    def _dropped(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        propagation, graph = self.inputs.propagation, self.block.propagate == "graph"
        if self.matrix is not None:
            z = times(self.matrix.dropped(self.dropout, generator), weight)
            return times(propagation, z) if graph else z
        x = drop(self.inputs.features, self.dropout, generator)
        # S X needs no derivative, so one product of in_channels columns stands against two of out_channels.
        if graph and x.size(1) < 2 * self.block.out_channels:
            return propagation.apply(x) @ weight
        z = x @ weight
        return times(propagation, z) if graph else z


class _Stored:
    """The problem's T as an :class:`Operator`."""

    def __init__(self, inputs: Inputs) -> None:
        self.apply, self.adjoint = inputs.matmul, inputs.adjoint


def _table(inputs: Inputs, rows: Tensor | None) -> Tensor | None:
    """The rows of T that training needs, dense, where that is affordable."""
    if inputs.table is not None:
        return inputs.table if rows is None else inputs.table[rows]
    if rows is None or rows.numel() * inputs.fan_in > TABLE_LIMIT:
        return None
    chosen = inputs.features.values().new_zeros(inputs.features.size(0), rows.numel())
    chosen[rows, torch.arange(rows.numel(), device=rows.device)] = 1.0
    return inputs.adjoint(chosen).t().contiguous()


def _sparse(features: Tensor) -> Tensor | None:
    """X as sparse CSR when it is mostly zeros, else None."""
    if features.layout == torch.sparse_csr:
        return features
    few = int(torch.count_nonzero(features)) < SPARSE_BELOW * features.numel()
    return features.to_sparse_csr() if few else None
