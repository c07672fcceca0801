"""The sparse product as an operator of torch: differentiable as often as wanted, and known to ``torch.compile``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.ops import spmm as sparse

#: What the product calculates in; layers hand anything else to PyTorch Geometric.
DTYPES = (torch.float32, torch.float64)
#: Numbers per temporary while the gradient of the values is formed; the whole table would be non-zeros x columns.
#: Small enough for a core's cache on the CPU (four times as fast as 2**20), large enough to fill a GPU.
CHUNK = {"cpu": 2**16, "cuda": 2**24}


@dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse matrix A ``[M, N]`` with E non-zeros, stored by rows, and its transpose likewise.

    Attributes:
        value: the non-zeros ``[E]``, row by row; may require a gradient.
        crow, col: where they are: row i holds ``crow[i]`` to ``crow[i + 1] - 1`` ``[M + 1]``, in columns ``[E]``.
            A column may occur twice in a row; the two are summed.
        crow_t, col_t: the same of A'.
        order_t: ``value[order_t]`` are the values of A' ``[E]``. Empty where A' is A, number for number (an
            undirected graph); then ``value`` must not require a gradient.
    """

    value: Tensor
    crow: Tensor
    col: Tensor
    crow_t: Tensor
    col_t: Tensor
    order_t: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.crow.numel() - 1, self.crow_t.numel() - 1

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.crow, self.col, self.crow_t, self.col_t, self.order_t

    def row_counts(self) -> Tensor:
        """The number of non-zeros of each row, at least one, ``[M, 1]``: what a mean divides by."""
        return self.crow.diff().clamp_(min=1).to(self.value.dtype)[:, None]


def product(matrix: Matrix, x: Tensor) -> Tensor:
    """``A x`` for ``x`` ``[N, F]``; returns ``[M, F]``.

    The gradients, from G of the result, are ``A' G`` for ``x`` and ``G[row] . x[column]`` per non-zero for the values;
    both are differentiable again.

    Raises:
        InputError: ``x`` has other rows than A has columns, or other numbers than the values of A.
    """
    if x.dim() != 2 or x.size(0) != matrix.shape[1]:
        raise InputError(f"x must be [{matrix.shape[1]}, F] for this matrix; got {list(x.shape)}.")
    if x.dtype not in DTYPES or x.dtype != matrix.value.dtype:
        raise InputError(
            f"x and the values of the matrix must both be float32 or both float64; "
            f"got {x.dtype} and {matrix.value.dtype}."
        )
    return spmm(matrix.value, x, *matrix.parts, False)


@torch.library.custom_op("gfgnn::spmm", mutates_args=())
def spmm(
    value: Tensor,
    x: Tensor,
    crow: Tensor,
    col: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
    order_t: Tensor,
    transposed: bool,
) -> Tensor:
    """``A x``, or ``A' x`` where ``transposed``, for the parts of a :class:`Matrix`."""
    rows, columns = crow.numel() - 1, crow_t.numel() - 1
    if transposed:
        value = value.index_select(0, order_t) if order_t.numel() else value
        crow, col, rows, columns = crow_t, col_t, columns, rows
    return sparse.spmm(sparse.from_parts(crow, col, value, (rows, columns)), x)


@spmm.register_fake
def _(
    value: Tensor,
    x: Tensor,
    crow: Tensor,
    col: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
    order_t: Tensor,
    transposed: bool,
) -> Tensor:
    return x.new_empty((crow_t if transposed else crow).numel() - 1, x.size(1))


@torch.library.custom_op("gfgnn::sampled_product", mutates_args=())
def sampled_product(
    left: Tensor, right: Tensor, crow: Tensor, col: Tensor, crow_t: Tensor, col_t: Tensor, order_t: Tensor
) -> Tensor:
    """``left[row] . right[column]`` for every non-zero of A ``[E]``, from ``left`` ``[M, F]``, ``right`` ``[N, F]``."""
    rows = torch.arange(left.size(0), device=col.device, dtype=col.dtype)
    row = torch.repeat_interleave(rows, crow.diff(), output_size=col.numel())
    result = left.new_empty(col.numel())
    step = max(1, CHUNK[left.device.type] // max(1, left.size(1)))
    for start in range(0, col.numel(), step):
        part = slice(start, start + step)
        factors = left.index_select(0, row[part]).mul_(right.index_select(0, col[part]))
        torch.sum(factors, 1, out=result[part])
    return result


@sampled_product.register_fake
def _(
    left: Tensor, right: Tensor, crow: Tensor, col: Tensor, crow_t: Tensor, col_t: Tensor, order_t: Tensor
) -> Tensor:
    return left.new_empty(col.numel())


def _keep_for_spmm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    value, x, *parts, transposed = inputs
    # x is as large as all activations of a layer: it is kept only where the values want a gradient.
    ctx.save_for_backward(value, x if ctx.needs_input_grad[0] else None, *parts)
    ctx.transposed = transposed


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    value, x, *parts = ctx.saved_tensors
    for_value = for_x = None
    if ctx.needs_input_grad[0]:
        _check_order(value, parts[-1])
        left, right = (x, grad) if ctx.transposed else (grad, x)
        for_value = sampled_product(left, right, *parts)
    if ctx.needs_input_grad[1]:
        for_x = spmm(value, grad, *parts, not ctx.transposed)
    return (for_value, for_x, *[None] * 6)


def _keep_for_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _sampled_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    left, right, *parts = ctx.saved_tensors
    _check_order(grad, parts[-1])
    for_left = spmm(grad, right, *parts, False) if ctx.needs_input_grad[0] else None
    for_right = spmm(grad, left, *parts, True) if ctx.needs_input_grad[1] else None
    return (for_left, for_right, *[None] * 5)


def _check_order(value: Tensor, order_t: Tensor) -> None:
    assert order_t.numel() == value.numel(), (
        "a matrix kept as its own transpose has no gradient of its values"
    )


spmm.register_autograd(_spmm_backward, setup_context=_keep_for_spmm)
sampled_product.register_autograd(_sampled_backward, setup_context=_keep_for_sampled)
