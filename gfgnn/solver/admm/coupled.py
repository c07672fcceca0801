"""ADMM between stages, the block solver within: two copies of the activations at every boundary, no others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfgnn.config import AdmmConfig
from gfgnn.exchange.stages import Channel
from gfgnn.exchange.sums import sum_over
from gfgnn.problem import Problem
from gfgnn.solver.admm.blocks import inverse_of
from gfgnn.solver.admm.solver import make_links
from gfgnn.solver.admm.updates import activation_step
from gfgnn.solver.base import StepInfo
from gfgnn.solver.setup import node_weights
from gfgnn.solver.state import Activations, TargetState
from gfgnn.solver.target import Rule, TargetSolver


@dataclass(eq=False)
class Boundary:
    """The variables at the two ends of a stage.

    Attributes:
        up: to the stage above, q and u; down: to the stage below, p.
        below: node weights of the rows that come from below.
        p: this stage's copy of the activations below it; None before the first iteration and in the first stage.
        q, u: the activations at its top that it has agreed to, and their dual; None in the last stage, too.
        q_below, u_below: those of the stage below, as it sent them last.
        apart: ``|p - q|_c^2`` at the top; NaN in an iteration that went back.
    """

    up: Channel
    down: Channel
    below: Tensor | None
    p: Tensor | None = None
    q: Tensor | None = None
    u: Tensor | None = None
    q_below: Tensor | None = None
    u_below: Tensor | None = None
    apart: float = 0.0

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
        """One iteration of the block solver, in which the boundaries take part; then q and u go up."""
        assert isinstance(state, CoupledState)
        boundary, scale = state.boundary, state.scale
        boundary.apart = math.nan
        _, info = super().step(problem, state)
        if not math.isnan(boundary.apart):
            boundary.rescale(scale / state.scale)
            top = [t for t in (boundary.q, boundary.u) if t is not None]
            boundary.up.send(state.iteration, True, top)
            if not problem.is_first:
                boundary.q_below, boundary.u_below = boundary.up.receive(state.iteration, True)
        else:  # the safeguard went back, on every rank
            boundary.forget()
        apart = problem.y.new_tensor(boundary.apart, dtype=torch.float64)
        (primal,) = sum_over(problem.grid.world, apart, purpose="control")
        info.extra["primal"] = float(primal) ** 0.5
        return state, info

    def _from_below(self, state: TargetState) -> list[Tensor]:
        """p in place of the activations of the stage below, which it starts from."""
        assert isinstance(state, CoupledState)
        received, boundary = super()._from_below(state), state.boundary
        if not received:
            return []
        if boundary.p is None:
            boundary.p, boundary.q_below = received[0].clone(), received[0].clone()
            boundary.u_below = torch.zeros_like(received[0])
        return [boundary.p, *received[1:]]

    def _from_above(
        self, problem: Problem, state: TargetState, acts: Activations, rule: Rule
    ) -> dict[int, Tensor]:
        """The shift ``q - F(p)`` in place of the message of the stage above; settles q and u."""
        assert isinstance(state, CoupledState)
        boundary, nu, rho, top = state.boundary, self.admm.nu, self.admm.rho, acts.top()
        boundary.apart = 0.0
        messages = super()._from_above(problem, state, acts, rule)
        if problem.is_last:
            return messages
        assert top is not None
        index = problem.span.stop - 1
        c = state.fixed.masses[index][:, None]
        (p,) = boundary.down.receive(state.iteration, True)
        u = torch.zeros_like(top) if boundary.u is None else boundary.u
        boundary.q = activation_step(top, p, u, nu, rho)
        boundary.u = u + rho * (p - boundary.q)
        boundary.apart = float((c.double() * (p - boundary.q).double().square()).sum())
        return messages | {index: (boundary.q - top) * c}

    def _send_down(self, problem: Problem, state: TargetState, messages: dict[int, Tensor]) -> None:
        """Also moves p by the shift that the stage wants of it, and sends it."""
        assert isinstance(state, CoupledState)
        super()._send_down(problem, state, messages)
        if problem.is_first:
            return
        boundary, nu, rho = state.boundary, self.admm.nu, self.admm.rho
        assert boundary.p is not None
        assert boundary.below is not None
        assert boundary.q_below is not None
        assert boundary.u_below is not None
        message = messages.get(problem.span.start - 1)
        shift = 0.0 if message is None else message * inverse_of(boundary.below)[:, None]
        wanted = nu * (boundary.p + shift) + rho * boundary.q_below - boundary.u_below
        boundary.p = wanted / (nu + rho)
        boundary.down.send(state.iteration, True, [boundary.p])
