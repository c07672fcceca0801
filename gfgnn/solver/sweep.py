"""The sweep step, for graphs with few labels: ridge solves from the current weights (docs/solver.md, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.model.blocks import Block
from gfgnn.ops.ridge import Moments
from gfgnn.problem import Problem
from gfgnn.solver.state import TargetState, Update, Weights, rescaled
from gfgnn.solver.updates import head_update, pass_down, sweep_update


class SweepStep:
    """Hidden layers stay near the identity, the encoder takes the whole shift at once, momentum looks ahead."""

    unit_spread = False

    def start(self, state: TargetState) -> None:
        """Moves every weight on by its momentum before the refresh."""
        momentum = state.fixed.settings.momentum * state.slow
        if momentum > 0:
            state.weights = {n: w + momentum * state.velocity[n] for n, w in state.weights.items()}

    def head(
        self, state: TargetState, name: str, data: Moments, squares: Tensor, bias: bool
    ) -> tuple[Update, Update]:
        """The update of the output layer, and the part of the wanted shift that it takes itself.

        That part is the update without the ridge's pull on the present weights: a layer below that made up for this
        shrinkage, too, would undo the ridge, and scales would run away.
        """
        settings, weight = state.fixed.settings, state.weights[f"{name}.weight"].double()
        update, taken = (
            head_update(
                data, squares, start, ridge=settings.ridge_output, dropout=settings.dropout_output,
                prox=settings.prox, gain=settings.head_gain, bias=bias,
            )
            for start in (weight, torch.zeros_like(weight))
        )  # fmt: skip
        return update, taken

    def hidden(self, state: TargetState, name: str, block: Block, data: Moments) -> Update:
        settings = state.fixed.settings
        offset = (state.weights[f"{name}.weight"] - state.fixed.references[f"{name}.weight"]).double()
        return sweep_update(
            data,
            offset,
            ridge=settings.ridge_hidden,
            prox=settings.prox,
            step=settings.step_size,
            bias=block.bias,
        )

    def inverse(self, state: TargetState, old: Tensor, new: Tensor) -> Tensor:
        """The layer's regularised inverse, with the weights the refresh used; ``(1 + rho)`` makes it exact at I."""
        rho = state.fixed.settings.rho
        return (1.0 + rho) * pass_down(old, rho, relative=False)

    def encoder(self, state: TargetState, index: int, block: Block, r: Tensor) -> Update:
        system, weight, gain = (
            state.fixed.systems[index],
            state.weights[f"block{index}.weight"],
            state.fixed.gain,
        )
        cross, shift = (gain * value for value in system.cross(r))
        change = system.solve(cross - system.ridge[:, None] * weight)
        return Update(change, shift - system.mean @ change if block.bias else None)

    def finish(self, problem: Problem, state: TargetState, rms: float, before: Weights) -> Weights:
        """The gauge: rescales so that H_L, whose rms is known, gets rms 1.

        Without it the ridges, which are relative to curvature, drift. Returns ``before`` on the new scale.
        """
        blocks = problem.model.blocks
        if len(blocks) == 1 or not rms > 0:
            return before
        state.weights, state.good, before = (
            rescaled(weights, rms, blocks) for weights in (state.weights, state.good, before)
        )
        state.scale *= rms
        return before
