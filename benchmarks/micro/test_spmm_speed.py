"""Single sparse products, for pytest-benchmark: ``pytest benchmarks/micro -n 0 --benchmark-group-by=param:width``.

For the effect of a change on one machine; ``benchmarks/spmm.py`` has the comparison that is published.
"""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch
from torch import Tensor

from gfgnn.ops import native
from gfgnn.ops.memory import keep_freed_memory
from gfgnn.ops.spmm import csr, spmm

pytest.importorskip("pytest_benchmark", reason="pip install -e '.[bench]'")


@pytest.fixture(scope="module")
def matrix() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(20_000, (2, 200_000), generator=generator)
    return csr(row, col, torch.rand(200_000, generator=generator), (20_000, 20_000))


@pytest.mark.parametrize("width", [1, 7, 16, 64, 256])
@pytest.mark.parametrize("product", ["native", "torch"])
def test_product(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, matrix: Tensor, product: str, width: int
) -> None:
    kernels, about = native.loaded()
    if product == "native" and not kernels:
        pytest.skip(f"no compiled kernel: {about}")
    monkeypatch.setattr(native, "loaded", lambda: (kernels if product == "native" else {}, about))
    benchmark(spmm, matrix, torch.randn(20_000, width))


@pytest.mark.parametrize("pages", ["kept", "fresh"])
def test_destination(benchmark: Any, matrix: Tensor, pages: str) -> None:
    """The same product into an array that is there, and into pages that the system has yet to give."""
    keep_freed_memory()
    x, out = torch.randn(20_000, 256), torch.empty(20_000, 256)

    def fresh() -> Tensor:
        return torch.frombuffer(mmap.mmap(-1, out.nbytes), dtype=out.dtype).view(out.shape)

    benchmark(lambda: spmm(matrix, x, out=out if pages == "kept" else fresh()))


@pytest.mark.parametrize("work", ["product", "copy"])
def test_gathering(benchmark: Any, work: str) -> None:
    """A product that reads a row of 512 bytes anywhere for each of 2 million non-zeros, and a copy of the array."""
    keep_freed_memory()
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(200_000, (2, 2_000_000), generator=generator)
    matrix = csr(row, col, torch.rand(2_000_000, generator=generator), (200_000, 200_000))
    x, out = torch.randn(200_000, 128), torch.empty(200_000, 128)
    benchmark(lambda: spmm(matrix, x, out=out) if work == "product" else out.copy_(x))
