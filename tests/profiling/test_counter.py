"""Calls, bytes and flops against hand counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gfgnn.ops.ridge import factor, moment_sums
from gfgnn.ops.spmm import csr, spmm
from gfgnn.profiling.counter import Count, Counter
from gfgnn.profiling.labels import label, recording
from gfgnn.profiling.recorder import Recorder

SIZE = st.integers(1, 6)


def counted(work: Callable[[], object]) -> dict[str, Count]:
    """What one iteration that does ``work`` counts, without the kinds that it has none of."""
    recorder = Recorder(torch.device("cpu"))
    with torch.inference_mode(), recorder.iteration(1):
        work()
    recorder.spans(1)
    return {kind: count for kind, count in recorder.counter.counts.items() if count.calls}


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.float64, 8)])
def test_a_sparse_product(dtype: torch.dtype, size: int) -> None:
    row, col = torch.tensor([0, 0, 1, 4]), torch.tensor([1, 2, 0, 3])
    matrix, dense = csr(row, col, torch.ones(4, dtype=dtype), (5, 6)), torch.ones(6, 3, dtype=dtype)
    # 4 values and 4 column numbers of 4 bytes, 6 row pointers, 6 rows read and 5 written of 3 columns
    expected = Count(calls=1, bytes=4 * size + 4 * 4 + 6 * 4 + (6 + 5) * 3 * size, flops=2 * 4 * 3)
    assert counted(lambda: spmm(matrix, dense)) == {"sparse product": expected}


def test_a_gram() -> None:
    t, c, r = torch.rand(10, 4), torch.rand(10), torch.rand(10, 3)
    expected = Count(calls=1, bytes=4 * (10 * 4 + 10 + 10 * 3 + 4 * 4 + 4 * 3), flops=2 * 10 * 4 * (4 + 3))
    assert counted(lambda: moment_sums(t, c, r, centred=True)) == {"Gram": expected}


@given(m=SIZE, k=SIZE, n=SIZE, b=SIZE)
def test_dense_products(m: int, k: int, n: int, b: int) -> None:
    x, y, z = torch.ones(m, k), torch.ones(k, n), torch.ones(m, n)
    stacks = torch.ones(b, m, k), torch.ones(b, k, n)
    products: list[tuple[Callable[[], Tensor], int, int]] = [
        (lambda: x @ y, 1, 0), (lambda: torch.addmm(z, x, y), 1, m * n), (lambda: torch.bmm(*stacks), b, 0),
        (lambda: stacks[0] @ stacks[1], b, 0),
    ]  # fmt: skip
    for product, times, added in products:
        counter = Counter()
        with torch.inference_mode(), counter:
            product()
        numbers = times * (m * k + k * n + m * n) + added
        assert counter.counts["dense product"] == Count(1, 4 * numbers, 2 * times * m * k * n)
    counter = Counter()
    with torch.inference_mode(), counter:
        x @ y[:, 0]
    assert counter.counts["dense product"] == Count(1, 4 * (m * k + k + m), 2 * m * k)


def test_solves() -> None:
    gram, rhs = torch.eye(6, dtype=torch.float64), torch.ones(6, 2, dtype=torch.float64)
    solves = counted(lambda: torch.cholesky_solve(rhs, factor(gram, torch.tensor(1.0))))["solve"]
    assert (solves.calls, solves.flops) == (2, 6**3 // 3 + 2 * 6 * 6 * 2)
    assert counted(lambda: torch.linalg.eigh(gram))["solve"].flops == 9 * 6**3
    assert counted(lambda: torch.linalg.inv(gram))["solve"].flops == 2 * 6**3


X = torch.ones(10, 4)


@pytest.mark.parametrize(
    ("work", "numbers"),
    [
        (lambda: X + X, 3 * 40),
        (lambda: X.clone().add_(X), 2 * 40 + 3 * 40),
        (lambda: torch.relu(X), 2 * 40),
        (lambda: X.sum(0), 40 + 4),
        (lambda: torch.empty(10, 4).copy_(X), 2 * 40),
        (lambda: torch.cat([X, X]), 2 * 80),
        (lambda: X.double(), 40 + 80),
        (lambda: X[torch.arange(3)], 2 * 12 + 2 * 3 + 2 * 3),  # three long numbers made, and read
        (lambda: torch.linalg.vector_norm(X), 40 + 1),
    ],
)
def test_elementwise(work: Callable[[], object], numbers: int) -> None:
    found = counted(work)
    assert found.keys() == {"elementwise"}
    assert (found["elementwise"].bytes, found["elementwise"].flops) == (4 * numbers, 0)


def test_views_count_nothing() -> None:
    assert counted(lambda: (X.t(), X[2:5], X.to(torch.float32), X.reshape(4, 10), X.split(3), X[None])) == {}
    assert counted(lambda: X.t().reshape(40))["elementwise"].bytes == 4 * 80


def test_what_lies_in_a_label_is_the_labels_and_counts_once() -> None:
    counter = Counter()

    class Sink:
        def open(self, kind: str, name: str) -> None:
            counter.open(kind)

        close = staticmethod(counter.close)

    with recording(Sink()), counter, label("exchange", "outer"):
        torch.ones(3) + 1
        with label("exchange", "inner"):
            torch.ones(3) * 2
        with label("waiting", "inner"):
            pass
    calls = {kind: count.calls for kind, count in counter.counts.items() if count.calls}
    assert calls == {"exchange": 1, "waiting": 1}
    assert counter.working == set()


def test_a_derivative_is_seen() -> None:
    weight = torch.ones(4, 2, requires_grad=True)
    counter = Counter()
    with counter:
        torch.autograd.grad((X @ weight).square().sum(), weight)
    products = counter.counts["dense product"]
    assert (products.calls, products.flops) == (2, 2 * (2 * 10 * 4 * 2))
    assert counter.counts["elementwise"].calls >= 4, "square and sum, and what multiplies by 2 x"
