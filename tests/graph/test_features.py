"""Sparse and dense features agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gfgnn import InputError
from gfgnn.graph.features import compact, csr_tensor, is_sparse, normalise, select_rows


@pytest.fixture
def matrix() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 30, generator=generator)
    x[torch.rand(40, 30, generator=generator) < 0.9] = 0.0
    x[3] = 0.0  # an empty row
    x[:, 5] = 0.0  # an empty column
    return x


def test_compact_keeps_values_and_chooses_by_density(matrix: torch.Tensor) -> None:
    sparse = compact(matrix)
    assert is_sparse(sparse)
    assert torch.equal(sparse.to_dense(), matrix)
    assert not is_sparse(compact(torch.ones(4, 4)))
    assert not is_sparse(compact(torch.ones(4, 4).to_sparse_csr()))
    assert is_sparse(compact(matrix.to_sparse_coo()))
    assert compact(torch.eye(2, dtype=torch.uint8)).dtype == torch.float32


def test_rows_sum_to_one(matrix: torch.Tensor) -> None:
    dense, sparse = normalise(matrix, "rows"), normalise(compact(matrix), "rows")
    torch.testing.assert_close(sparse.to_dense(), dense)
    sums = dense.abs().sum(1)
    assert sums[3] == 0
    torch.testing.assert_close(
        sums[matrix.abs().sum(1) > 0], torch.ones(int((matrix.abs().sum(1) > 0).sum()))
    )


def test_columns(matrix: torch.Tensor) -> None:
    dense = normalise(matrix, "columns")
    torch.testing.assert_close(dense.mean(0), torch.zeros(30), atol=1e-6, rtol=0)
    filled = matrix.abs().sum(0) > 0
    torch.testing.assert_close(dense.var(0, correction=0)[filled], torch.ones(int(filled.sum())))
    assert not dense[:, ~filled].any()
    sparse = normalise(compact(matrix), "columns").to_dense()
    torch.testing.assert_close(sparse.square().mean(0)[filled], torch.ones(int(filled.sum())))


@pytest.mark.parametrize("how", ["rows", "columns"])
def test_pieces_make_no_difference(how: str, matrix: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = normalise(matrix, how)
    monkeypatch.setattr("gfgnn.graph.features.PIECE", 70)
    torch.testing.assert_close(normalise(matrix, how), whole)
    half = normalise(matrix.half(), how)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), whole, rtol=2e-3, atol=2e-3)


def test_constant_columns_become_zero() -> None:
    assert not normalise(torch.full((1000, 2), 0.1), "columns").any()


def test_select_rows(matrix: torch.Tensor) -> None:
    rows = torch.tensor([5, 3, 39, 0])
    assert torch.equal(select_rows(compact(matrix), rows).to_dense(), matrix[rows])
    assert torch.equal(select_rows(matrix, rows), matrix[rows])


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1], [0], "x_indptr of length 3"),
        ([0, 2, 1], [0], "must rise from 0"),
        ([0, 1, 3], [0], "must rise from 0"),
        ([0, 1, 1], [7], "names column 7; columns are 0 to 2"),
    ],
)
def test_broken_csr(indptr: list[int], indices: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        csr_tensor(torch.tensor(indptr), torch.tensor(indices), torch.ones(len(indices)), (2, 3))


def test_unknown_normalisation() -> None:
    with pytest.raises(InputError, match="normalise must be one of rows, columns; got 'max'"):
        normalise(torch.ones(2, 2), "max")


def test_integer_features_of_a_file_become_float() -> None:
    x = compact(torch.from_numpy(np.array([[3, 200], [1, 255]], dtype=np.uint8)))
    assert x.tolist() == [[3.0, 200.0], [1.0, 255.0]]
