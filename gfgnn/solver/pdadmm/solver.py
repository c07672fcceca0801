"""pdADMM-G as a solver."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import PdadmmConfig
from gfgnn.model.build import Model
from gfgnn.model.wiring import is_chain
from gfgnn.problem import Problem
from gfgnn.solver.base import StepInfo
from gfgnn.solver.head import loss_sum
from gfgnn.solver.pdadmm import phases
from gfgnn.solver.pdadmm.measures import measures
from gfgnn.solver.pdadmm.state import PdadmmState, Weights, starting_rows

#: The authors' program calls the loss stalled when it falls by less than this, twice in a row, from the fourth
#: iteration on; penalties grow by the factor, up to the limit.
STALLED, FACTOR, LIMIT, PATIENCE = 1e-3, 10.0, 1.0, 4


class PdadmmSolver:
    """pdADMM-G (Wang, Li, Chai, Wang and Zhao 2021, arXiv 2105.09837), and pdADMM-G-Q with ``quantise``.

    For MLPs on propagated features (family sign). What it minimises stands in :mod:`gfgnn.solver.pdadmm.updates`, the
    order of its updates in :mod:`gfgnn.solver.pdadmm.phases`. R is the *sum* of the cross-entropies of the labelled
    training nodes, as in the authors' program; other tasks take the sum of their losses.

    Rows are all nodes, as the paper writes it, or the labelled training nodes alone (the default), as the authors'
    program has it: a node without a label has no loss, so its z_L stays at what the network happens to say of it at
    first, and pulls the weights there.

    Greedy layer-wise training (``grow``): layers that have not joined yet are the identity, so the network is that of
    the active layers. When some join, z, q and p of all are set to the network's own embeddings, duals to zero and
    penalties to what they were at first.
    """

    name = "pdadmm-g"
    differentiates = False
    default_iters = 200

    def __init__(self, config: PdadmmConfig | None = None) -> None:
        self.config = config or PdadmmConfig()

    def init(self, problem: Problem, generator: torch.Generator) -> PdadmmState:
        """The first and the last layer start at normal weights and biases, hidden ones at the identity; z, q and p at
        the network's embeddings, duals at zero."""
        check_pdadmm(problem.model, self.config)
        inputs, labelled = starting_rows(problem, self.config.nodes)
        weights = _starting_weights(problem, generator, self.config.init_std)
        total, stages = len(problem.model.blocks), self.config.stages_of_growth()
        active = _active(stages[0][0] if stages else total, total)
        state = PdadmmState(inputs, labelled, weights, active, self.config.nu, self.config.rho)
        phases.embed(problem, state, self.config)
        return state

    def step(self, problem: Problem, state: PdadmmState) -> tuple[PdadmmState, StepInfo]:
        """One iteration. Reports the network's mean loss before it, and residuals and the Lagrangian after."""
        state.iteration += 1
        self._grow(problem, state)
        loss = loss_sum(problem.model.task, phases.network_scores(problem, state), problem.targets)
        state.losses.append(loss / problem.facts.num_train)
        if self.config.raise_penalties:
            _raise_penalties(state)
        before = dict(state.q)
        phases.update_p(state, self.config)
        phases.update_weights(state, self.config)
        phases.update_biases(state)
        phases.update_z(problem, state, self.config)
        phases.update_q(problem, state, self.config)
        phases.update_u(state)
        return state, StepInfo(state.losses[-1], measures(problem, state, self.config, before))

    def weights(self, problem: Problem, state: PdadmmState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        return asdict(self.config)

    def _grow(self, problem: Problem, state: PdadmmState) -> None:
        for layers, iteration in self.config.stages_of_growth()[1:]:
            if state.iteration == iteration:
                state.active = _active(layers, len(problem.model.blocks))
                state.nu, state.rho, state.losses = self.config.nu, self.config.rho, []
                phases.embed(problem, state, self.config)


def _active(layers: int, total: int) -> tuple[int, ...]:
    """The lowest blocks and the output block, ``layers`` together."""
    return (*range(layers - 1), total - 1)


def _starting_weights(problem: Problem, generator: torch.Generator, std: float) -> dict[str, Tensor]:
    """Drawn in float64, so that a seed means the same network in every precision."""
    blocks, weights = problem.model.blocks, {}
    for index, block in enumerate(blocks):
        shape = (block.fan_in, block.out_channels)
        if index in (0, len(blocks) - 1):
            weight = std * torch.randn(*shape, generator=generator, dtype=torch.float64)
            bias = std * torch.randn(shape[1], generator=generator, dtype=torch.float64)
        else:
            weight, bias = torch.eye(*shape, dtype=torch.float64), torch.zeros(shape[1], dtype=torch.float64)
        weights[f"block{index}.weight"] = weight.to(problem.device, problem.dtype)
        if block.bias:
            weights[f"block{index}.bias"] = bias.to(problem.device, problem.dtype)
    return weights


def _raise_penalties(state: PdadmmState) -> None:
    losses = state.losses
    if len(losses) > PATIENCE and all(losses[-i] > losses[-i - 1] - STALLED for i in (1, 2)):
        state.nu, state.rho = (max(x, min(FACTOR * x, LIMIT)) for x in (state.nu, state.rho))


def check_pdadmm(model: Model, config: PdadmmConfig) -> None:
    """Raises :class:`InputError` for networks other than MLPs on fixed features, and growth that does not fit them."""
    blocks = model.blocks
    propagates = [block.propagate for block in blocks]
    plain = is_chain(blocks) and all(
        b.skip is None and b.norm_eps is None and b.branch == 1.0 for b in blocks
    )
    if (
        not plain
        or len(blocks) < 2
        or propagates[0] not in ("hops", "none")
        or set(propagates[1:]) != {"none"}
    ):
        raise InputError(
            f"solver pdadmm-g trains MLPs of two layers or more on propagated features (family sign); got family "
            f"{model.config.family!r}."
        )
    stages = config.stages_of_growth()
    if stages and stages[-1][0] != len(blocks):
        raise InputError(
            f"grow must end with the network's {len(blocks)} layers; got {config.grow!r}, which ends with "
            f"{stages[-1][0]}."
        )
    if len(stages) > 1 and any(block.activation == "leaky_relu" for block in blocks):
        raise InputError("grow needs an activation that leaves its own values as they are; got leaky_relu.")
