"""ADMM over the layers of a network, swept from the output down."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import AdmmConfig
from gfgnn.exchange.routes import Route, upward
from gfgnn.exchange.stages import Channel
from gfgnn.exchange.sums import sum_over
from gfgnn.model.blocks import propagate, propagate_adjoint, transform
from gfgnn.model.build import Model, initial_weights
from gfgnn.model.wiring import is_chain
from gfgnn.ops.prox import activation_prox
from gfgnn.ops.ridge import Moments, moment_sums, moments_from
from gfgnn.problem import Problem
from gfgnn.solver.admm.measures import activated, auxiliary_scores, fitted, measures
from gfgnn.solver.admm.state import AdmmState, Fixed
from gfgnn.solver.admm.updates import activation_step, copy_step, weight_step
from gfgnn.solver.auto import Settings, resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import CURVATURE, loss_prox, loss_sum
from gfgnn.solver.input_system import make_input_system
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights
from gfgnn.solver.state import Update, Weights, block_of


class AdmmSolver:
    """The alternating direction method of multipliers; see :mod:`gfgnn.solver.admm.updates` for what it minimises.

    An iteration goes once from the output block down and updates p, W and b, z, q and the dual of each block with what
    has just been found above it (Gauss-Seidel). For chains of blocks that take ``H`` or ``S H``; every rank of a grid
    makes the same calls.

    Args:
        config: penalties, ridges and dropouts.
        iters: not used; ADMM needs no horizon.
        staleness: age in iterations of what stages hear of each other; 0 sweeps from stage to stage in one iteration
            (Gauss-Seidel), above it all stages work at once (Jacobi).
    """

    name = "admm"
    differentiates = False
    default_iters = 60

    def __init__(
        self, config: AdmmConfig | None = None, iters: int | None = None, staleness: int = 0
    ) -> None:
        self.config = config or AdmmConfig()
        self.staleness = staleness

    def init(self, problem: Problem, generator: torch.Generator) -> AdmmState:
        """The network's own embeddings, so that all residuals start at zero. The first block starts at random, hidden
        ones at the identity, the output at zero."""
        check_admm(problem.model)
        blocks, settings, span = problem.model.blocks, self._settings(problem), problem.span
        masses = [mass.to(problem.dtype) for mass in node_weights(problem, settings.node_weights)]
        system = None
        if problem.is_first:
            system = make_input_system(
                problem.inputs, masses[0], problem.grid.parts, centred=blocks[0].bias, ridge=settings.ridge_encoder,
                dropout=settings.dropout_encoder, prox=self.config.prox,
            )  # fmt: skip
        references = reference_weights(problem)
        # those of all blocks are drawn, so that a seed means the same network on every grid
        drawn = initial_weights(problem.model, generator, problem.dtype)
        weights = {n: w.to(problem.device) for n, w in drawn.items() if block_of(n) in span}
        weights |= {name: r.clone() for name, r in references.items() if bool(r.any())}
        if problem.is_last:
            weights[f"block{len(blocks) - 1}.weight"].zero_()
        head = make_head_rows(problem) if problem.is_last else None
        links = make_links(problem, self.staleness)
        fixed = Fixed(settings, masses, head, system, references, *links, self.staleness)
        return embedded(problem, fixed, weights, self.config.nu, self.config.rho)

    def weights(self, problem: Problem, state: AdmmState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        settings = self._settings(problem)
        names = (
            "node_weights",
            "ridge_encoder",
            "ridge_hidden",
            "ridge_output",
            "dropout_encoder",
            "dropout_output",
        )
        penalties = {
            name: getattr(self.config, name)
            for name in ("inside", "nu", "rho", "over_relaxation", "prox", "resync")
        }
        return penalties | {name: getattr(settings, name) for name in names}

    def embedding_scores(self, problem: Problem, state: AdmmState) -> Tensor:
        """Scores ``[N, C]`` of this part's nodes from the embeddings; called by every part of the last stage."""
        return auxiliary_scores(problem, state)

    def _settings(self, problem: Problem) -> Settings:
        return resolve(self.config.as_target(), problem.model, problem.facts)

    def step(self, problem: Problem, state: AdmmState) -> tuple[AdmmState, StepInfo]:
        """One sweep. Reports the loss of the embeddings' scores before it, and residuals and the Lagrangian after."""
        state.iteration += 1
        blocks, span = problem.model.blocks, problem.span
        up, down, waits = state.fixed.up, state.fixed.down, state.synchronous
        before = {index: state.q[index].clone() for index in state.z}
        if not waits:
            take_from_below(problem, state)
        if not problem.is_last:
            (state.p[span.stop - 1],) = down.receive(state.iteration, waits)
        loss = self._output(problem, state) if problem.is_last else 0.0
        for index in reversed(range(span.start, min(span.stop, len(blocks) - 1))):
            self._hidden(problem, state, index)
        # stages without a neighbour call too: what will arrive is asked for in the same breath
        down.send(state.iteration, waits, [] if problem.is_first else [state.p[span.start - 1]])
        top = span.stop - 1
        up.send(state.iteration, waits, [] if problem.is_last else [state.q[top], dual(problem, state, top)])
        if waits:
            take_from_below(problem, state)
        loss, extra = measures(problem, state, before, loss)
        if self.config.resync and state.iteration % self.config.resync == 0:
            state = embedded(problem, state.fixed, state.weights, state.nu, state.rho, state.iteration)
        return state, StepInfo(loss, extra)

    def finish(self, problem: Problem, state: AdmmState) -> None:
        """Receives what is still under way. Called once by every rank, after the last iteration."""
        state.fixed.up.drain()
        state.fixed.down.drain()

    def _output(self, problem: Problem, state: AdmmState) -> float:
        """p, W, b and z of the output block; this part's share of the mean loss of the embeddings' scores before."""
        blocks, settings, head = problem.model.blocks, state.fixed.settings, state.fixed.head
        assert head is not None
        assert state.scores is not None
        index, task = len(blocks) - 1, problem.model.task
        block, name, k = blocks[-1], f"block{len(blocks) - 1}", problem.facts.num_train
        c = CURVATURE[task] / k
        weight, bias = state.layer(index)
        t = head.apply(state.p.__getitem__)
        fit = transform(t, weight, bias)
        loss, misfit = loss_sum(task, fit, problem.targets), fit - state.scores
        ((_, pull),) = head.message(c * state.nu * misfit, weight.t())
        self._copy(problem, state, index, weight, pull)
        t = head.apply(state.p.__getitem__)
        rows = t.new_full((t.size(0),), c)
        missing = state.scores - transform(t, weight, bias)
        data, squares = summed(problem, t, rows, c * missing, centred=block.bias)
        update = weight_step(
            data, squares, weight.double(), ridge=settings.ridge_output,
            dropout=settings.dropout_output, prox=self.config.prox, bias=block.bias,
        )  # fmt: skip
        _apply(state, name, update)
        a = transform(t, *state.layer(index))
        # (1/k) loss + nu c / 2 |z - a|^2, times k
        state.scores = loss_prox(task, a, problem.targets, state.nu * CURVATURE[task], state.scores)
        return loss / k

    def _hidden(self, problem: Problem, state: AdmmState, index: int) -> None:
        """p, W, b, z, q and the dual of one block below the output."""
        block, fixed, name = problem.model.blocks[index], state.fixed, f"block{index}"
        c, nu, rho = fixed.masses[index], state.nu, state.rho
        weight, bias = state.layer(index)
        if index == 0:
            assert fixed.system is not None
            r = (state.z[0] - fitted(problem, 0, weight, bias, state.p)).mul_(c[:, None])
            cross, shift = fixed.system.cross(r)
            change = fixed.system.solve(cross - fixed.system.ridge[:, None] * weight)
            _apply(state, name, Update(change, shift - fixed.system.mean @ change if block.bias else None))
            a = fitted(problem, 0, *state.layer(0), state.p)
        else:
            t = propagate(block, problem.propagation, state.p[index - 1])
            misfit = (transform(t, weight, bias) - state.z[index]).mul_(nu * c[:, None])
            pull, _ = propagate_adjoint(block, problem.propagation, misfit @ weight.t())
            self._copy(problem, state, index, weight, pull)
            t = propagate(block, problem.propagation, state.p[index - 1])
            missing = (state.z[index] - transform(t, weight, bias)).mul_(c[:, None])
            data, squares = summed(problem, t, c, missing, centred=block.bias)
            offset = (weight - fixed.references[f"{name}.weight"]).double()
            update = weight_step(
                data, squares, offset, ridge=fixed.settings.ridge_hidden, dropout=0.0,
                prox=self.config.prox, bias=block.bias,
            )  # fmt: skip
            _apply(state, name, update)
            a = transform(t, *state.layer(index))
        u = dual(problem, state, index)
        state.z[index] = activation_prox(a, state.q[index], block.slope_below)
        relaxed = self.config.over_relaxation
        p = state.p[index] if relaxed == 1.0 else relaxed * state.p[index] + (1 - relaxed) * state.q[index]
        state.q[index] = activation_step(activated(problem, index, state.z[index]), p, u, nu, rho)

    def _copy(self, problem: Problem, state: AdmmState, index: int, weight: Tensor, pull: Tensor) -> None:
        """p of block ``index``, from the gradient ``pull`` of its fit, not yet over the node weights. q and z of the
        block below have not changed since their dual was left."""
        c = state.fixed.masses[index - 1]
        pull = pull * inverse_of(c)[:, None]
        p, q = state.p[index - 1], state.q[index - 1]
        state.p[index - 1] = copy_step(
            p, q, dual(problem, state, index - 1), pull, weight, state.nu, state.rho
        )


def summed(problem: Problem, t: Tensor, c: Tensor, r: Tensor, *, centred: bool) -> tuple[Moments, Tensor]:
    """Moments of all parts' rows, and ``sum_i c_i t_ij^2``. Called by every part; sends them in one message."""
    own = moment_sums(t, c, r, centred=centred)
    *sums, squares = sum_over(problem.grid.parts, *own, (c @ t.square()).double())
    return moments_from(sums), squares


def inverse_of(c: Tensor) -> Tensor:
    """``1 / c`` where a node weighs anything, else 0."""
    return torch.where(c > 0, 1.0 / c.clamp(min=torch.finfo(c.dtype).tiny), 0.0)


def dual(problem: Problem, state: AdmmState, index: int) -> Tensor:
    """u of ``p_{l+1} = q_l``: ``nu (q - f(z))``, which is what the last update of q left."""
    if index < problem.span.start:
        assert state.sent_dual is not None
        return state.sent_dual
    return (state.q[index] - activated(problem, index, state.z[index])).mul_(state.nu)


def make_links(problem: Problem, staleness: int) -> tuple[Channel, Channel]:
    """The ways up and down between this stage and its neighbours. Nothing is sent yet."""
    blocks, span, grid = problem.model.blocks, problem.span, problem.grid
    staleness = staleness if grid.num_stages > 1 else 0
    below, above = grid.stage - 1, grid.stage + 1
    from_below = () if problem.is_first else ((below, blocks[span.start].in_channels),) * 2
    from_above = () if problem.is_last else ((above, blocks[span.stop].in_channels),)
    up = Route(from_below, () if problem.is_last else (above, above))
    down = Route(from_above, () if problem.is_first else (below,))
    rows = problem.propagation.num_nodes
    first, second = (Channel(grid.stages, route, staleness, rows, problem.targets) for route in (up, down))
    return first, second


def take_from_below(problem: Problem, state: AdmmState) -> None:
    """q and u of the block below this stage, as of this iteration or of ``staleness`` ones ago."""
    if not problem.is_first:
        q, state.sent_dual = state.fixed.up.receive(state.iteration, state.synchronous)
        state.q[problem.span.start - 1] = q


def embedded(
    problem: Problem, fixed: Fixed, weights: Weights, nu: float, rho: float, iteration: int = 0
) -> AdmmState:
    """The state whose embeddings are those of the network: all residuals and duals are zero. Called by every rank;
    sends activations to the stage above."""
    blocks, span = problem.model.blocks, problem.span
    route = upward(blocks, problem.bounds, problem.grid.stage)
    channel = Channel(
        problem.grid.stages, route, 0, problem.propagation.num_nodes, problem.targets, purpose="setup"
    )
    z: dict[int, Tensor] = {}
    q: dict[int, Tensor] = dict(zip([span.start - 1], channel.receive(0, True), strict=False))
    for index in range(span.start, min(span.stop, len(blocks) - 1)):
        found = fitted(problem, index, weights[f"block{index}.weight"], weights.get(f"block{index}.bias"), q)
        z[index], q[index] = found, activated(problem, index, found)
        q[index] = found.clone() if q[index] is found else q[index]  # an identity gives back what it took
    scores = None
    if fixed.head is not None:
        name = f"block{len(blocks) - 1}"
        scores = transform(
            fixed.head.apply(q.__getitem__), weights[f"{name}.weight"], weights.get(f"{name}.bias")
        )
    channel.send(0, True, [] if problem.is_last else [q[span.stop - 1]])
    channel.drain()
    p = {index: value.clone() for index, value in q.items()}
    nothing = None if problem.is_first else torch.zeros_like(q[span.start - 1])
    return AdmmState(fixed, weights, z, q, p, nothing, scores, nu, rho, iteration)


def _apply(state: AdmmState, name: str, update: Update) -> None:
    for kind, change in (("weight", update.weight), ("bias", update.bias)):
        if change is not None:
            value = state.weights[f"{name}.{kind}"]
            state.weights[f"{name}.{kind}"] = value + change.to(value.dtype)


def check_admm(model: Model) -> None:
    """Raises :class:`InputError` for networks whose splitting is not written."""
    blocks = model.blocks
    if len(blocks) < 2:
        raise InputError("solver admm splits a network between its blocks, and this one has a single block.")
    wrong = [b.propagate for b in blocks[1:] if b.propagate not in ("none", "graph") or b.skip is not None]
    if not is_chain(blocks) or wrong:
        raise InputError(
            f"solver admm splits chains of blocks that take H or S H (families gcn and sign); got family "
            f"{model.config.family!r}. With --inside target it couples stages of any chain."
        )
