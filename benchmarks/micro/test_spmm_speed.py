"""Single sparse products, for pytest-benchmark: ``pytest benchmarks/micro -n 0 --benchmark-group-by=param:width``.

For the effect of a change on one machine; ``benchmarks/spmm.py`` has the comparison that is published.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gfgnn.ops import native
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
