"""Closed forms against a fine grid of candidates."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgnn.ops.prox import activation_prox

numbers = st.floats(-3, 3, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers, st.sampled_from([0.0, 0.01, 0.2, 1.0]))
def test_no_other_value_is_better(a: float, q: float, slope: float) -> None:
    grid = torch.linspace(-4, 4, 16001, dtype=torch.float64)

    def value(z: torch.Tensor) -> torch.Tensor:
        return (z - a) ** 2 + (q - torch.where(z > 0, z, slope * z)) ** 2

    found = activation_prox(*(torch.tensor([v], dtype=torch.float64) for v in (a, q)), slope)
    assert float(value(found)) <= float(value(grid).min()) + 1e-12


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_what_fits_already_stays(slope: float) -> None:
    a = torch.tensor([-2.0, -0.1, 0.0, 0.1, 2.0], dtype=torch.float64)
    q = torch.where(a > 0, a, slope * a)
    torch.testing.assert_close(activation_prox(a, q, slope), a)
