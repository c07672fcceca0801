"""ADMM over the layers of a network, swept from the output down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import AdmmConfig
from gfgnn.exchange.routes import Route, upward
from gfgnn.exchange.stages import Channel
from gfgnn.model.blocks import transform
from gfgnn.model.build import Model, initial_weights
from gfgnn.model.wiring import is_chain
from gfgnn.problem import Problem
from gfgnn.solver.admm.blocks import update_hidden, update_output
from gfgnn.solver.admm.fit import activated, dual, fitted
from gfgnn.solver.admm.measures import auxiliary_scores, measures
from gfgnn.solver.admm.penalties import balanced, starting_rho
from gfgnn.solver.admm.state import AdmmState, Fixed
from gfgnn.solver.auto import Settings, resolve
from gfgnn.solver.base import StepInfo
from gfgnn.solver.input_system import make_input_system
from gfgnn.solver.setup import make_head_rows, node_weights, reference_weights
from gfgnn.solver.state import Weights, block_of


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
        check_admm(problem.model, self.config, self.staleness)
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
        return embedded(problem, AdmmState(fixed, weights, self.config.nu, starting_rho(self.config, blocks)))

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
            for name in ("inside", "sweep", "penalties", "nu", "over_relaxation", "prox", "resync")
        }
        penalties["rho"] = starting_rho(self.config, problem.model.blocks)
        return penalties | {name: getattr(settings, name) for name in names}

    def embedding_scores(self, problem: Problem, state: AdmmState) -> Tensor:
        """Scores ``[N, C]`` of this part's nodes from the embeddings; called by every part of the last stage."""
        return auxiliary_scores(problem, state)

    def _settings(self, problem: Problem) -> Settings:
        return resolve(self.config.as_target(), problem.model, problem.facts)

    def step(self, problem: Problem, state: AdmmState) -> tuple[AdmmState, StepInfo]:
        """One iteration. Reports the loss of the embeddings' scores before it, and residuals and the Lagrangian
        after."""
        state.iteration += 1
        before = {index: state.q[index].clone() for index in state.z}
        loss = self._down(problem, state)
        if self.config.sweep == "backward-forward":
            self._up(problem, state)
        loss, extra = measures(problem, state, before, loss)
        if self.config.penalties == "balanced":
            state.rho = balanced(state.rho, extra["primal"], extra["dual"], state.iteration)
        if self.config.resync and state.iteration % self.config.resync == 0:
            state = embedded(problem, state)
        return state, StepInfo(loss, extra)

    def _down(self, problem: Problem, state: AdmmState) -> float:
        """From the output to the first block; p of this stage's first goes down, q and u of its last go up."""
        span, waits = problem.span, state.synchronous
        up, down = state.fixed.up, state.fixed.down
        twice = self.config.sweep == "backward-forward"
        if not waits:
            take_from_below(problem, state)
        if not problem.is_last:
            (state.p[span.stop - 1],) = down.receive(state.iteration, waits)
        loss = update_output(problem, state, self.config) if problem.is_last else 0.0
        for index in reversed(hidden(problem)):
            update_hidden(problem, state, index, self.config)
        # stages without a neighbour call too: what will arrive is asked for in the same breath
        down.send(state.iteration, waits, [] if problem.is_first else [state.p[span.start - 1]])
        if not twice:
            up.send(state.iteration, waits, self._for_above(problem, state))
            if waits:
                take_from_below(problem, state)
        return loss

    def _up(self, problem: Problem, state: AdmmState) -> None:
        """From the first block to the output, once more; q and u go up. Stages wait for the one below."""
        take_from_below(problem, state)
        for index in hidden(problem):
            update_hidden(problem, state, index, self.config, again=True)
        if problem.is_last:
            update_output(problem, state, self.config)
        state.fixed.up.send(state.iteration, True, self._for_above(problem, state))

    def _for_above(self, problem: Problem, state: AdmmState) -> list[Tensor]:
        top = problem.span.stop - 1
        return [] if problem.is_last else [state.q[top], dual(problem, state, top)]

    def finish(self, problem: Problem, state: AdmmState) -> None:
        """Receives what is still under way. Called once by every rank, after the last iteration."""
        state.fixed.up.drain()
        state.fixed.down.drain()


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


def hidden(problem: Problem) -> range:
    """Numbers of this stage's blocks below the output."""
    return range(problem.span.start, min(problem.span.stop, len(problem.model.blocks) - 1))


def embedded(problem: Problem, state: AdmmState) -> AdmmState:
    """``state`` with the network's own embeddings, so that all residuals and duals are zero. Called by every rank;
    sends activations to the stage above."""
    blocks, span = problem.model.blocks, problem.span
    route = upward(blocks, problem.bounds, problem.grid.stage)
    channel = Channel(
        problem.grid.stages, route, 0, problem.propagation.num_nodes, problem.targets, purpose="setup"
    )
    z: dict[int, Tensor] = {}
    q: dict[int, Tensor] = dict(zip([span.start - 1], channel.receive(0, True), strict=False))
    for index in hidden(problem):
        found = fitted(problem, index, *state.layer(index), q)
        z[index], q[index] = found, activated(problem, index, found)
        q[index] = found.clone() if q[index] is found else q[index]  # an identity gives back what it took
    scores = None
    if state.fixed.head is not None:
        scores = transform(state.fixed.head.apply(q.__getitem__), *state.layer(len(blocks) - 1))
    channel.send(0, True, [] if problem.is_last else [q[span.stop - 1]])
    channel.drain()
    p = {index: value.clone() for index, value in q.items()}
    nothing = None if problem.is_first else torch.zeros_like(q[span.start - 1])
    return replace(state, z=z, q=q, p=p, sent_dual=nothing, scores=scores)


def check_admm(model: Model, config: AdmmConfig, staleness: int) -> None:
    """Raises :class:`InputError` for networks whose splitting is not written, and for stages that cannot work so."""
    blocks = model.blocks
    for setting, value in (("penalties", config.penalties), ("sweep", config.sweep)):
        if staleness and value in ("convergent", "backward-forward"):
            raise InputError(
                f"{setting} {value} needs stages that wait for each other, staleness 0; got {staleness}."
            )
    if len(blocks) < 2:
        raise InputError("solver admm splits a network between its blocks, and this one has a single block.")
    wrong = [b.propagate for b in blocks[1:] if b.propagate not in ("none", "graph") or b.skip is not None]
    if not is_chain(blocks) or wrong:
        raise InputError(
            f"solver admm splits chains of blocks that take H or S H (families gcn and sign); got family "
            f"{model.config.family!r}. With --inside target it couples stages of any chain."
        )
