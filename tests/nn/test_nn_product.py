"""The sparse product as an operator of torch: results, first and second derivatives, torch's own checks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.nn import product as module
from gfgnn.nn.adjacency import build_structure
from gfgnn.nn.product import Matrix, product, sampled_product, spmm


def rectangular(requires_grad: bool = False, dtype: torch.dtype = torch.float64) -> tuple[Matrix, Tensor]:
    """A 5 x 4 matrix with a doubled place, an empty row and an empty column, and the values edge by edge."""
    row, col = torch.tensor([4, 0, 2, 2, 0, 4, 1]), torch.tensor([1, 3, 0, 0, 1, 3, 1])
    value = torch.linspace(-1, 2, 7, dtype=dtype).requires_grad_(requires_grad)
    structure = build_structure(row, col, 5, 4)
    assert structure is not None
    return (structure.differentiable if requires_grad else structure.fixed)(value), value


def dense(matrix: Matrix) -> Tensor:
    rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), matrix.crow.long().diff())
    zeros = torch.zeros(matrix.shape, dtype=matrix.value.dtype)
    return zeros.index_put((rows, matrix.col.long()), matrix.value, accumulate=True)


def symmetric() -> Matrix:
    a = torch.tensor([[0.0, 2, 0], [2, 1, 3], [0, 3, 0]], dtype=torch.float64)
    row, col = a.nonzero().t()
    structure = build_structure(row, col, 3, 3)
    assert structure is not None
    return structure.fixed(a[row, col])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_product_and_transposed_product(dtype: torch.dtype, width: int) -> None:
    matrix, _ = rectangular(dtype=dtype)
    x, y = torch.randn(4, width, dtype=dtype), torch.randn(5, width, dtype=dtype)
    torch.testing.assert_close(product(matrix, x), dense(matrix) @ x)
    torch.testing.assert_close(spmm(matrix.value, y, *matrix.parts, True), dense(matrix).t() @ y)


def test_symmetric_matrix_is_kept_once() -> None:
    matrix = symmetric()
    assert matrix.crow_t is matrix.crow
    assert matrix.order_t.numel() == 0
    x = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(spmm(matrix.value, x, *matrix.parts, True), dense(matrix) @ x)


def test_gradients_against_finite_differences() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def function(value: Tensor, x: Tensor) -> Tensor:
        structure = build_structure(row, col, 5, 4)
        assert structure is not None
        return product(structure.differentiable(value), x)

    row, col = torch.tensor([4, 0, 2, 2, 0, 4, 1]), torch.tensor([1, 3, 0, 0, 1, 3, 1])
    value = torch.randn(7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (value, x))
    assert torch.autograd.gradgradcheck(function, (value, x))
    matrix = symmetric()
    x3 = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: product(matrix, x), (x3,))
    assert torch.autograd.gradgradcheck(lambda x: product(matrix, x).square(), (x3,))


def test_gradient_of_the_values_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = rectangular()
    left, right = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    whole = sampled_product(left, right, *matrix.parts)
    monkeypatch.setattr(module, "CHUNK", {"cpu": 7})
    assert torch.equal(sampled_product(left, right, *matrix.parts), whole)


def test_features_are_not_kept_for_a_fixed_matrix() -> None:
    """As large as all activations of a layer, and needed for the gradient of the values only."""
    matrix, _ = rectangular()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        product(matrix, x)
    assert all(t.data_ptr() != x.data_ptr() for t in saved)


@pytest.mark.parametrize("transposed", [False, True])
def test_torchs_checks_of_an_operator(transposed: bool) -> None:
    matrix, _ = rectangular()
    value = matrix.value.clone().requires_grad_()
    x = torch.randn(5 if transposed else 4, 3, dtype=torch.float64, requires_grad=True)
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(spmm, (value, x, *matrix.parts, transposed), test_utils=utils)
    left = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    right = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(sampled_product, (left, right, *matrix.parts), test_utils=utils)


def test_columns_that_are_not_contiguous_and_expanded_gradients() -> None:
    matrix, _ = rectangular()
    x = torch.randn(3, 4, dtype=torch.float64).t().requires_grad_()
    result = product(matrix, x)
    torch.testing.assert_close(result, dense(matrix) @ x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, dense(matrix).sum(0)[:, None].expand(4, 3))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.float64), r"\[4, F\].*\[3, 2\]"),
        (torch.zeros(4, dtype=torch.float64), r"\[4, F\].*\[4\]"),
        (torch.zeros(4, 2), "float32.*float64"),
        (torch.zeros(4, 2, dtype=torch.float16), "float16"),
    ],
)
def test_bad_input(x: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        product(rectangular()[0], x)


def test_places_outside_the_matrix() -> None:
    for row, col in ((5, 0), (0, 4), (-1, 0), (0, -1)):
        assert build_structure(torch.tensor([0, row]), torch.tensor([0, col]), 5, 4) is None


def test_matrix_can_be_copied() -> None:
    matrix, _ = rectangular()
    assert torch.equal(dense(copy.deepcopy(matrix)), dense(matrix))
