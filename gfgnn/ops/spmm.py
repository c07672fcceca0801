"""The sparse product, CSR matrix times dense matrix, and what makes such matrices."""

from __future__ import annotations

import warnings

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.checks import InputError, is_recorded
from gfgnn.ops import native
from gfgnn.profiling.costs import spmm_cost
from gfgnn.profiling.labels import labelled

with warnings.catch_warnings():  # torch says once in a process that CSR is in beta; nobody here can act on it
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False)


@labelled("sparse product", spmm_cost)
def spmm(
    matrix: Tensor,
    dense: Tensor,
    *,
    scale: float = 1.0,
    plus: Tensor | None = None,
    plus_scale: float = 1.0,
    rows: tuple[int, int] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``scale * matrix @ dense + plus_scale * plus``; on the CPU by our compiled kernel, else by torch.

    Where torch records derivatives of the arguments, its own product serves, and is recorded;
    :mod:`gfgnn.nn.product` has our product with its derivatives.

    Args:
        matrix: sparse CSR ``[M, N]``, float32 or float64.
        dense: ``[N, F]`` of the same type; bfloat16 or float16 for a matrix of float32, whose sums are float32, too.
            Not copied where the numbers of a row lie side by side.
        plus: ``[M, F]`` of the matrix' type; not read where ``plus_scale`` is 0.
        rows: the rows ``first`` to ``last - 1`` only; the other rows of ``out``, which must be given, stay as they are.
        out: ``[M, F]`` of the matrix' type to write to; ``plus`` itself, or apart from it and from ``dense``.

    Returns:
        ``out``, or a new tensor ``[M, F]`` of the matrix' type.

    Raises:
        InputError: shapes or types do not fit.
    """
    if plus_scale == 0.0:
        plus = None
    _check(matrix, dense, plus, rows, out)
    if dense.device.type == "cpu" == matrix.device.type and not is_recorded(matrix, dense, plus):
        first_last = (0, matrix.size(0)) if rows is None else rows
        found = native.multiply(matrix, dense, scale, plus, plus_scale, first_last, out)
        if found is not None:
            return found
    return _torch(matrix, dense, scale, plus, plus_scale, rows, out)


def _check(
    matrix: Tensor, dense: Tensor, plus: Tensor | None, rows: tuple[int, int] | None, out: Tensor | None
) -> None:
    """Wrong sizes would have the kernel read and write anywhere."""
    if (
        dense.dim() != 2
        or matrix.layout != torch.sparse_csr
        or matrix.dim() != 2
        or dense.size(0) != matrix.size(1)
    ):
        raise InputError(
            f"A sparse product needs CSR [M, N] and dense [N, F]; got {list(matrix.shape)}, {list(dense.shape)}."
        )
    if matrix.dtype != native.SUMS.get(dense.dtype, dense.dtype):
        raise InputError(
            f"The dense matrix must have the type of the sparse one, {matrix.dtype}, or 16 bits beside float32; "
            f"got {dense.dtype}."
        )
    shape = (matrix.size(0), dense.size(1))
    for name, tensor in (("plus", plus), ("out", out)):
        if tensor is not None and (
            tensor.shape != shape or tensor.dtype != matrix.dtype or tensor.device != dense.device
        ):
            raise InputError(
                f"{name} must be {list(shape)}, {matrix.dtype}, on {dense.device}; "
                f"got {list(tensor.shape)}, {tensor.dtype}, on {tensor.device}."
            )
    if rows is not None and (out is None or not 0 <= rows[0] <= rows[1] <= matrix.size(0)):
        raise InputError(f"rows needs out and 0 <= first <= last <= {matrix.size(0)}; got {rows}.")


def _torch(
    matrix: Tensor,
    dense: Tensor,
    scale: float,
    plus: Tensor | None,
    plus_scale: float,
    rows: tuple[int, int] | None,
    out: Tensor | None,
) -> Tensor:
    if rows is not None:
        assert out is not None
        index = torch.arange(*rows, device=matrix.device)
        part = slice(*rows)
        some = None if plus is None else plus[part]
        _torch(rows_of(matrix, index), dense, scale, some, plus_scale, None, out[part])
        return out
    dense = dense.to(matrix.dtype)
    if plus is None:
        found = matrix @ dense
        found = found if scale == 1.0 else found.mul_(scale)
    else:
        found = torch.addmm(plus, matrix, dense, beta=plus_scale, alpha=scale)
    return found if out is None else out.copy_(found)


def csr(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor from coordinates in any order; duplicates are summed."""
    summed = torch.sparse_coo_tensor(torch.stack([row, col]), value, shape, check_invariants=False).coalesce()
    row, col = summed.indices()
    crow = torch.zeros(shape[0] + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=shape[0]), 0, out=crow[1:])
    return from_parts(crow, col, summed.values(), shape)


def from_parts(crow: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor with 32-bit indices where they fit: they are half the memory, and the products of the CPU
    library behind torch are 1.5 times as fast as ``torch.sparse.mm(..., "sum")``."""
    if max(*shape, value.numel()) < 2**31:
        crow, col = crow.int(), col.int()
    return torch.sparse_csr_tensor(crow, col, value, shape, check_invariants=False)


def with_values(matrix: Tensor, values: Tensor) -> Tensor:
    """``matrix`` with other values on the same non-zeros."""
    crow, col = matrix.crow_indices(), matrix.col_indices()
    return torch.sparse_csr_tensor(crow, col, values, matrix.shape, check_invariants=False)


def rows_of(matrix: Tensor, index: Tensor) -> Tensor:
    """The rows ``index`` (ascending or not) of a sparse CSR tensor, as sparse CSR."""
    crow = matrix.crow_indices().long()
    counts = crow.diff()[index]
    start = torch.repeat_interleave(crow[index] - counts.cumsum(0) + counts, counts)
    place = start + torch.arange(start.numel(), device=start.device)
    new_crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shape = (index.numel(), matrix.size(1))
    return from_parts(new_crow, matrix.col_indices()[place], matrix.values()[place], shape)


def to_scipy(matrix: Tensor) -> scipy.sparse.csr_matrix:
    """A sparse CSR tensor as a SciPy matrix that shares its memory where it lies on the CPU."""
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return scipy.sparse.csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=tuple(matrix.shape))


def transpose(matrix: Tensor) -> Tensor:
    """The transpose of a sparse CSR tensor, stored again as CSR."""
    shape = (matrix.size(1), matrix.size(0))
    if matrix.device.type == "cpu" and not is_recorded(matrix):  # in linear time and without coordinates
        found = to_scipy(matrix).tocsc()
        crow, col, value = (torch.from_numpy(part) for part in (found.indptr, found.indices, found.data))
        return from_parts(crow, col, value, shape)
    rows = torch.arange(matrix.size(0), device=matrix.device)
    rows = torch.repeat_interleave(rows, matrix.crow_indices().long().diff())
    return csr(matrix.col_indices().long(), rows, matrix.values(), shape)


def sort_columns(matrix: Tensor) -> Tensor:
    """A sparse CSR tensor on the CPU, the non-zeros of each row put into the order of their columns in place."""
    to_scipy(matrix).sort_indices()
    return matrix
