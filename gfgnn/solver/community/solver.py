"""Community-based layerwise ADMM as a solver."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import CommunityConfig
from gfgnn.exchange.neighbours import neighbourhood_of
from gfgnn.model.build import Model, initial_weights
from gfgnn.model.wiring import is_chain
from gfgnn.problem import Problem
from gfgnn.solver.admm.fit import activated
from gfgnn.solver.base import StepInfo
from gfgnn.solver.community import phases
from gfgnn.solver.community.measures import measures
from gfgnn.solver.community.state import CommunityState
from gfgnn.solver.head import loss_sum
from gfgnn.solver.state import Weights


class CommunitySolver:
    """Community-based layerwise ADMM (Li, Wang, Wang, Cheng and Zhao 2021, arXiv 2112.09335).

    For chains of graph convolutions (family gcn). What it minimises stands in
    :mod:`gfgnn.solver.community.updates`, its updates in :mod:`gfgnn.solver.community.phases`. A community is a part of
    the grid; on one device there is one. Every community makes the same calls. R is the *sum* of the labelled training
    nodes' losses, as in the authors' program.
    """

    name = "community-admm"
    differentiates = False
    default_iters = 200

    def __init__(self, config: CommunityConfig | None = None) -> None:
        self.config = config or CommunityConfig()

    def init(self, problem: Problem, generator: torch.Generator) -> CommunityState:
        """Weights at random (Glorot), Z at the network's embeddings, U at zero. Sends the halos of a forward pass."""
        check_community(problem.model)
        neighbourhood, n = neighbourhood_of(problem.propagation), problem.propagation.num_nodes
        counted = None
        if self.config.nodes == "train":
            own = torch.zeros(n, 1, dtype=problem.dtype, device=problem.device)
            counted = neighbourhood.around(own.index_fill_(0, problem.train_index, 1.0))
        drawn = initial_weights(problem.model, generator, problem.dtype)
        weights = {name: weight.to(problem.device) for name, weight in drawn.items()}
        u = torch.zeros(n, problem.model.num_classes, dtype=problem.dtype, device=problem.device)
        state = CommunityState(neighbourhood, counted, weights, {}, {}, u)
        for index in range(len(problem.model.blocks)):
            phases.refit(problem, state, index)
            h = activated(problem, index, state.fit[index])
            state.z[index] = h.clone() if h is state.fit[index] else h  # the identity gives back what it took
        return state

    def step(self, problem: Problem, state: CommunityState) -> tuple[CommunityState, StepInfo]:
        """One iteration. Reports the loss of the embeddings' scores before it, residuals and the Lagrangian after."""
        state.iteration += 1
        task, before = problem.model.task, state.z[state.last]
        loss = loss_sum(task, state.fit[state.last][problem.train_index], problem.targets)
        phases.update_weights(problem, state, self.config)
        indices = list(state.fit)
        for together in [indices] if self.config.layers == "parallel" else [[index] for index in indices]:
            phases.update_embeddings(problem, state, self.config, together)
        phases.update_dual(problem, state, self.config)
        total, extra = measures(problem, state, self.config, before, loss)
        return state, StepInfo(total / problem.facts.num_train, extra)

    def weights(self, problem: Problem, state: CommunityState) -> Weights:
        return state.weights

    def describe(self, problem: Problem) -> dict[str, Any]:
        return asdict(self.config)

    def embedding_scores(self, problem: Problem, state: CommunityState) -> Tensor:
        """Scores ``[n, C]`` that the output block makes of the embeddings below it."""
        return state.fit[state.last]


def check_community(model: Model) -> None:
    """Raises :class:`InputError` for networks that are no chains of two graph convolutions or more."""
    blocks = model.blocks
    plain = is_chain(blocks) and all(
        b.propagate == "graph" and b.skip is None and b.norm_eps is None and b.branch == 1.0 for b in blocks
    )
    if not plain or len(blocks) < 2:
        raise InputError(
            f"solver community-admm trains chains of two graph convolutions or more (family gcn); got family "
            f"{model.config.family!r}."
        )
