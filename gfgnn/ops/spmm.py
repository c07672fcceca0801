"""The sparse product: CSR matrix times dense matrix."""

from __future__ import annotations

import scipy.sparse
import torch
from torch import Tensor


def spmm(matrix: Tensor, dense: Tensor) -> Tensor:
    """``matrix @ dense`` for a sparse CSR ``matrix`` ``[M, N]`` and a dense ``[N, F]``; returns ``[M, F]``.

    On the CPU ``torch.sparse.mm(..., "sum")`` is 1.4 to 1.6 times as fast as ``@`` (it walks rows with vectorised
    columns); elsewhere ``@`` is the vendor's product.
    """
    if dense.device.type == "cpu" and dense.size(1) > 1:
        return torch.sparse.mm(matrix, dense.contiguous(), "sum")
    return matrix @ dense


def csr(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor from coordinates in any order; duplicates are summed."""
    return torch.sparse_coo_tensor(torch.stack([row, col]), value, shape).coalesce().to_sparse_csr()


def rows_of(matrix: Tensor, index: Tensor) -> Tensor:
    """The rows ``index`` (ascending or not) of a sparse CSR tensor, as sparse CSR."""
    crow = matrix.crow_indices()
    counts = crow.diff()[index]
    start = torch.repeat_interleave(crow[index] - counts.cumsum(0) + counts, counts)
    place = start + torch.arange(start.numel(), device=start.device)
    new_crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shape = (index.numel(), matrix.size(1))
    return torch.sparse_csr_tensor(new_crow, matrix.col_indices()[place], matrix.values()[place], shape)


def to_scipy(matrix: Tensor) -> scipy.sparse.csr_matrix:
    """A sparse CSR tensor as a SciPy matrix that shares its memory where it lies on the CPU."""
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return scipy.sparse.csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=tuple(matrix.shape))


def transpose(matrix: Tensor) -> Tensor:
    """The transpose of a sparse CSR tensor, stored again as CSR."""
    rows = torch.repeat_interleave(torch.arange(matrix.size(0)), matrix.crow_indices().diff().cpu())
    rows = rows.to(matrix.device)
    return csr(matrix.col_indices(), rows, matrix.values(), (matrix.size(1), matrix.size(0)))
