"""What the training loop asks of a solver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class StepInfo:
    """What one iteration reports: the training loss *before* its update, and solver-specific numbers."""

    loss: float
    extra: dict[str, float] = field(default_factory=dict)


class Solver(Protocol):
    """Trains a model in iterations.

    ``init`` makes the state, ``step`` does one iteration and returns the new state; ``weights`` gives the state's
    weights in the model's order, ``{name: tensor}``, ready for :func:`gfgnn.forward.forward`. The loop exists
    once, in :mod:`gfgnn.train`. A state is a dataclass of tensors and numbers; ``step`` may reuse its memory.
    """

    name: str
    default_iters: int

    def init(self, problem: Any, generator: torch.Generator) -> Any: ...

    def step(self, problem: Any, state: Any) -> tuple[Any, StepInfo]: ...

    def weights(self, problem: Any, state: Any) -> dict[str, Tensor]: ...

    def describe(self, problem: Any) -> dict[str, Any]:
        """The settings actually used (what ``auto`` chose), for result.json and the log."""
        ...
