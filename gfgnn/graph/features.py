"""Feature matrices: dense or sparse CSR, and their normalisations. All functions are pure."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from gfgnn.checks import InputError, check_choice

#: Below this share of non-zeros features stay sparse: a dense product is then slower and takes more memory.
MAX_SPARSE_DENSITY = 0.2

NORMALISATIONS = ("rows", "columns")

#: numbers of dense features computed with at once: they may be mapped from a file larger than memory
PIECE = 1 << 20
#: how features may be kept; they become the type that is trained in where a problem is built
STORED = {"float32": "float32", "fp16": "float16"}


def csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A checked ``[N, F]`` torch sparse CSR tensor with int64 indices and float32 values.

    Raises:
        InputError: the three arrays do not describe a CSR matrix of that shape.
    """
    indptr, indices = indptr.to(torch.int64), indices.to(torch.int64)
    rows, columns = shape
    if indptr.shape != (rows + 1,) or indices.shape != values.shape or indices.dim() != 1:
        raise InputError(
            f"CSR features of shape {list(shape)} need x_indptr of length {rows + 1} and one value per index; got "
            f"{list(indptr.shape)}, {list(indices.shape)} indices and {list(values.shape)} values."
        )
    if int(indptr[0]) != 0 or int(indptr[-1]) != indices.numel() or bool((indptr.diff() < 0).any()):
        raise InputError(f"x_indptr must rise from 0 to the number of indices, {indices.numel()}.")
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        raise InputError(f"x_indices names column {int(indices.max())}; columns are 0 to {columns - 1}.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            indptr, indices, values.to(torch.float32), size=shape, check_invariants=False
        )


def is_sparse(x: Tensor) -> bool:
    """Whether ``x`` is a sparse CSR tensor."""
    return x.layout == torch.sparse_csr


def values_of(x: Tensor) -> Tensor:
    """The stored numbers of dense or sparse features."""
    return x.values() if is_sparse(x) else x


def compact(x: Tensor) -> Tensor:
    """``x`` as dense float32, or as sparse CSR float32 where fewer than 20% of its entries are non-zero.

    Sparse input of any torch layout is accepted; dense input becomes sparse only where that saves memory.
    """
    if x.layout != torch.strided:
        x = _to_csr(x)
        density = x.values().numel() / max(x.numel(), 1)
        return x if density < MAX_SPARSE_DENSITY else _to_dense(x)
    x = x.to(torch.float32)
    if (
        x.dim() == 2
        and x.numel()
        and int(x.count_nonzero()) / x.numel() < MAX_SPARSE_DENSITY
        and x.size(1) > 1
    ):
        return _to_csr(x)
    return x


def _to_csr(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        x = x.to_sparse_csr()
    return csr_tensor(x.crow_indices(), x.col_indices(), x.values(), (x.size(0), x.size(1)))


def _to_dense(x: Tensor) -> Tensor:
    return x.to_dense().to(torch.float32)


def normalise(x: Tensor, how: str) -> Tensor:
    """Features scaled by rows or by columns.

    ``rows``: ``x_i / sum_j |x_ij|``; rows of zeros stay zero. ``columns``: dense columns get mean 0 and variance 1;
    sparse columns are divided by their root mean square and not centred, which would fill them. Constant (sparse:
    empty) columns become or stay zero. What is computed of dense features beside the result is small.

    Args:
        x: ``[N, F]``, dense (float32, float16) or sparse CSR.
        how: ``rows`` or ``columns``.
    """
    check_choice("normalise", how, NORMALISATIONS)
    if is_sparse(x):
        return _normalise_sparse(x, how)
    pieces = x.split(max(1, PIECE // max(1, x.size(1))))
    scaled = torch.empty_like(x)
    if how == "rows":
        for rows, out in zip(pieces, scaled.split(pieces[0].size(0)), strict=True):
            total = rows.abs().sum(dim=1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
            out.copy_(torch.where(total > 0, rows / total, torch.zeros_like(rows)))
        return scaled
    largest = torch.zeros(x.size(1), dtype=torch.float64)
    mean, square = torch.zeros_like(largest), torch.zeros_like(largest)
    for rows in pieces:
        mean += rows.double().sum(dim=0) / x.size(0)
    for rows in pieces:
        square += (rows.double() - mean).square().sum(dim=0) / x.size(0)
        largest = torch.maximum(largest, rows.abs().double().amax(dim=0))
    # a constant column leaves rounding errors of the mean, which must not be blown up to variance 1
    deviation = torch.where(square.sqrt() <= 1e-7 * largest, torch.inf, square.sqrt())
    for rows, out in zip(pieces, scaled.split(pieces[0].size(0)), strict=True):
        out.copy_((rows.double() - mean) / deviation)
    return scaled


def _normalise_sparse(x: Tensor, how: str) -> Tensor:
    indptr, indices, values = x.crow_indices(), x.col_indices(), x.values()
    if how == "rows":
        place = torch.repeat_interleave(torch.arange(x.size(0)), indptr.diff())
        scale = torch.zeros(x.size(0), dtype=torch.float64).index_add_(0, place, values.abs().double())
    else:
        place = indices
        total = torch.zeros(x.size(1), dtype=torch.float64).index_add_(0, place, values.double().square())
        scale = (total / x.size(0)).sqrt()
    scaled = values.double() / scale[place]
    scaled[scale[place] == 0] = 0.0  # explicitly stored zeros
    return csr_tensor(indptr, indices, scaled, (x.size(0), x.size(1)))


def select_rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows ``nodes`` of dense or sparse CSR features, in the order given."""
    if not is_sparse(x):
        return x[nodes]
    indptr, counts = x.crow_indices(), x.crow_indices().diff()[nodes]
    new_indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    offset = torch.arange(int(new_indptr[-1])) - torch.repeat_interleave(new_indptr[:-1], counts)
    place = torch.repeat_interleave(indptr[nodes], counts) + offset
    return csr_tensor(new_indptr, x.col_indices()[place], x.values()[place], (nodes.numel(), x.size(1)))
