"""The block solver: a forward refresh, then closed-form updates from the output down, one layer at a time.

No derivative is taken through more than one layer. What passes from a layer to the one below is the *message*
``M_l = c_l * D_l``: the shift D_l wanted of the activations H_l, times the node weights c_l. docs/solver.md has the
mathematics and says how this relates to target propagation, K-FAC and backpropagation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import TargetConfig
from gfgnn.model.blocks import LEAKY_SLOPE, Block, propagate_adjoint
from gfgnn.model.build import initial_weights
from gfgnn.model.problem import Problem
from gfgnn.ops.ridge import moments
from gfgnn.solver.auto import resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import CURVATURE, loss, residual
from gfgnn.solver.input_system import make_input_system
from gfgnn.solver.polar import PolarStep
from gfgnn.solver.refresh import refresh
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights, response
from gfgnn.solver.state import Activations, Fixed, TargetState, Update, Weights
from gfgnn.solver.sweep import SweepStep

STEPS: dict[str, SweepStep | PolarStep] = {"sweep": SweepStep(), "polar": PolarStep()}


class TargetSolver:
    """Gradient-free block solver; see the module's text.

    Args:
        config: what is not left to the rule of :mod:`gfgnn.solver.auto`.
        iters: iterations of the whole run, which the polar step's size is planned over.
    """

    name = "target"
    differentiates = False
    default_iters = 60

    def __init__(self, config: TargetConfig | None = None, iters: int | None = None) -> None:
        self.config = config or TargetConfig()
        self.iters = iters or self.default_iters

    def init(self, problem: Problem, generator: torch.Generator) -> TargetState:
        """Node weights, the head's rows, the encoder's system and the starting weights.

        The encoder starts at random, hidden layers at their reference (the identity), the output at zero.
        """
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
        weights = initial_weights(problem.model, generator, problem.dtype)
        weights = {name: w.to(problem.device) for name, w in weights.items()}
        weights |= {name: r.clone() for name, r in references.items() if bool(r.any())}
        weights[f"block{len(blocks) - 1}.weight"].zero_()
        fixed = Fixed(settings, masses, head, inputs, 1.0 / response(problem, head), references, self.iters)
        velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
        return TargetState(fixed, weights, velocity, generator)

    def weights(self, problem: Problem, state: TargetState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        return resolve(self.config, problem).to_dict()

    def step(self, problem: Problem, state: TargetState) -> tuple[TargetState, StepInfo]:
        """One iteration: refresh, safeguard, then head, hidden layers from the top, encoder."""
        rule, before = STEPS[state.fixed.settings.step], state.weights
        rule.start(state)
        acts = refresh(problem, state, unit_spread=rule.unit_spread)
        current = loss(problem.model.task, acts.scores, problem.targets)
        info = StepInfo(current, {"slow": state.slow})
        state.iteration += 1
        if _went_wrong(state, current):
            _go_back(state)
            return state, info
        message = self._head(problem, state, acts, rule)
        if message is not None:
            message = self._hidden(problem, state, acts, message, rule)
            r = _through_activation(problem.model.blocks[0], message, acts.outputs[0], None)
            _apply(state, "block0", rule.encoder(state, problem.model.blocks[0], r))
        before = rule.finish(problem, state, acts, before)
        state.velocity = {n: w - before[n] for n, w in state.weights.items()}
        return state, info

    def _head(
        self, problem: Problem, state: TargetState, acts: Activations, rule: SweepStep | PolarStep
    ) -> Tensor | None:
        """Updates the output block; the message for the activations below ``[N, d]``, or None where there are none."""
        task, index = problem.model.task, len(problem.model.blocks) - 1
        block, name = problem.model.blocks[-1], f"block{index}"
        curvature = CURVATURE[task] / problem.train_index.numel()
        wanted = residual(task, acts.scores, problem.targets)
        if index == 0:
            _apply(state, name, self._single(problem, state, curvature * wanted))
            return None
        t = acts.head
        c = t.new_full((t.size(0),), curvature)
        data = moments(t, c, curvature * wanted, centred=block.bias)
        squares = (c @ t.square()).double()
        update, taken = rule.head(state, name, data, squares, block.bias)
        _apply(state, name, update)
        left = wanted - t @ taken.weight.to(t.dtype)
        left = left if taken.bias is None else left.sub_(taken.bias.to(t.dtype))
        weight = state.weights[f"{name}.weight"]
        down = rule.inverse(state, weight, weight) * _share(block)
        return state.fixed.head.message(curvature * left, down.to(t.dtype))

    def _single(self, problem: Problem, state: TargetState, r: Tensor) -> Update:
        """The update of a network that is one linear map (SGC), whose inputs never change."""
        system = state.fixed.inputs
        full = r.new_zeros(problem.propagation.num_nodes, r.size(1)).index_copy_(0, state.fixed.head.index, r)
        cross, shift = system.cross(full)
        change = system.solve(cross - system.ridge[:, None] * state.weights["block0.weight"])
        return Update(change, shift - system.mean @ change if problem.model.blocks[0].bias else None)

    def _hidden(
        self,
        problem: Problem,
        state: TargetState,
        acts: Activations,
        message: Tensor,
        rule: SweepStep | PolarStep,
    ) -> Tensor:
        """Updates the hidden blocks from the top; the message for H_0."""
        initial: Tensor | None = None
        for index in range(len(problem.model.blocks) - 2, 0, -1):
            block, t, name = problem.model.blocks[index], acts.inputs[index], f"block{index}"
            r = _through_activation(block, message, acts.outputs[index], acts.outputs[index - 1])
            old = state.weights[f"{name}.weight"]
            if not state.fixed.settings.freeze_hidden:
                data = moments(t, state.fixed.masses[index], r, centred=block.bias)
                _apply(state, name, rule.hidden(state, name, block, data))
            down = rule.inverse(state, old, state.weights[f"{name}.weight"]) * _share(block)
            below, extra = propagate_adjoint(block, problem.propagation, r @ down.to(r.dtype))
            message = below if block.skip is None else message + below
            if extra is not None:
                initial = extra if initial is None else initial.add_(extra)
        return message if initial is None else message + initial


def _through_activation(block: Block, message: Tensor, output: Tensor, below: Tensor | None) -> Tensor:
    """The weighted shift wanted of Z: the message where the activation lets it pass, ``[N, d]``."""
    r = message
    if block.activation != "identity":
        z_sign = output
        if block.skip is not None and below is not None:
            z_sign = output - below
        slope = LEAKY_SLOPE if block.activation == "leaky_relu" else 0.0
        # torch's own elementwise gate: message where z_sign > 0, else slope * message, in one pass
        r = torch.ops.aten.leaky_relu_backward(message, z_sign, slope, False)
    return r if block.skip is None else r * block.skip


def _share(block: Block) -> float:
    """The node weight of T's rows relative to that of Z's. The two halves of a concatenation move together when what
    they are made of moves, so each counts half; without this a message doubles in every such layer."""
    return 0.5 if block.propagate == "concat" else 1.0


def _apply(state: TargetState, name: str, update: Update) -> None:
    """Adds an update, slowed by the safeguard's factor."""
    for kind, change in (("weight", update.weight), ("bias", update.bias)):
        if change is not None:
            value = state.weights[f"{name}.{kind}"]
            state.weights[f"{name}.{kind}"] = value + state.slow * change.to(value.dtype)


def _went_wrong(state: TargetState, current: float) -> bool:
    """The safeguard: whether the loss exploded in the last step. Remembers the best state, lets speed recover."""
    if not math.isfinite(state.first_loss):
        state.first_loss = current
    limit = min(1.5 * state.last_loss + 0.2 * state.first_loss, 2.0 * state.first_loss)
    if state.good and not current <= limit:  # NaN is wrong too
        return True
    state.last_loss = current
    state.slow = min(1.0, 1.05 * state.slow)
    if current < state.good_loss:
        state.good_loss, state.good = current, dict(state.weights)
    return False


def _go_back(state: TargetState) -> None:
    """Returns to the weights of the lowest loss, without momentum and at half the speed."""
    state.weights = dict(state.good)
    state.velocity = {name: torch.zeros_like(w) for name, w in state.good.items()}
    state.averages, state.averaged = {}, 0
    state.last_loss = state.good_loss
    state.slow = max(0.5 * state.slow, 1.0 / 64)
