"""The block solver: a forward refresh, then closed-form updates from the output down, one layer at a time.

No derivative is taken through more than one layer. What passes from a layer to the one below is the *message*
``M_l = c_l * D_l``: the shift D_l wanted of the activations H_l, times the node weights c_l. docs/solver.md has the
mathematics and says how this relates to target propagation, K-FAC and backpropagation.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import TargetConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.model.blocks import LEAKY_SLOPE, Block, propagate_adjoint
from gfgnn.model.build import initial_weights
from gfgnn.ops.memory import release_freed_memory
from gfgnn.ops.ridge import moment_sums, moments_from
from gfgnn.problem import Problem
from gfgnn.solver.auto import Settings, resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import CURVATURE, loss_sum, residual
from gfgnn.solver.input_system import make_input_system
from gfgnn.solver.links import addressed, delay, delayed_share, make_links, receive, stages_above
from gfgnn.solver.polar import PolarStep
from gfgnn.solver.refresh import refresh
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights, response
from gfgnn.solver.state import Activations, Fixed, Logged, TargetState, Update, Weights, rescaled
from gfgnn.solver.sweep import SweepStep

Rule = SweepStep | PolarStep
STEPS: dict[str, Rule] = {"sweep": SweepStep(), "polar": PolarStep()}


class TargetSolver:
    """Gradient-free block solver; see the module's text.

    Every rank of a grid makes the same calls; what is sent is listed in docs/distributed.md.

    Args:
        config: what is not left to the rule of :mod:`gfgnn.solver.auto`.
        iters: iterations of the whole run, which the polar step's size is planned over.
        staleness: age in iterations of the messages between stages; 0 waits for each other in every iteration.
    """

    name = "target"
    differentiates = False
    default_iters = 60

    def __init__(
        self, config: TargetConfig | None = None, iters: int | None = None, staleness: int = 0
    ) -> None:
        self.config = config or TargetConfig()
        self.iters = iters or self.default_iters
        self.staleness = staleness

    def init(self, problem: Problem, generator: torch.Generator) -> TargetState:
        """Node weights, the head's rows, the encoder's system and the starting weights of this stage's blocks.

        The encoder starts at random, hidden layers at their reference (the identity), the output at zero.
        """
        blocks, span = problem.model.blocks, problem.span
        settings = self._settings(problem)
        masses = node_weights(problem, settings.node_weights)
        own_masses = {index: masses[index].to(problem.dtype) for index in span}
        head = inputs = None
        gain = 1.0
        if problem.is_last:
            head = make_head_rows(blocks[-1], problem.propagation, problem.train_index)
        if problem.is_first:
            single = len(blocks) == 1
            inputs = make_input_system(
                problem.inputs, own_masses[0], problem.grid.parts, centred=blocks[0].bias, prox=settings.prox,
                ridge=settings.ridge_output if single else settings.ridge_encoder,
                dropout=settings.dropout_output if single else settings.dropout_encoder,
            )  # fmt: skip
            gain = 1.0 / response(problem)
        references = reference_weights(problem)
        # those of all blocks are drawn, so that a seed means the same network on every grid
        weights = initial_weights(problem.model, generator, problem.dtype)
        weights = {n: w.to(problem.device) for n, w in weights.items() if block_of(n) in span}
        weights |= {name: r.clone() for name, r in references.items() if bool(r.any())}
        if problem.is_last:
            weights[f"block{len(blocks) - 1}.weight"].zero_()
        share = delayed_share(settings.step, delay(problem, self.staleness))
        fixed = Fixed(settings, own_masses, head, inputs, gain, references, self.iters, share)
        velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
        seed = int(torch.randint(2**62, (1,), generator=generator))
        links = make_links(problem, self.staleness)
        if problem.device.type == "cpu":
            release_freed_memory()
        return TargetState(fixed, links, weights, velocity, seed, synchronous_until=self.staleness)

    def weights(self, problem: Problem, state: TargetState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        return self._settings(problem).to_dict()

    def _settings(self, problem: Problem) -> Settings:
        late = self.staleness > 0 and problem.grid.num_stages > 1
        return resolve(self.config, problem.model, problem.facts, late=late)

    def finish(self, problem: Problem, state: TargetState) -> None:
        """Receives what is still under way. Called once by every rank, after the last iteration."""
        for link in (state.links.up, state.links.down, state.links.agreement):
            link.drain()

    def step(self, problem: Problem, state: TargetState) -> tuple[TargetState, StepInfo]:
        """One iteration: refresh, safeguard, then head, hidden layers from the top, encoder."""
        rule, links, before = STEPS[state.fixed.settings.step], state.links, state.weights
        rule.start(state)
        state.iteration += 1
        iteration, synchronous = state.iteration, state.synchronous
        acts = refresh(problem, state, receive(links.up, state), unit_spread=rule.unit_spread)
        links.up.send(
            iteration,
            synchronous,
            addressed(links.up, acts.top(), acts.initial),
        )
        state.log[iteration] = Logged(dict(state.weights), state.lag, state.scale)
        known, current, rms = _agree(problem, state, acts, rule)
        info = StepInfo(current, {"slow": state.slow})
        if _went_wrong(problem, state, known, current):
            _go_back(problem, state)
            return state, info
        above = self._from_above(problem, state, acts, rule)
        if above:
            message, initial = self._hidden(problem, state, acts, above, rule)
            if problem.is_first:
                message = message if initial is None else message + initial
                r = _through_activation(problem.model.blocks[0], message, acts.outputs[0], None)
                _apply(state, "block0", rule.encoder(state, problem.model.blocks[0], r))
            links.down.send(iteration, synchronous, addressed(links.down, message, initial))
        before = rule.finish(problem, state, rms, before)
        state.velocity = {n: w - before[n] for n, w in state.weights.items()}
        return state, info

    def _from_above(
        self, problem: Problem, state: TargetState, acts: Activations, rule: Rule
    ) -> list[Tensor]:
        """The message for the highest block of this stage below the output, and the sum for H_0 where higher stages
        look at it; empty where no block lies below the output."""
        if problem.is_last:
            message = self._head(problem, state, acts, rule)
            acts.head = acts.scores = None
            return [] if message is None else [message]
        message, *initial = receive(state.links.down, state)
        return [message, functools.reduce(torch.add, initial)] if initial else [message]

    def _head(self, problem: Problem, state: TargetState, acts: Activations, rule: Rule) -> Tensor | None:
        """Updates the output block; the message for the activations below ``[N, d]``, or None where there are none."""
        task, index, head = problem.model.task, len(problem.model.blocks) - 1, state.fixed.head
        block, name = problem.model.blocks[-1], f"block{index}"
        assert acts.scores is not None
        assert head is not None
        curvature = CURVATURE[task] / problem.facts.num_train
        wanted = residual(task, acts.scores, problem.targets)
        if index == 0:
            _apply(state, name, self._single(problem, state, curvature * wanted))
            return None
        t = acts.head
        assert t is not None
        c = t.new_full((t.size(0),), curvature)
        sums = moment_sums(t, c, curvature * wanted, centred=block.bias)
        *sums, squares = sum_over(problem.grid.parts, *sums, (c @ t.square()).double())
        update, taken = rule.head(state, name, moments_from(sums), squares, block.bias)
        _apply(state, name, update)
        left = wanted - t @ taken.weight.to(t.dtype)
        left = left if taken.bias is None else left.sub_(taken.bias.to(t.dtype))
        weight = state.weights[f"{name}.weight"]
        down = rule.inverse(state, weight, weight) * _share(block)
        return head.message(curvature * left, down.to(t.dtype))

    def _single(self, problem: Problem, state: TargetState, r: Tensor) -> Update:
        """The update of a network that is one linear map (SGC), whose inputs never change."""
        system = state.fixed.encoder
        full = r.new_zeros(problem.propagation.num_nodes, r.size(1)).index_copy_(0, problem.train_index, r)
        cross, shift = system.cross(full)
        change = system.solve(cross - system.ridge[:, None] * state.weights["block0.weight"])
        return Update(change, shift - system.mean @ change if problem.model.blocks[0].bias else None)

    def _hidden(
        self,
        problem: Problem,
        state: TargetState,
        acts: Activations,
        above: list[Tensor],
        rule: Rule,
    ) -> tuple[Tensor, Tensor | None]:
        """Updates this stage's hidden blocks from the top; the message for H below them, and the sum for H_0.

        Takes T and H of each block out of ``acts`` and the tensors out of ``above``, so that each is freed as soon as
        nothing needs it: the work arrays of a block take the room of the blocks above it.
        """
        message, parts, own = above.pop(0), problem.grid.parts, None
        initial = above.pop() if above else None
        hidden = [index for index in problem.span if 0 < index < len(problem.model.blocks) - 1]
        for index in reversed(hidden):
            block, t, name = problem.model.blocks[index], acts.inputs.pop(), f"block{index}"
            r = _through_activation(block, message, acts.outputs.pop(), acts.top())
            rest = None if block.skip is None else message
            del message
            old = state.weights[f"{name}.weight"]
            if not state.fixed.settings.freeze_hidden:
                sums = moment_sums(t, state.fixed.masses[index], r, centred=block.bias)
                data = moments_from(sum_over(parts, *sums))
                _apply(state, name, rule.hidden(state, name, block, data))
            del t
            down = rule.inverse(state, old, state.weights[f"{name}.weight"]) * _share(block)
            r = r @ down.to(r.dtype)
            message, extra = propagate_adjoint(block, problem.propagation, r)
            del r
            message = message if rest is None else rest + message
            if extra is not None:
                own = extra if own is None else own.add_(extra)
            del extra, rest
        if own is None or initial is None:
            return message, own if own is not None else initial
        return message, own + initial


def block_of(name: str) -> int:
    """The number of the block that a weight belongs to: 12 for ``block12.bias``."""
    return int(name.split(".")[0].removeprefix("block"))


def _agree(problem: Problem, state: TargetState, acts: Activations, rule: Rule) -> tuple[int, float, float]:
    """What the last stage measured, told to every rank: in which iteration, loss, rms of H below the output."""
    total = squares = count = 0.0
    if problem.is_last:
        assert acts.scores is not None
        total = loss_sum(problem.model.task, acts.scores, problem.targets)
        h = acts.top()
        if h is not None and not rule.unit_spread:
            squares, count = float(h.square().sum()), float(h.numel())
    known, (total, squares, count) = state.links.agreement.reach(
        state.iteration, state.synchronous, (total, squares, count)
    )
    rms = math.sqrt(squares / count) if count else 0.0
    # measured on the scale of then; the gauge factors since then have changed H by as much
    return known, total / problem.facts.num_train, rms * state.log[known].scale / state.scale


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
    """Adds an update, slowed by the safeguard's factor and where the stage hears late of what its steps did."""
    share = state.slow * state.fixed.share
    for kind, change in (("weight", update.weight), ("bias", update.bias)):
        if change is not None:
            value = state.weights[f"{name}.{kind}"]
            state.weights[f"{name}.{kind}"] = value + share * change.to(value.dtype)


def _went_wrong(problem: Problem, state: TargetState, known: int, current: float) -> bool:
    """The safeguard: whether the loss of iteration ``known`` had exploded.

    Remembers the weights of the lowest loss and lets speed recover. That loss came from weights which a stage with n
    stages over it used n messages earlier.
    """
    origin, blocks = known, len(problem.model.blocks)
    for _ in range(stages_above(problem)):
        origin -= state.log[origin].lag
    used = state.log[origin]
    # as far back as any later iteration may look, through every stage above
    oldest = state.iteration - state.links.staleness * (1 + stages_above(problem))
    for old in [i for i in state.log if i < oldest]:
        del state.log[old]
    if known <= state.judged:  # the first late iterations hear again of synchronous ones
        return False
    state.judged = known
    if not math.isfinite(state.first_loss):
        state.first_loss = current
    limit = min(1.5 * state.last_loss + 0.2 * state.first_loss, 2.0 * state.first_loss)
    if state.good and not current <= limit:  # NaN is wrong too
        return True
    state.last_loss = current
    state.slow = min(1.0, 1.05 * state.slow)
    if current < state.good_loss:
        state.good_loss, state.good = current, rescaled(used.weights, state.scale / used.scale, blocks)
    return False


def _go_back(problem: Problem, state: TargetState) -> None:
    """Returns to the weights of the lowest loss, without momentum and at half the speed.

    Messages under way come from weights that are given up: stages wait for each other until there are new ones.
    """
    state.weights = dict(state.good)
    state.velocity = {name: torch.zeros_like(w) for name, w in state.good.items()}
    state.averages, state.averaged = {}, 0
    state.last_loss = state.good_loss
    state.slow = max(0.5 * state.slow, 1.0 / 64)
    state.synchronous_until = state.iteration + state.links.staleness
