"""Which entries of an array are positive: what the way back needs of a pre-activation, an eighth of a byte or a byte
for each entry in place of four."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Gate:
    """Where an activation of slope 1 above zero let its argument pass.

    Attributes:
        positive: ``[N, d]`` bool.
    """

    positive: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Gate:
        """The gate of a pre-activation ``[N, d]``."""
        return cls(z > 0)

    def through(self, x: Tensor, slope: float) -> Tensor:
        """``x`` where the argument was positive, ``slope * x`` elsewhere, ``[N, d]``."""
        if slope == 0.0:
            return x * self.positive
        return torch.where(self.positive, x, slope * x)
