"""The compiled sparse product against float64, in odd shapes, strides, types and places; and torch's in its stead."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.ops import native
from gfgnn.ops.spmm import spmm, with_values

KERNELS, ABOUT = native.load()
#: of Linux; the module mmap names it from Python 3.13 on
MAP_NORESERVE = 0x4000
needs_kernel = pytest.mark.skipif(not KERNELS, reason=f"no compiled kernel: {ABOUT}")


@pytest.fixture(params=["native", "torch"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both products in turn."""
    if request.param == "native" and not KERNELS:
        pytest.skip(f"no compiled kernel: {ABOUT}")
    monkeypatch.setattr(native, "loaded", lambda: (KERNELS if request.param == "native" else {}, ABOUT))
    return request.param


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def random_csr(
    seed: int, rows: int, columns: int, mean: float, index: torch.dtype = torch.int32
) -> tuple[Tensor, Tensor]:
    """A random matrix in float64, unsorted and with places named twice, as CSR and dense."""
    generator = np.random.default_rng(seed)
    counts = (
        generator.poisson(mean, rows) * generator.integers(0, 2, rows) if columns else np.zeros(rows, int)
    )
    crow = torch.from_numpy(np.concatenate([[0], counts.cumsum()]))
    col = torch.from_numpy(generator.integers(0, max(columns, 1), int(counts.sum())))
    value = torch.from_numpy(generator.normal(size=int(counts.sum())))
    matrix = torch.sparse_csr_tensor(
        crow.to(index), col.to(index), value, (rows, columns), check_invariants=False
    )
    return matrix, dense_of(matrix)


def dense_of(matrix: Tensor) -> Tensor:
    """The matrix in float64, doubled places summed there."""
    crow, col = matrix.crow_indices().long(), matrix.col_indices().long()
    rows = torch.repeat_interleave(torch.arange(matrix.size(0)), crow.diff())
    zeros = torch.zeros(matrix.shape, dtype=torch.float64)
    return zeros.index_put_((rows, col), matrix.values().double(), accumulate=True)


def magnitude(matrix: Tensor) -> Tensor:
    return dense_of(with_values(matrix, matrix.values().abs()))


def converted(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    return with_values(matrix, matrix.values().to(dtype))


def close(found: Tensor, exact: Tensor, size: Tensor, relative: float) -> None:
    """Every entry to ``relative`` of the sum of magnitudes it was summed from."""
    assert bool(((found.double() - exact).abs() <= relative * size + 1e-30).all())


@needs_kernel
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 12),
    columns=st.integers(0, 9),
    width=st.one_of(st.integers(0, 20), st.integers(21, 600)),
    dtype=st.sampled_from(list(native.SUMS)),
    index=st.sampled_from([torch.int32, torch.int64]),
    layout=st.sampled_from(["plain", "strided", "transposed", "expanded"]),
    scale=st.sampled_from([1.0, -0.5]),
    plus_scale=st.sampled_from([0.0, 1.0, 0.25]),
    in_place=st.booleans(),
)
def test_equals_float64_whatever_the_shape(
    seed: int, rows: int, columns: int, width: int, dtype: torch.dtype, index: torch.dtype, layout: str,
    scale: float, plus_scale: float, in_place: bool,
) -> None:  # fmt: skip
    matrix, _ = random_csr(seed, rows, columns, 3.0, index)
    sums = native.SUMS[dtype]
    matrix = converted(matrix, sums)
    full = dense_of(matrix)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(columns, width, generator=generator).to(dtype)
    if layout == "strided":
        x = torch.full((columns, width + 5), torch.nan).to(dtype)[:, 2 : 2 + width].copy_(x)
    elif layout == "transposed":
        x = x.t().contiguous().t()
    elif layout == "expanded" and columns:
        x = x[:1].expand(columns, width)
    y = torch.randn(rows, width + 3, generator=generator).to(sums)[:, :width]
    before = y.clone().double()
    found = native.multiply(
        matrix, x, scale, y if plus_scale else None, plus_scale, (0, rows), y if in_place else None
    )
    assert found is not None
    assert found.dtype == sums
    exact = scale * (full @ x.double()) + plus_scale * before
    size = abs(scale) * (magnitude(matrix) @ x.double().abs()) + plus_scale * before.abs()
    close(found, exact, size, 1e-6 if sums == torch.float32 else 1e-14)


@pytest.mark.parametrize("width", [1, 7, 40, 64])
def test_scaled_and_added(served: str, width: int) -> None:
    matrix, full = random_csr(3, 20, 15, 4.0)
    x, y = torch.randn(15, width, dtype=torch.float64), torch.randn(20, width, dtype=torch.float64)
    found = spmm(matrix, x, scale=0.9, plus=y, plus_scale=0.1)
    torch.testing.assert_close(found, 0.9 * (full @ x) + 0.1 * y)
    nan = torch.full_like(y, torch.nan)
    torch.testing.assert_close(spmm(matrix, x, plus=nan, plus_scale=0.0), full @ x)
    out = y.clone()
    assert spmm(matrix, x, plus=out, out=out) is out
    torch.testing.assert_close(out, full @ x + y)


def test_a_range_of_rows_leaves_the_others_alone(served: str) -> None:
    matrix, full = random_csr(4, 30, 30, 5.0)
    x = torch.randn(30, 37, dtype=torch.float64)
    for first, last in ((0, 30), (5, 5), (7, 19), (29, 30)):
        table = torch.full((30, 41), torch.nan, dtype=torch.float64)
        spmm(matrix, x, rows=(first, last), out=table[:, 2:39])
        torch.testing.assert_close(table[first:last, 2:39], (full @ x)[first:last])
        table[first:last, 2:39] = torch.nan
        assert bool(table.isnan().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_summed_in_thirty_two(served: str, dtype: torch.dtype) -> None:
    matrix, _ = random_csr(5, 40, 30, 20.0)
    matrix = converted(matrix, torch.float32)
    x = torch.randn(30, 33).to(dtype)
    found = spmm(matrix, x)
    assert found.dtype == torch.float32
    close(found, dense_of(matrix) @ x.double(), magnitude(matrix) @ x.double().abs(), 2e-6)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_sixteen_bits(dtype: torch.dtype) -> None:
    numbers = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype).view(64, 1024)
    one = torch.eye(64).to_sparse_csr()
    torch.testing.assert_close(spmm(one, numbers), numbers.float(), rtol=0, atol=0, equal_nan=True)


def test_numbers_that_are_none(served: str) -> None:
    matrix = torch.eye(3).to_sparse_csr()
    x = torch.tensor([[torch.nan, 1.0], [torch.inf, 2.0], [-torch.inf, 3.0]])
    torch.testing.assert_close(spmm(matrix, x), x, equal_nan=True)


def test_what_torch_records_is_left_to_torch() -> None:
    matrix, full = random_csr(6, 7, 5, 3.0)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    spmm(matrix, x, scale=0.5, plus=y, plus_scale=2.0).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    torch.testing.assert_close(x.grad, 0.5 * full.sum(0)[:, None].expand(5, 3))
    torch.testing.assert_close(y.grad, torch.full_like(y, 2.0))


def test_what_does_not_fit_is_refused(served: str) -> None:
    matrix, _ = random_csr(0, 4, 3, 2.0)
    x = torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(InputError, match=r"\[4, 3\], \[4, 2\]"):
        spmm(matrix, torch.ones(4, 2, dtype=torch.float64))
    with pytest.raises(InputError, match=r"got torch\.float32"):
        spmm(matrix, x.float())
    with pytest.raises(InputError, match=r"plus must be \[4, 2\]"):
        spmm(matrix, x, plus=torch.ones(3, 2, dtype=torch.float64))
    with pytest.raises(InputError, match="out must be"):
        spmm(matrix, x, out=torch.ones(4, 2))
    with pytest.raises(InputError, match="rows needs out"):
        spmm(matrix, x, rows=(0, 2))
    with pytest.raises(InputError, match="last <= 4"):
        spmm(matrix, x, rows=(2, 5), out=torch.ones(4, 2, dtype=torch.float64))


@needs_kernel
def test_two_threads_give_the_bits_of_one(two_threads: None) -> None:
    matrix, x = hubs()
    several = spmm(matrix, x)
    torch.set_num_threads(1)
    assert torch.equal(several, spmm(matrix, x))


@needs_kernel
def test_python_threads_at_once(two_threads: None) -> None:
    matrix, x = hubs()
    expected = spmm(matrix, x)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(found, expected) for found in pool.map(lambda _: spmm(matrix, x), range(12)))


@needs_kernel
def test_other_python_threads_run_meanwhile() -> None:
    """The longest time that this thread stood still is shorter than the product: it did not wait for its end."""
    matrix, x = hubs(nodes=20_000, width=512)
    for _ in range(10):
        took: list[float] = []

        def multiply(took: list[float] = took) -> None:
            started = time.perf_counter()
            spmm(matrix, x)
            took.append(time.perf_counter() - started)

        thread = threading.Thread(target=multiply)
        still, last = 0.0, time.perf_counter()
        thread.start()
        while thread.is_alive():
            now = time.perf_counter()
            still, last = max(still, now - last), now
        if still < took[0] / 2:
            return
    pytest.fail(f"Python stood still for {still:.3f} s of a product that took {took[0]:.3f} s")


@needs_kernel
def test_a_fork_after_a_product_on_threads(two_threads: None) -> None:
    matrix, x = hubs()
    expected = spmm(matrix, x).numpy()
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(spmm(matrix, x).numpy(), expected) else 1)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended[0] == child, "the child waits for threads that it has not got"
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def hubs(nodes: int = 3000, width: int = 64) -> tuple[Tensor, Tensor]:
    """A matrix whose first row holds a third of its non-zeros, and whose second half holds none."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(nodes, dtype=torch.int64)
    counts[0], counts[1 : nodes // 2] = 10 * nodes, 40
    crow = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
    col = torch.randint(nodes, (int(crow[-1]),), generator=generator, dtype=torch.int32)
    value = torch.rand(col.numel(), generator=generator)
    matrix = torch.sparse_csr_tensor(crow, col, value, (nodes, nodes), check_invariants=False)
    return matrix, torch.randn(nodes, width, generator=generator)


def virtual(numbers: int, dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory until they are written."""
    size = numbers * dtype.itemsize
    if not sys.platform.startswith("linux"):
        pytest.skip("maps memory that is never used as Linux does")
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=dtype)
    except (AttributeError, OSError, ValueError) as error:
        pytest.skip(f"cannot map {size / 2**30:.0f} GB of memory that is never used: {error}")


@needs_kernel
def test_places_beyond_two_to_the_31() -> None:
    """Rows of x and of the result, and non-zeros, whose places need more than 32 bits."""
    stride = 2**23 + 16
    x, out = (virtual(600 * stride, torch.float32).as_strided((600, 24), (stride, 1)) for _ in range(2))
    x[599], x[3] = torch.arange(24.0), 1.0
    crow = torch.zeros(601, dtype=torch.int32)
    crow[600:] = 2
    matrix = torch.sparse_csr_tensor(
        crow,
        torch.tensor([599, 3], dtype=torch.int32),
        torch.tensor([2.0, 1.0]),
        (600, 600),
        check_invariants=False,
    )
    spmm(matrix, x, rows=(590, 600), out=out)
    assert torch.equal(out[599], 2 * torch.arange(24.0) + 1)
    start = 2**31 + 5
    col, value = virtual(start + 2, torch.int64), virtual(start + 2, torch.float32)
    col[start], col[start + 1], value[start], value[start + 1] = 1, 0, 3.0, 5.0
    far = torch.sparse_csr_tensor(
        torch.tensor([start, start + 2]), col, value, (1, 2), check_invariants=False
    )
    assert torch.equal(spmm(far, torch.tensor([[1.0], [10.0]])), torch.tensor([[35.0]]))
