"""The block solver: a forward refresh, then closed-form updates from the output down, one layer at a time.

No derivative is taken through more than one layer. What passes from a layer to the one below is the *message*
``M_l = c_l * D_l``: the shift D_l wanted of the activations H_l, times the node weights c_l. docs/solver.md has the
mathematics and says how this relates to target propagation, K-FAC and backpropagation.
"""

from __future__ import annotations

import functools
import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import TargetConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.forward import forward
from gfgnn.model.blocks import FEATURES, Block
from gfgnn.model.build import initial_weights
from gfgnn.model.wiring import INITIAL, Shares, add_shares, is_chain, is_homogeneous, is_input, scatter
from gfgnn.ops.arena import chosen, product, recycle, scaled, total, zeros
from gfgnn.ops.gate import Gate
from gfgnn.ops.memory import release_freed_memory
from gfgnn.ops.ridge import Moments, moment_sums, moments_from, weighted_squares
from gfgnn.problem import Problem
from gfgnn.solver.auto import Settings, resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import CURVATURE, loss_sum, residual
from gfgnn.solver.input_system import make_input_system
from gfgnn.solver.links import addressed, delay, delayed_share, make_links, receive, stages_above
from gfgnn.solver.polar import PolarStep
from gfgnn.solver.refresh import recomputed, refresh
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights, response, semi_orthogonal
from gfgnn.solver.state import Activations, Fixed, Logged, TargetState, Update, Weights, block_of, rescaled
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
        head = make_head_rows(problem) if problem.is_last else None
        gain, single = 1.0, len(blocks) == 1
        systems = {
            index: make_input_system(
                inputs, own_masses[index], problem.grid.parts, centred=blocks[index].bias, prox=settings.prox,
                ridge=settings.ridge_output if single else settings.ridge_encoder,
                dropout=settings.dropout_output if single else settings.dropout_encoder,
            )
            for index, inputs in problem.block_inputs.items()
        }  # fmt: skip
        if problem.is_first:
            gain = 1.0 / response(problem)
        references = reference_weights(problem)
        # those of all blocks are drawn, so that a seed means the same network on every grid
        weights = initial_weights(problem.model, generator, problem.dtype)
        weights = {n: w.to(problem.device) for n, w in weights.items() if block_of(n) in span}
        references |= {
            f"block{index}.weight": semi_orthogonal(weights[f"block{index}.weight"])
            for index in span
            if blocks[index].reference == "random"
        }
        weights |= {name: r.clone() for name, r in references.items() if bool(r.any())}
        if problem.is_last:
            weights[f"block{len(blocks) - 1}.weight"].zero_()
        share = delayed_share(settings.step, delay(problem, self.staleness))
        rows = {index: _rows_that_count(mass) for index, mass in own_masses.items()}
        fixed = Fixed(settings, own_masses, head, systems, gain, references, self.iters, share, rows)
        velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
        seed = int(torch.randint(2**62, (1,), generator=generator))
        links = make_links(problem, self.staleness)
        if problem.device.type == "cpu":
            release_freed_memory()
        return TargetState(fixed, links, weights, velocity, seed, synchronous_until=self.staleness)

    def weights(self, problem: Problem, state: TargetState) -> Weights:
        """The weights, and of blocks that normalise the scales and shifts that these weights lead to."""
        if all(block.norm_eps is None for block in problem.model.blocks):
            return state.weights
        fitted: Weights = {}
        forward(problem, state.weights, fitted)
        return state.weights | fitted

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
        # elsewhere blocks share arrays
        with state.arena.active() if is_chain(problem.model.blocks) else nullcontext():
            return self._step(problem, state)

    def _step(self, problem: Problem, state: TargetState) -> tuple[TargetState, StepInfo]:
        rule, links, before = STEPS[state.fixed.settings.step], state.links, state.weights
        rule.start(state)
        state.iteration += 1
        iteration, synchronous = state.iteration, state.synchronous
        acts = refresh(problem, state, self._from_below(state), unit_spread=rule.unit_spread)
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
        messages = self._from_above(problem, state, acts, rule)
        acts.forget_outputs()
        if messages:
            self._hidden(problem, state, acts, messages, rule)
            self._send_down(problem, state, messages)
        before = rule.finish(problem, state, rms, before)
        state.velocity = {n: w - before[n] for n, w in state.weights.items()}
        return state, info

    def _from_below(self, state: TargetState) -> list[Tensor]:
        """H of the block below this stage, and H_0 where it is needed; nothing in the first stage."""
        return receive(state.links.up, state)

    def _from_above(
        self, problem: Problem, state: TargetState, acts: Activations, rule: Rule
    ) -> dict[int, Tensor]:
        """The messages for this stage's blocks: from the output block, or from the stage above for its highest block
        and, where higher stages look at H_0, their sum for that. Empty where no block lies below the output."""
        messages: dict[int, Tensor] = {}
        if problem.is_last:
            acts.forget_outputs(last=True)
            _receive(messages, self._head(problem, state, acts, rule))
            for array in (acts.head, acts.scores):
                if array is not None:
                    recycle(array)
            acts.head = acts.scores = None
            return messages
        message, *initial = receive(state.links.down, state)
        messages[problem.span.stop - 1] = message
        if initial:  # the sum is added to in place; what was received may be another rank's
            messages[INITIAL] = functools.reduce(torch.add, initial[1:], initial[0].clone())
        return messages

    def _send_down(self, problem: Problem, state: TargetState, messages: dict[int, Tensor]) -> None:
        """Sends what is left for blocks of lower stages."""
        down = state.links.down
        below, initial = messages.get(problem.span.start - 1), messages.get(INITIAL)
        down.send(state.iteration, state.synchronous, addressed(down, below, initial))

    def _head(self, problem: Problem, state: TargetState, acts: Activations, rule: Rule) -> Shares:
        """Updates the output block; the messages for the blocks that it takes, ``[N, d]``."""
        task, index = problem.model.task, len(problem.model.blocks) - 1
        block, name = problem.model.blocks[-1], f"block{index}"
        assert acts.scores is not None
        curvature = CURVATURE[task] / problem.facts.num_train
        wanted = residual(task, acts.scores, problem.targets)
        if index == 0:
            _apply(state, name, self._single(problem, state, curvature * wanted))
            return []
        t, down_to = acts.head, state.fixed.head
        assert t is not None
        assert down_to is not None
        c = t.new_full((t.size(0),), curvature)
        sums = moment_sums(t, c, curvature * wanted, centred=block.bias)
        charged = state.fixed.settings.dropout_output > 0
        squares = weighted_squares(t, c) if charged else sums[0].new_zeros(t.size(1))
        *sums, squares = sum_over(problem.grid.parts, *sums, squares)
        update, taken = rule.head(state, name, moments_from(sums), squares, block.bias)
        _apply(state, name, update)
        left = wanted - t @ taken.weight.to(t.dtype)
        left = left if taken.bias is None else left.sub_(taken.bias.to(t.dtype))
        weight = state.weights[f"{name}.weight"]
        down = rule.inverse(state, weight, weight) * _share(block)
        return down_to.message(curvature * left, down.to(t.dtype))

    def _single(self, problem: Problem, state: TargetState, r: Tensor) -> Update:
        """The update of a network that is one linear map (SGC), whose inputs never change."""
        system = state.fixed.encoder
        full = r.new_zeros(problem.propagation.num_nodes, r.size(1)).index_copy_(0, problem.train_index, r)
        cross, shift = system.cross(full)
        change = system.solve(cross - system.ridge[:, None] * state.weights["block0.weight"])
        return Update(change, shift - system.mean @ change if problem.model.blocks[0].bias else None)

    def _hidden(
        self, problem: Problem, state: TargetState, acts: Activations, messages: dict[int, Tensor], rule: Rule
    ) -> None:
        """Updates this stage's blocks below the output from the top; what is left in ``messages`` is for blocks below.

        Takes T and the gate of each block out of ``acts`` and its message out of ``messages``, so that each is freed as
        soon as nothing needs it: the work arrays of a block take the room of the blocks above it.
        """
        blocks = problem.model.blocks
        chain = is_chain(blocks)
        for index in reversed(range(problem.span.start, min(problem.span.stop, len(blocks) - 1))):
            block, gate = blocks[index], acts.gates.pop(index, None)
            if index == 0 and INITIAL in messages:
                _receive(messages, [(0, messages.pop(INITIAL))])
            if index not in messages:  # it feeds nothing that has been updated
                acts.inputs.pop(index, None)
                continue
            message = messages.pop(index)
            passed_on = _passed_on(block, index, message)
            # what other blocks or ranks look at, too, is left as it is
            own = chain and block.skip is None and index != problem.span.stop - 1
            r = _through_activation(block, message, gate, in_place=own)
            del message, gate
            _receive(messages, passed_on)
            if is_input(blocks, index):
                _apply(state, f"block{index}", rule.encoder(state, index, block, r))
                if own:
                    recycle(r)
            else:
                shifts = r
                if block.weighted:
                    shifts = self._update(problem, state, acts, index, r, rule)
                elif index in acts.scales:
                    shifts = _unscaled(r, acts.scales[index], state, rule)
                if own and shifts is not r:
                    recycle(r)
                del r
                _receive(messages, scatter(block, index, problem.propagations, shifts))
                if block.propagate != "none":  # else they are the message
                    recycle(shifts)
                del shifts

    def _update(
        self, problem: Problem, state: TargetState, acts: Activations, index: int, r: Tensor, rule: Rule
    ) -> Tensor:
        """Updates a hidden block from its T and the weighted shift ``r`` wanted of Z; what that means for T."""
        block, name, rows = problem.model.blocks[index], f"block{index}", state.fixed.rows[index]
        old, wanted = state.weights[f"{name}.weight"], r if rows is None else chosen(r, rows)
        t = acts.inputs.pop(index, None)
        if not state.fixed.settings.freeze_hidden:
            t = recomputed(problem, state, acts, index) if t is None else t
            data = self._moments(problem, state, index, t, wanted)
            _apply(state, name, rule.hidden(state, name, block, data))
            recycle(t)
        del t
        down = rule.inverse(state, old, state.weights[f"{name}.weight"]) * _share(block)
        shifts = product(wanted, down.to(r.dtype))
        if rows is None:
            return shifts
        return zeros(r.size(0), shifts.size(1), r).index_copy_(0, rows, shifts)

    def _moments(
        self, problem: Problem, state: TargetState, index: int, t: Tensor, wanted: Tensor
    ) -> Moments:
        """Moments of all parts' rows; a Gram matrix serves ``gram_every`` iterations, on the scale of each."""
        every, known = state.fixed.settings.gram_every, state.grams.get(index)
        fresh = known is None or (state.iteration - 1) % every == 0
        sums = moment_sums(
            t, state.fixed.masses[index], wanted, problem.model.blocks[index].bias, gram=fresh,
            rows=state.fixed.rows[index],
        )  # fmt: skip
        data = moments_from(sum_over(problem.grid.parts, *sums))
        if known is not None and not fresh:
            gram, scale = known
            return replace(data, gram=gram * (scale / state.scale) ** 2)
        if every > 1:
            state.grams[index] = data.gram, state.scale
        return data


def _rows_that_count(mass: Tensor) -> Tensor | None:
    """The nodes that some labelled one hears of through the blocks above, where they are less than half of all."""
    rows = mass.nonzero().squeeze(1)
    return rows if 2 * rows.numel() < mass.numel() else None


def _receive(messages: dict[int, Tensor], shares: Shares) -> None:
    """Adds messages to those already there for the same blocks. Only the sum for H_0 is never another's tensor."""
    for source, share in shares:
        if source not in messages:
            messages[source] = share
        elif source == INITIAL:
            messages[source].add_(share)
        else:
            messages[source] = total(messages[source], share)


def _passed_on(block: Block, index: int, message: Tensor) -> Shares:
    """What goes past the block's own branch to the blocks that it adds."""
    if block.skip is not None:
        return [(index - 1, message)]
    _, others = add_shares(block)
    return [(source, scaled(message, factor)) for source, factor in others if source != FEATURES]


def _unscaled(r: Tensor, scale: Tensor, state: TargetState, rule: Rule) -> Tensor:
    """What a shift wanted of a block's normalised Z means for Z before, the statistics being held."""
    diagonal = torch.diag(scale)
    return r @ rule.inverse(state, diagonal, diagonal).to(r.dtype)


def _agree(problem: Problem, state: TargetState, acts: Activations, rule: Rule) -> tuple[int, float, float]:
    """What the last stage measured, told to every rank: in which iteration, loss, rms of H below the output."""
    total = squares = count = 0.0
    if problem.is_last:
        assert acts.scores is not None
        total = loss_sum(problem.model.task, acts.scores, problem.targets)
        h = acts.top()
        if h is not None and not rule.unit_spread and is_homogeneous(problem.model.blocks):
            squares, count = float(torch.linalg.vector_norm(h)) ** 2, float(h.numel())
    known, (total, squares, count) = state.links.agreement.reach(
        state.iteration, state.synchronous, (total, squares, count)
    )
    rms = math.sqrt(squares / count) if count else 0.0
    # measured on the scale of then; the gauge factors since then have changed H by as much
    return known, total / problem.facts.num_train, rms * state.log[known].scale / state.scale


def _through_activation(block: Block, message: Tensor, gate: Gate | None, *, in_place: bool) -> Tensor:
    """The weighted shift wanted of Z: the message where the activation lets it pass, ``[N, d]``."""
    r = message if gate is None else gate.through(message, block.slope_below, in_place=in_place)
    own = add_shares(block)[0] if block.skip is None else block.skip
    return r if own == 1.0 else scaled(r, own)


def _share(block: Block) -> float:
    """What the inverse's shift of T is multiplied by, where T has several parts.

    The parts move together when what they are made of moves, so each of two equal ones counts half; without this a
    message doubles in every such layer. For n parts with factors of total s, identity weights I / s pass s / n of a
    shift down to every part, and a total of 1 / s is due.
    """
    return block.num_parts / block.total_scale**2


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
    origin, blocks = known, problem.model.blocks
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
