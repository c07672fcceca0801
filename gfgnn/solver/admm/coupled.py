"""ADMM between stages, the block solver within: two copies of the activations at every boundary, no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import AdmmConfig
from gfgnn.exchange.stages import Channel
from gfgnn.exchange.sums import sum_over
from gfgnn.model.wiring import INITIAL
from gfgnn.problem import Problem
from gfgnn.solver.admm.solver import inverse_of, make_links
from gfgnn.solver.admm.updates import activation_step
from gfgnn.solver.base import StepInfo
from gfgnn.solver.links import addressed, receive
from gfgnn.solver.refresh import refresh
from gfgnn.solver.setup import node_weights
from gfgnn.solver.state import Logged, TargetState
from gfgnn.solver.sweep import SweepStep
from gfgnn.solver.target import TargetSolver, _agree, _go_back, _went_wrong


@dataclass(eq=False)
class Boundary:
    """The variables at the two ends of a stage.

    Attributes:
        up: to the stage above, q and u; down: to the stage below, p.
        below: node weights of the rows that come from below.
        p: this stage's copy of the activations below it; None before the first iteration and in the first stage.
        q, u: the activations at its top that it has agreed to, and their dual; None in the last stage, too.
        q_below, u_below: those of the stage below, as it sent them last.
    """

    up: Channel
    down: Channel
    below: Tensor | None
    p: Tensor | None = None
    q: Tensor | None = None
    u: Tensor | None = None
    q_below: Tensor | None = None
    u_below: Tensor | None = None

    def rescale(self, factor: float) -> None:
        """Follows the gauge, which has multiplied all activations by ``factor``."""
        for name in ("p", "q", "u", "q_below", "u_below"):
            if (value := getattr(self, name)) is not None:
                setattr(self, name, value * factor)

    def forget(self) -> None:
        """Starts again from the network's own activations."""
        self.p = self.q = self.u = self.q_below = self.u_below = None


@dataclass(eq=False)
class CoupledState(TargetState):
    """The block solver's state and the boundary variables."""

    boundary: Boundary = field(kw_only=True)


class CoupledSolver(TargetSolver):
    """Splits the network at stage boundaries only.

    With F_s for the part of the network in stage s and ``|x|_c^2`` weighted by nodes::

        min loss(F_K(p_K)) + sum_s nu/2 |q_s - F_s(p_s)|_c^2    subject to p_{s+1} = q_s

    Each iteration a stage agrees to q between what it computes and what the stage above asks for,
    ``q = (nu F(p) + rho p_above + u) / (nu + rho)``, ``u += rho (p_above - q)``; the block solver's sweep step then
    works on the shift ``q - F(p)`` (in the last stage: on the loss) and ends with the shift D it wants of p;
    ``p <- (nu (p + D) + rho q_below - u_below) / (nu + rho)``. With one stage this is the block solver. Stages wait for
    each other.
    """

    name = "admm"

    def __init__(self, config: AdmmConfig | None = None, iters: int | None = None) -> None:
        self.admm = config or AdmmConfig()
        super().__init__(self.admm.as_target(), iters)

    def init(self, problem: Problem, generator: torch.Generator) -> CoupledState:
        state, span = super().init(problem, generator), problem.span
        below = None
        if not problem.is_first:
            masses = node_weights(problem, state.fixed.settings.node_weights)
            below = masses[span.start - 1].to(problem.dtype)
        boundary = Boundary(*make_links(problem, 0), below)
        return CoupledState(
            **{name: getattr(state, name) for name in state.__dataclass_fields__}, boundary=boundary
        )

    def describe(self, problem: Problem) -> dict[str, Any]:
        return {"inside": "target", "nu": self.admm.nu, "rho": self.admm.rho} | super().describe(problem)

    def finish(self, problem: Problem, state: TargetState) -> None:
        super().finish(problem, state)
        assert isinstance(state, CoupledState)
        state.boundary.up.drain()
        state.boundary.down.drain()

    def step(self, problem: Problem, state: TargetState) -> tuple[TargetState, StepInfo]:
        """One iteration; see the class."""
        assert isinstance(state, CoupledState)
        rule, links, boundary = SweepStep(), state.links, state.boundary
        before = state.weights
        rule.start(state)
        state.iteration += 1
        received = receive(links.up, state)
        if received and boundary.p is None:
            boundary.p, boundary.q_below = received[0].clone(), received[0].clone()
            boundary.u_below = torch.zeros_like(received[0])
        taken = [boundary.p, *received[1:]] if received else received
        acts = refresh(problem, state, [t for t in taken if t is not None], unit_spread=False)
        links.up.send(state.iteration, True, addressed(links.up, acts.top(), acts.initial))
        state.log[state.iteration] = Logged(dict(state.weights), 0, state.scale)
        known, current, rms = _agree(problem, state, acts, rule)
        info = StepInfo(current, {"slow": state.slow, "primal": float("nan")})  # where it goes back
        if _went_wrong(problem, state, known, current):
            _go_back(problem, state)
            boundary.forget()
            return state, info
        top = acts.top()
        assert top is not None
        messages = self._from_above(problem, state, acts, rule)
        apart = 0.0
        if not problem.is_last:
            apart = self._agree_on_top(problem, state, top, messages)
        self._hidden(problem, state, acts, messages, rule)
        below = messages.get(problem.span.start - 1)
        links.down.send(state.iteration, True, addressed(links.down, below, messages.get(INITIAL)))
        if not problem.is_first:
            self._move_copy(boundary, below)
            boundary.down.send(state.iteration, True, [t for t in (boundary.p,) if t is not None])
        if not problem.is_last:
            boundary.up.send(state.iteration, True, [t for t in (boundary.q, boundary.u) if t is not None])
        if not problem.is_first:
            boundary.q_below, boundary.u_below = boundary.up.receive(state.iteration, True)
        scale = state.scale
        before = rule.finish(problem, state, rms, before)
        boundary.rescale(scale / state.scale)
        state.velocity = {n: w - before[n] for n, w in state.weights.items()}
        (primal,) = sum_over(
            problem.grid.world, problem.y.new_tensor(apart, dtype=torch.float64), purpose="control"
        )
        info.extra["primal"] = float(primal) ** 0.5
        return state, info

    def _agree_on_top(
        self, problem: Problem, state: CoupledState, top: Tensor, messages: dict[int, Tensor]
    ) -> float:
        """q and u of this stage's top, and the message for its blocks; ``|p - q|_c^2`` after it."""
        boundary, nu, rho = state.boundary, self.admm.nu, self.admm.rho
        index = problem.span.stop - 1
        c = state.fixed.masses[index][:, None]
        (p,) = boundary.down.receive(state.iteration, True)
        u = torch.zeros_like(top) if boundary.u is None else boundary.u
        boundary.q = activation_step(top, p, u, nu, rho)
        boundary.u = u + rho * (p - boundary.q)
        messages[index] = (boundary.q - top) * c
        return float((c.double() * (p - boundary.q).double().square()).sum())

    def _move_copy(self, boundary: Boundary, message: Tensor | None) -> None:
        assert boundary.p is not None
        assert boundary.below is not None
        assert boundary.q_below is not None
        assert boundary.u_below is not None
        nu, rho = self.admm.nu, self.admm.rho
        shift = 0.0 if message is None else message * inverse_of(boundary.below)[:, None]
        wanted = nu * (boundary.p + shift) + rho * boundary.q_below - boundary.u_below
        boundary.p = wanted / (nu + rho)
