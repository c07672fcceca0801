"""Independent subnet training (Yuan et al. 2022; of graph networks GIST, Wolfe et al. 2023): hidden columns over ranks.

In each round the hidden columns are split at random over the ranks, the same ones in all layers. A rank trains the
subnetwork of its columns on the whole graph for some epochs, with an optimiser of its own, and talks to nobody. Then
the subnetworks are put together and the next round splits anew. Weights between columns of different ranks rest for the
round; of the output's bias, which all have, the mean is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gfgnn.baseline.adam import AdamSolver, loss_targets, make_groups, mean_loss, step_groups
from gfgnn.baseline.network import Network, Tensors, effective_weights, start
from gfgnn.baseline.ranks import make_job, own, run_job
from gfgnn.baseline.sums import PURPOSE
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_count
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.exchange.sums import gather_rows
from gfgnn.graph.graph import Graph
from gfgnn.launch.method import Method
from gfgnn.model.build import Model, make_model
from gfgnn.plan.plan import Plan
from gfgnn.plan.stages import StagePlan
from gfgnn.problem import Problem
from gfgnn.solver.base import StepInfo

#: epochs of a round
LOCAL = 20


@dataclass(eq=False)
class SubnetState:
    """The whole network, the same on all ranks, and what this rank trains its part with."""

    network: Network
    parameters: Tensors
    running: Tensors
    draws: torch.Generator  #: of columns, the same on all ranks
    masks: torch.Generator  #: of dropout, each rank's own
    targets: Tensor


def draw_columns(hidden: int, ranks: int, generator: torch.Generator) -> list[Tensor]:
    """The hidden columns of each rank: all of them, none twice, and always as many for a rank."""
    sizes = [(hidden + ranks - 1 - rank) // ranks for rank in range(ranks)]
    pieces = torch.randperm(hidden, generator=generator).split(sizes)
    return [piece.sort().values for piece in pieces]


def subnetwork(model: Model, width: int) -> Model:
    """The same network with ``width`` hidden columns."""
    config = replace(model.config, hidden=width)
    return make_model(config, model.num_features, model.num_classes, model.task)


def split(tensors: Tensors, model: Model, columns: Tensor) -> Tensors:
    """Copies of the weights, biases and statistics of the subnetwork of hidden ``columns``."""
    return {
        name: value.detach()[_place(name, value, model, columns)].clone() for name, value in tensors.items()
    }


def join(tensors: Tensors, parts: Sequence[Tensors], model: Model, columns: Sequence[Tensor]) -> Tensors:
    """``tensors`` with what each rank has made of its columns; the mean of what all of them have."""
    joined = {name: value.detach().clone() for name, value in tensors.items()}
    for name, value in joined.items():
        if name == f"block{len(model.blocks) - 1}.bias":
            value.copy_(torch.stack([part[name] for part in parts]).mean(0))
            continue
        for part, own_columns in zip(parts, columns, strict=True):
            value[_place(name, value, model, own_columns)] = part[name]
    return joined


def _place(name: str, value: Tensor, model: Model, columns: Tensor) -> tuple[Tensor, ...]:
    """Where the subnetwork's entries stand in a tensor of the whole network, as an index."""
    index = int(name.split(".")[0].removeprefix("block"))
    block, every = model.blocks[index], torch.arange(value.size(-1))
    across = every if index == len(model.blocks) - 1 else columns
    if value.dim() == 1:
        return (across,)
    if index == 0:
        down = torch.arange(value.size(0))
    else:  # the sources that stand side by side in T are split alike
        down = torch.cat([columns + first for first in range(0, value.size(0), block.in_channels)])
    return down[:, None], across[None]


class SubnetSolver(AdamSolver):
    """Trains each rank's subnetwork; one step is a round.

    Args:
        local: epochs of a round.
    """

    name = "ist"

    def __init__(self, config: TrainConfig, family: str, local: int) -> None:
        super().__init__(config.adam, family)
        self.local = local

    def init(self, problem: Problem, generator: torch.Generator) -> SubnetState:  # type: ignore[override]
        settings, world = self._settings(problem), problem.grid.world
        parameters, running = start(problem, settings, generator)
        seeds = torch.randint(2**62, (2,), generator=generator).tolist()
        width = draw_columns(problem.model.config.hidden, world.size, generator)[world.rank].numel()
        model = subnetwork(problem.model, width)
        inputs = replace(problem.inputs, block=model.blocks[0])
        with torch.enable_grad():
            network = Network(replace(problem, model=model, block_inputs={0: inputs}), settings)
        draws, masks = (torch.Generator().manual_seed(seed) for seed in (seeds[0], seeds[1] + world.rank))
        return SubnetState(network, parameters, running, draws, masks, loss_targets(problem))

    def step(self, problem: Problem, state: SubnetState) -> tuple[SubnetState, StepInfo]:  # type: ignore[override]
        """One round. Called by every rank; each sends its subnetwork to all others, at the end.

        The reported loss is the mean of what the subnetworks had in the last epoch of the round.
        """
        world, model = problem.grid.world, problem.model
        columns = draw_columns(model.config.hidden, world.size, state.draws)
        parameters, running = (
            split(tensors, model, columns[world.rank]) for tensors in (state.parameters, state.running)
        )
        loss = self._train(problem, state, parameters, running)
        shapes = [
            split(state.parameters | state.running, model, of_rank) for of_rank in columns
        ]  # whose values are replaced by what the ranks send
        flat = torch.cat(
            [loss.reshape(1), *(value.detach().reshape(-1) for value in (parameters | running).values())]
        )
        sizes = [1 + sum(value.numel() for value in shape.values()) for shape in shapes]
        received = gather_rows(world, flat, purpose=PURPOSE).split(sizes)
        parts = []
        for piece, shape in zip(received, shapes, strict=True):
            values = piece[1:].split([value.numel() for value in shape.values()])
            pairs = zip(shape.items(), values, strict=True)
            parts.append({name: value.view(like.shape) for (name, like), value in pairs})
        joined = join(state.parameters | state.running, parts, model, columns)
        state.parameters = {name: joined[name] for name in state.parameters}
        state.running = {name: joined[name] for name in state.running}
        return state, StepInfo(float(torch.stack([piece[0] for piece in received]).mean()))

    def _train(self, problem: Problem, state: SubnetState, parameters: Tensors, running: Tensors) -> Tensor:
        """The epochs of a round, in place; the last loss."""
        settings = state.network.settings
        for value in parameters.values():
            value.requires_grad_()
        groups = make_groups(parameters, settings)
        flat = [p for group in groups for p in group.parameters]
        loss = torch.zeros(())
        for _ in range(self.local):
            with torch.enable_grad():
                scores = state.network.scores(parameters, running, state.masks)
                loss = mean_loss(problem.model.task, scores, state.targets)
            step_groups(groups, torch.autograd.grad(loss, flat), settings.lr)
        return loss.detach()

    def weights(self, problem: Problem, state: SubnetState) -> Tensors:  # type: ignore[override]
        return effective_weights(problem, self._settings(problem), state.parameters, state.running)


def solver(config: TrainConfig, model: Model, *, local: int) -> SubnetSolver:
    """What each rank trains with."""
    return SubnetSolver(config, model.config.family, local)


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    ranks: int = 2,
    **settings: Any,
) -> Outcome:
    """Independent subnet training on ``ranks`` processes, each with the whole graph; iterations are epochs.

    Args:
        settings: of :class:`gfgnn.config.AdamConfig`, the published ones where left out; of the grid; ``local``,
            epochs of a round, 20 where left out. Each round ends with an evaluation, and the budget is looked at then.

    Raises:
        InputError: a setting that is none, or fewer hidden columns than ranks.
    """
    local = own(settings, ("local",)).get("local", LOCAL)
    check_count("local", local, 1)
    local = min(local, budget.iterations or local)
    if model.hidden < ranks or model.family == "sgc":
        raise InputError(
            f"ist splits hidden columns over ranks; {model.family} with {model.hidden} of them and {ranks} ranks is "
            "too few. Use more columns, fewer ranks, or a network with hidden layers."
        )
    job = make_job("ist", graph, model, budget, seed, threads, settings, parts=ranks, local=local)
    count = len(job.model.blocks)
    plan = Plan(None, StagePlan((0, count), (1.0,) * count, ("",) * count, chosen=False))
    return run_job(job, Method("gfgnn.baseline.subnets:solver", {"local": local}, replicated=True), plan=plan)


__all__ = ["SubnetSolver", "draw_columns", "join", "run", "split", "subnetwork"]
