"""Sparse products and the conversions around them, against dense ones."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from gfgnn.ops.spmm import csr, rows_of, spmm, to_scipy, transpose


def sparse(seed: int, rows: int, cols: int, density: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, cols, generator=generator, dtype=torch.float64)
    return dense * (torch.rand(rows, cols, generator=generator) < density)


@pytest.mark.parametrize("columns", [0, 1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_product_equals_the_dense_one(columns: int, dtype: torch.dtype) -> None:
    a, b = sparse(0, 9, 6).to(dtype), torch.randn(6, columns, dtype=dtype)
    torch.testing.assert_close(spmm(a.to_sparse_csr(), b), a @ b)


def test_product_with_a_matrix_that_is_not_contiguous() -> None:
    a, b = sparse(1, 9, 6), torch.randn(4, 6, dtype=torch.float64).t()
    torch.testing.assert_close(spmm(a.to_sparse_csr(), b), a @ b)


def test_product_with_a_matrix_of_zeros() -> None:
    empty = torch.zeros(3, 4).to_sparse_csr()
    assert torch.equal(spmm(empty, torch.ones(4, 2)), torch.zeros(3, 2))


def test_coordinates_in_any_order_and_twice() -> None:
    row, col = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 3, 1, 0])
    matrix = csr(row, col, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 4))
    expected = torch.zeros(3, 4)
    expected[2, 1], expected[0, 3], expected[1, 0] = 4.0, 2.0, 4.0
    assert torch.equal(matrix.to_dense(), expected)


@pytest.mark.parametrize("index", [[], [0], [4, 1, 1, 8], list(range(9))])
def test_rows(index: list[int]) -> None:
    a = sparse(2, 9, 6)
    a[1] = 0.0  # a row without an entry
    picked = rows_of(a.to_sparse_csr(), torch.tensor(index, dtype=torch.long))
    assert torch.equal(picked.to_dense(), a[index])


def test_transpose_and_scipy() -> None:
    a = sparse(3, 9, 6)
    matrix = a.to_sparse_csr()
    assert torch.equal(transpose(matrix).to_dense(), a.t())
    shared = to_scipy(matrix)
    assert (shared.toarray() == a.numpy()).all()
    matrix.values().mul_(2.0)
    assert (shared.toarray() == 2 * a.numpy()).all(), "the memory is shared, not copied"


def test_torch_does_not_warn_about_csr() -> None:
    code = (
        "import warnings, torch; warnings.simplefilter('error');"
        "from gfgnn.ops.spmm import csr;"
        "i = torch.tensor([0]); csr(i, i, torch.ones(1), (1, 1))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
