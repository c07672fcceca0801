"""The polar step, for label-rich graphs: all directions of a layer move by the same rms (docs/solver.md, section 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgnn.model.blocks import Block
from gfgnn.ops.ridge import Moments, factor
from gfgnn.problem import Problem
from gfgnn.solver.state import TargetState, Update, Weights
from gfgnn.solver.updates import head_update, pass_down, polar_direction


class PolarStep:
    """Whitened natural steps of a size that falls linearly over the run; units are kept at unit spread."""

    unit_spread = True

    def start(self, state: TargetState) -> None:
        """Counts the iterations in the running means."""
        state.averaged += 1

    def head(
        self, state: TargetState, name: str, data: Moments, squares: Tensor, bias: bool
    ) -> tuple[Update, Update]:
        """A majorised Newton step of gain 2 (the majoriser is about twice too curved) in heavy-ball momentum, and once
        more as the part of the wanted shift that the output layer takes itself."""
        settings, weight = state.fixed.settings, state.weights[f"{name}.weight"].double()
        update = head_update(
            data, squares, weight, ridge=settings.ridge_output, dropout=settings.dropout_output,
            prox=settings.prox, gain=settings.head_gain, bias=bias,
        )  # fmt: skip
        p = settings.momentum
        change = (1 - p) * update.weight + p * state.velocity[f"{name}.weight"].double()
        shift = None
        if update.bias is not None:
            shift = (1 - p) * update.bias + p * state.velocity[f"{name}.bias"].double()
        return Update(change, shift), Update(change, shift)

    def hidden(self, state: TargetState, name: str, block: Block, data: Moments) -> Update:
        settings, kappa = state.fixed.settings, data.scale
        lower = factor(data.gram, (settings.ridge_hidden + settings.prox) * kappa)
        gradient = self._average(state, f"{name}.gradient", data.cross / data.total)
        shift = self._average(state, f"{name}.shift", data.shift)
        natural = torch.cholesky_solve(data.total * gradient, lower)
        direction = polar_direction(natural, gradient, shift, data.mean, settings.floor)
        offset = (state.weights[f"{name}.weight"] - state.fixed.references[f"{name}.weight"]).double()
        size = self._size(state)
        decay = min(1.0, size) * settings.ridge_hidden * kappa
        change = size * direction.weight - torch.cholesky_solve(decay * offset, lower)
        return Update(change, size * direction.bias if block.bias else None)

    def inverse(self, state: TargetState, old: Tensor, new: Tensor) -> Tensor:
        """The layer's regularised inverse, with the weights just found."""
        return pass_down(new, state.fixed.settings.rho, relative=True)

    def encoder(self, state: TargetState, index: int, block: Block, r: Tensor) -> Update:
        name, system, settings = f"block{index}", state.fixed.systems[index], state.fixed.settings
        weight = state.weights[f"{name}.weight"]
        cross, mean_shift = system.cross(r)
        if not block.bias:  # no bias takes the mean shift, so it must not count in the whitening
            mean_shift = torch.zeros_like(mean_shift)
        gradient = self._average(state, f"{name}.gradient", (cross / system.total).double())
        shift = self._average(state, f"{name}.shift", mean_shift.double())
        natural = system.solve((system.total * gradient).to(weight.dtype)).double()
        direction = polar_direction(natural, gradient, shift, system.mean.double(), settings.floor)
        size = self._size(state)
        decay = min(1.0, size) * settings.ridge_encoder * system.scale
        change = size * direction.weight - system.solve(decay * weight)
        return Update(change, size * direction.bias if block.bias else None)

    def finish(self, problem: Problem, state: TargetState, rms: float, before: Weights) -> Weights:
        """Nothing to rescale: the next refresh keeps the units at unit spread."""
        return before

    def _size(self, state: TargetState) -> float:
        return state.fixed.settings.step_size * max(0.0, 1.0 - state.iteration / state.fixed.horizon)

    def _average(self, state: TargetState, name: str, value: Tensor) -> Tensor:
        """Bias-corrected running mean (Kingma and Ba 2015, section 3)."""
        p = state.fixed.settings.momentum
        mean = state.averages.get(name)
        mean = (1 - p) * value if mean is None else p * mean + (1 - p) * value
        state.averages[name] = mean
        return mean / (1 - p**state.averaged)
