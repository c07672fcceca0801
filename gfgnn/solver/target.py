"""The block solver: a forward refresh, then closed-form updates from the output down, one layer at a time.

No derivative is taken through more than one layer. What passes from a layer to the one below is the *message*
``M_l = c_l * D_l``: the shift D_l wanted of the activations H_l, times the node weights c_l. docs/solver.md has the
mathematics and says how this relates to target propagation, K-FAC and backpropagation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import TargetConfig
from gfgnn.model.blocks import LEAKY_SLOPE, Block, output_of, propagate, propagate_adjoint, transform
from gfgnn.model.build import initial_weights
from gfgnn.model.problem import Problem
from gfgnn.ops.ridge import Moments, factor, moments
from gfgnn.solver.auto import Settings, resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import CURVATURE, loss, residual
from gfgnn.solver.input_system import InputSystem, make_input_system
from gfgnn.solver.setup import HeadRows, make_head_rows, node_weights, reference_weights, response
from gfgnn.solver.updates import Update, head_update, pass_down, polar_direction, sweep_update

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Fixed:
    """What never changes in a run."""

    settings: Settings
    masses: list[Tensor]  #: node weights per block, ``[blocks][N]``
    head: HeadRows
    inputs: InputSystem
    gain: float  #: encoder gain of the sweep step, 1 / response
    references: Weights  #: what the ridge shrinks hidden weights towards


@dataclass(eq=False)
class TargetState:
    """What an iteration changes."""

    fixed: Fixed
    weights: Weights
    velocity: Weights  #: last change of every weight
    averages: dict[str, Tensor]  #: running means of the polar step
    generator: torch.Generator
    iteration: int = 0
    slow: float = 1.0
    last_loss: float = float("inf")
    good: Weights = field(default_factory=dict)  #: weights of the lowest training loss
    good_loss: float = float("inf")


@dataclass(eq=False)
class Activations:
    """What the forward refresh leaves for the updates."""

    inputs: list[Tensor]  #: T of each hidden block (an empty tensor for block 0)
    outputs: list[Tensor]  #: activation of each block below the output, whose sign is the gate
    head: Tensor  #: T of the output block, labelled rows ``[k, fan_in]``
    scores: Tensor  #: ``[k, C]``


class TargetSolver:
    """Gradient-free block solver; see the module's text."""

    name = "target"
    differentiates = False
    default_iters = 40

    def __init__(self, config: TargetConfig | None = None, iters: int | None = None) -> None:
        self.config = config or TargetConfig()
        self.iters = iters or self.default_iters

    def init(self, problem: Problem, generator: torch.Generator) -> TargetState:
        """Node weights, the head's rows, the encoder's system and the starting weights."""
        blocks = problem.model.blocks
        settings = resolve(self.config, problem)
        head = make_head_rows(blocks[-1], problem.propagation, problem.train_index)
        masses = [m.to(problem.dtype) for m in node_weights(problem, settings.node_weights)]
        single = len(blocks) == 1
        inputs = make_input_system(
            problem.inputs, masses[0], centred=blocks[0].bias, prox=settings.prox,
            ridge=settings.ridge_output if single else settings.ridge_encoder,
            dropout=settings.dropout_output if single else settings.dropout_encoder,
        )  # fmt: skip
        references = reference_weights(problem)
        weights = {n: w.to(problem.device) for n, w in initial_weights(problem.model, generator, problem.dtype).items()}
        weights.update({n: r.clone() for n, r in references.items() if bool(r.any())})
        weights[f"block{len(blocks) - 1}.weight"].zero_()
        fixed = Fixed(settings, masses, head, inputs, 1.0 / response(problem, head), references)
        velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
        return TargetState(fixed, weights, velocity, {}, generator)

    def weights(self, problem: Problem, state: TargetState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        return resolve(self.config, problem).to_dict()

    def step(self, problem: Problem, state: TargetState) -> tuple[TargetState, StepInfo]:
        """One iteration: refresh, safeguard, then head, hidden layers from the top, encoder, gauge."""
        settings, before = state.fixed.settings, state.weights
        if settings.step == "sweep" and settings.momentum > 0:
            state.weights = {n: w + settings.momentum * state.velocity[n] for n, w in before.items()}
        acts = self._refresh(problem, state)
        current = loss(problem.model.task, acts.scores, problem.targets)
        self._safeguard(state, current)
        start = dict(state.weights)
        message = self._head(problem, state, acts)
        if message is not None:
            message = self._hidden(problem, state, acts, message)
            self._encoder(problem, state, acts.outputs[0], message)
        if settings.step == "sweep":
            before = self._gauge(problem, state, acts, before)
        state.velocity = {n: w - before[n] for n, w in state.weights.items()}
        del start
        state.iteration += 1
        return state, StepInfo(current, {"slow": state.slow})

    # -- the parts of an iteration ------------------------------------------------------------------------------

    def _refresh(self, problem: Problem, state: TargetState) -> Activations:
        """The forward pass with the current weights; the output block for labelled rows only."""
        weights, blocks, fixed = state.weights, problem.model.blocks, state.fixed
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        if len(blocks) == 1:
            scores = problem.inputs.matmul(weights["block0.weight"])[fixed.head.index]
            return Activations([], [], scores.new_empty(0), scores + weights.get("block0.bias", 0.0))
        for index, block in enumerate(blocks[:-1]):
            weight, bias = weights[f"block{index}.weight"], weights.get(f"block{index}.bias")
            if index == 0:
                t = weight.new_empty(0)
                z = problem.inputs.matmul(weight)
                z = z if bias is None else z.add_(bias)
                below = None
            else:
                below = outputs[-1]
                t = self._drop(state, propagate(block, problem.propagation, below, outputs[0]))
                z = transform(t, weight, bias)
            inputs.append(t)
            outputs.append(output_of(block, z, below))
        t = fixed.head.apply(outputs[-1])
        last = f"block{len(blocks) - 1}"
        return Activations(inputs, outputs, t, transform(t, weights[f"{last}.weight"], weights.get(f"{last}.bias")))

    def _drop(self, state: TargetState, t: Tensor) -> Tensor:
        p = state.fixed.settings.sampled_dropout
        if p == 0.0:
            return t
        keep = torch.rand(t.shape, generator=state.generator, dtype=t.dtype) >= p
        return t * keep.to(t.device) / (1.0 - p)

    def _safeguard(self, state: TargetState, current: float) -> None:
        """Keeps the state of the lowest loss; slows down when the loss rises, goes back when it explodes."""

    def _head(self, problem: Problem, state: TargetState, acts: Activations) -> Tensor | None:
        """Updates the output block and returns the message for the activations below it, ``[N, d]``."""
        fixed, settings, task = state.fixed, state.fixed.settings, problem.model.task
        index = len(problem.model.blocks) - 1
        block, name = problem.model.blocks[-1], f"block{index}"
        curvature = CURVATURE[task] / problem.train_index.numel()
        wanted = residual(task, acts.scores, problem.targets)
        if index == 0:
            full = wanted.new_zeros(problem.propagation.num_nodes, wanted.size(1))
            full[fixed.head.index] = curvature * wanted
            cross, shift = fixed.inputs.cross(full)
            rhs = cross - fixed.inputs.ridge[:, None] * state.weights[f"{name}.weight"]
            change = fixed.inputs.solve(rhs)
            self._apply(state, name, Update(change, shift - fixed.inputs.mean @ change if block.bias else None))
            return None
        t = acts.head
        c = t.new_full((t.size(0),), curvature)
        data = moments(t, c, curvature * wanted, centred=block.bias)
        update = head_update(
            data, (c @ t.square()).double(), state.weights[f"{name}.weight"].double(), ridge=settings.ridge_output,
            dropout=settings.dropout_output, prox=settings.prox, gain=settings.head_gain, bias=block.bias,
        )  # fmt: skip
        if settings.step == "polar":
            update = self._averaged(state, name, update, settings.momentum)
        self._apply(state, name, update)
        taken = update if settings.step == "polar" else head_update(
            data, (c @ t.square()).double(), 0 * state.weights[f"{name}.weight"].double(), ridge=settings.ridge_output,
            dropout=settings.dropout_output, prox=settings.prox, gain=settings.head_gain, bias=block.bias,
        )
        left = wanted - t @ taken.weight.to(t.dtype)
        left = left if taken.bias is None else left - taken.bias.to(t.dtype)
        inverse = pass_down(state.weights[f"{name}.weight"], settings.rho, relative=True).to(t.dtype)
        return fixed.head.message(curvature * left, inverse)

    def _hidden(self, problem: Problem, state: TargetState, acts: Activations, message: Tensor) -> Tensor:
        """Updates the hidden blocks from the top; returns the message for H_0."""
        fixed, settings = state.fixed, state.fixed.settings
        initial: Tensor | None = None
        for index in range(len(problem.model.blocks) - 2, 0, -1):
            block, t = problem.model.blocks[index], acts.inputs[index]
            r = self._through_activation(block, message, acts.outputs[index], acts.outputs[index - 1])
            old = state.weights[f"block{index}.weight"]
            if not settings.freeze_hidden:
                data = moments(t, fixed.masses[index], r, centred=block.bias)
                self._apply(state, f"block{index}", self._hidden_update(state, index, block, data))
            if settings.step == "sweep":
                inverse = (1.0 + settings.rho) * pass_down(old, settings.rho, relative=False)
            else:
                inverse = pass_down(state.weights[f"block{index}.weight"], settings.rho, relative=True)
            below, extra = propagate_adjoint(block, problem.propagation, r @ inverse.to(r.dtype))
            message = below if block.skip is None else message + below
            if extra is not None:
                initial = extra if initial is None else initial.add_(extra)
        return message if initial is None else message + initial

    def _hidden_update(self, state: TargetState, index: int, block: Block, data: Moments) -> Update:
        settings, name = state.fixed.settings, f"block{index}"
        weight = state.weights[f"{name}.weight"].double()
        offset = weight - state.fixed.references[f"{name}.weight"].double()
        if settings.step == "sweep":
            return sweep_update(
                data, offset, ridge=settings.ridge_hidden, prox=settings.prox, bias=block.bias,
                step=settings.step_size * state.slow,
            )  # fmt: skip
        kappa = data.scale
        lower = factor(data.gram, (settings.ridge_hidden + settings.prox) * kappa)
        gradient = self._average(state, f"{name}.g", data.cross / data.total)
        shift = self._average(state, f"{name}.r", data.shift)
        direction = polar_direction(
            torch.cholesky_solve(data.total * gradient, lower), gradient, shift, data.mean, settings.floor
        )
        spread = ((weight * (data.gram @ weight)).sum() / (data.total * weight.size(1))).clamp(min=0).sqrt()
        size = self._polar_size(state) * spread
        decay = min(1.0, self._polar_size(state)) * settings.ridge_hidden * kappa
        change = size * direction.weight - decay * torch.cholesky_solve(offset, lower)
        return Update(change, size * direction.bias if block.bias else None)

    def _encoder(self, problem: Problem, state: TargetState, output: Tensor, message: Tensor) -> None:
        """Updates block 0 from the message for its activations."""
        settings, system = state.fixed.settings, state.fixed.inputs
        block, weight = problem.model.blocks[0], state.weights["block0.weight"]
        r = self._through_activation(block, message, output, None)
        if settings.step == "sweep":
            cross, shift = system.cross(r.mul_(state.fixed.gain))
            change = system.solve(cross - system.ridge[:, None] * weight)
            self._apply(state, "block0", Update(change, shift - system.mean @ change if block.bias else None))
            return
        cross, shift = system.cross(r)
        gradient = self._average(state, "block0.g", (cross / system.total).double())
        shift = self._average(state, "block0.r", shift.double())
        natural = system.solve((system.total * gradient).to(weight.dtype)).double()
        direction = polar_direction(natural, gradient, shift, system.mean.double(), settings.floor)
        spread = output.square().mean().sqrt() * 2**0.5  # of Z, from relu's half of it
        size = self._polar_size(state) * spread
        decay = min(1.0, self._polar_size(state)) * settings.ridge_encoder * system.scale
        change = size * direction.weight - decay * system.solve(weight)
        self._apply(state, "block0", Update(change, size * direction.bias if block.bias else None))

    def _gauge(self, problem: Problem, state: TargetState, acts: Activations, before: Weights) -> Weights:
        """Rescales so that H_L has rms 1; the function does not change, since activations are homogeneous.

        Without it the ridges, which are relative to curvature, drift. Returns ``before`` on the new scale.
        """
        blocks = problem.model.blocks
        if len(blocks) == 1:
            return before
        g = float(acts.outputs[-1].square().mean().sqrt())
        if not g > 0:
            return before
        factors = {f"block{index}.bias": 1.0 / g for index in range(len(blocks) - 1)}
        factors["block0.weight"] = 1.0 / g
        factors[f"block{len(blocks) - 1}.weight"] = g
        state.weights = {n: w * factors.get(n, 1.0) for n, w in state.weights.items()}
        state.good = {n: w * factors.get(n, 1.0) for n, w in state.good.items()}
        return {n: w * factors.get(n, 1.0) for n, w in before.items()}

    # -- small helpers ------------------------------------------------------------------------------------------

    def _through_activation(self, block: Block, message: Tensor, output: Tensor, below: Tensor | None) -> Tensor:
        """The weighted shift wanted of Z: the message where the activation lets it pass."""
        if block.activation == "identity":
            r = message
        else:
            active = output if block.skip is None else output - below
            slope = 0.0 if block.activation == "relu" else LEAKY_SLOPE
            r = torch.ops.aten.leaky_relu_backward(message, active, slope, True) if slope else torch.ops.aten.threshold_backward(message, active, 0)
        return r if block.skip is None else r * block.skip

    def _polar_size(self, state: TargetState) -> float:
        done = state.iteration / self.iters
        return state.fixed.settings.step_size * max(0.0, 1.0 - done) * state.slow

    def _average(self, state: TargetState, name: str, value: Tensor) -> Tensor:
        """Bias-corrected running mean (Kingma and Ba 2015, section 3)."""
        p = state.fixed.settings.momentum
        mean = state.averages.get(name)
        mean = (1 - p) * value if mean is None else p * mean + (1 - p) * value
        state.averages[name] = mean
        return mean / (1 - p ** (state.iteration + 1))

    def _averaged(self, state: TargetState, name: str, update: Update, p: float) -> Update:
        """Heavy-ball momentum on the change of a layer."""
        weight = (1 - p) * update.weight + p * state.velocity[f"{name}.weight"].double()
        if update.bias is None:
            return Update(weight, None)
        return Update(weight, (1 - p) * update.bias + p * state.velocity[f"{name}.bias"].double())

    def _apply(self, state: TargetState, name: str, update: Update) -> None:
        weight = state.weights[f"{name}.weight"]
        state.weights[f"{name}.weight"] = weight + update.weight.to(weight.dtype)
        if update.bias is not None:
            state.weights[f"{name}.bias"] = state.weights[f"{name}.bias"] + update.bias.to(weight.dtype)
