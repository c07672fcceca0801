"""Gates of activations, against autograd."""

from __future__ import annotations

import pytest
import torch

from gfgnn.ops import gate as module
from gfgnn.ops.gate import Gate


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(module, "_kernels", dict)
    elif not module._kernels():
        pytest.skip("no library was built here")


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (0, 4), (33, 17), (64, 128), (1025, 257)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gate_is_the_derivative_of_its_activation(
    slope: float, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
    x = torch.randn(shape, generator=generator, dtype=dtype)
    (expected,) = torch.autograd.grad(torch.nn.functional.leaky_relu(z, slope), z, x)
    gate = Gate.of(z.detach())
    before = x.clone()
    torch.testing.assert_close(gate.through(x, slope), expected, rtol=1e-6, atol=0.0)
    assert torch.equal(x, before)
    assert gate.through(x, slope, in_place=True) is x
    torch.testing.assert_close(x, expected, rtol=1e-6, atol=0.0)


def test_zero_does_not_pass() -> None:
    z = torch.tensor([[0.0, -0.0, 1e-30]])
    assert Gate.of(z).through(torch.ones(1, 3), 0.0).tolist() == [[0.0, 0.0, 1.0]]


def test_any_layout() -> None:
    z, x = torch.randn(7, 5).t(), torch.randn(7, 5).t()
    expected = torch.where(z > 0, x, torch.zeros(()))
    assert torch.equal(Gate.of(z).through(x, 0.0), expected)
    assert torch.equal(Gate.of(z.contiguous()).through(x, 0.0), expected)


def test_what_is_not_finite_stays_visible() -> None:
    x = torch.full((3, 8), torch.nan)
    assert Gate.of(torch.ones(3, 8)).through(x, 0.0).isnan().all()
    assert Gate.of(-torch.ones(3, 8)).through(x, 0.0).isnan().all()


def test_bits_are_packed() -> None:
    gate = Gate.of(torch.ones(16, 8))
    assert gate.positive.nbytes == (16 if module._kernels() else 128)
