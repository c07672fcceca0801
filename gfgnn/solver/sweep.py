"""The sweep step, for graphs with few labels: ridge solves from the current weights (docs/solver.md, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.model.blocks import Block
from gfgnn.model.problem import Problem
from gfgnn.ops.ridge import Moments
from gfgnn.solver.state import Activations, TargetState, Update, Weights
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

    def encoder(self, state: TargetState, block: Block, r: Tensor) -> Update:
        system, weight = state.fixed.inputs, state.weights["block0.weight"]
        cross, shift = system.cross(r.mul_(state.fixed.gain))
        change = system.solve(cross - system.ridge[:, None] * weight)
        return Update(change, shift - system.mean @ change if block.bias else None)

    def finish(self, problem: Problem, state: TargetState, acts: Activations, before: Weights) -> Weights:
        """The gauge: rescales so that H_L has rms 1, which changes no score since activations are homogeneous.

        Without it the ridges, which are relative to curvature, drift. Returns ``before`` on the new scale.
        """
        last = len(problem.model.blocks) - 1
        if last == 0:
            return before
        g = float(acts.outputs[-1].square().mean().sqrt())
        if not g > 0:
            return before
        factors = {f"block{index}.bias": 1.0 / g for index in range(last)}
        factors |= {"block0.weight": 1.0 / g, f"block{last}.weight": g}
        state.weights, state.good, before = (
            {n: w * factors.get(n, 1.0) for n, w in weights.items()}
            for weights in (state.weights, state.good, before)
        )
        return before
