"""The sparse product: CSR matrix times dense matrix."""

from __future__ import annotations

import warnings

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.profiling.costs import spmm_cost
from gfgnn.profiling.labels import labelled

with warnings.catch_warnings():  # torch says once in a process that CSR is in beta; nobody here can act on it
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False)


@labelled("sparse product", spmm_cost)
def spmm(matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense`` for a sparse CSR ``matrix`` ``[M, N]`` and a dense ``[N, F]``; returns ``[M, F]``."""
    return matrix @ dense


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
    rows = torch.arange(matrix.size(0), device=matrix.device)
    rows = torch.repeat_interleave(rows, matrix.crow_indices().long().diff())
    return csr(matrix.col_indices().long(), rows, matrix.values(), (matrix.size(1), matrix.size(0)))
