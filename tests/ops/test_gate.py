"""Gates of activations, against autograd."""

from __future__ import annotations

import pytest
import torch

from gfgnn.ops.gate import Gate


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (0, 4), (33, 17), (64, 128)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gate_is_the_derivative_of_its_activation(
    slope: float, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
    x = torch.randn(shape, generator=generator, dtype=dtype)
    (expected,) = torch.autograd.grad(torch.nn.functional.leaky_relu(z, slope), z, x)
    torch.testing.assert_close(Gate.of(z.detach()).through(x, slope), expected, rtol=0.0, atol=0.0)


def test_zero_does_not_pass() -> None:
    z = torch.tensor([[0.0, -0.0, 1e-30]])
    assert Gate.of(z).through(torch.ones(1, 3), 0.0).tolist() == [[0.0, 0.0, 1.0]]
