"""What the block solver keeps: fixed parts, the state that iterations change, the activations of one iteration."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfgnn.solver.auto import Settings
from gfgnn.solver.input_system import InputSystem
from gfgnn.solver.setup import HeadRows

#: ``block{l}.weight`` [fan_in, out_channels] and ``block{l}.bias`` [out_channels]
Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Fixed:
    """What never changes in a run.

    Attributes:
        masses: node weights c_l of each block, ``[blocks][N]``.
        gain: what the sweep step multiplies the encoder's shift by, 1 / response.
        references: what the ridge shrinks each weight towards.
        horizon: iterations of the whole run; the polar step's size falls linearly to zero over them.
    """

    settings: Settings
    masses: list[Tensor]
    head: HeadRows
    inputs: InputSystem
    gain: float
    references: Weights
    horizon: int


@dataclass(eq=False)
class TargetState:
    """What an iteration changes.

    Attributes:
        velocity: the last change of every weight.
        averages: running means of the polar step.
        slow: factor on every change; the safeguard lowers it and it recovers.
        good: weights of the lowest training loss so far, to go back to.
    """

    fixed: Fixed
    weights: Weights
    velocity: Weights
    generator: torch.Generator
    averages: dict[str, Tensor] = field(default_factory=dict)
    averaged: int = 0  #: iterations in the running means
    iteration: int = 0
    slow: float = 1.0
    first_loss: float = float("inf")
    last_loss: float = float("inf")
    good_loss: float = float("inf")
    good: Weights = field(default_factory=dict)


@dataclass(eq=False)
class Activations:
    """What the forward refresh leaves for the updates.

    Attributes:
        inputs: T of each block below the output; empty for block 0, whose inputs never change.
        outputs: H of each block below the output, whose sign tells where the activation let Z pass.
        head: T of the output block, labelled rows ``[k, fan_in]``.
        scores: of the labelled rows, ``[k, C]``.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    head: Tensor
    scores: Tensor


@dataclass(frozen=True)
class Update:
    """Changes of a layer's weight ``[p, d]`` and bias ``[d]`` (None where the layer has none)."""

    weight: Tensor
    bias: Tensor | None
