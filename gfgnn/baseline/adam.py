"""Adam with backprop on the very same blocks: the baseline that the block solver is measured against.

The settings are those published for each family (:mod:`gfgnn.baseline.settings`). It is meant to be fast: one
fused optimiser call, the sparse kernels of the block solver, output and loss on labelled nodes only, cheap dropout
masks, and the cheaper order of propagation and transform in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.baseline.network import Network, Tensors
from gfgnn.baseline.optimizer import Group, adam_step, make_group
from gfgnn.baseline.products import Dropping, drop, drop_rows
from gfgnn.baseline.settings import PUBLISHED, AdamSettings, resolve
from gfgnn.baseline.sums import PURPOSE
from gfgnn.checks import check_choice
from gfgnn.config import AdamConfig
from gfgnn.exchange.sums import sum_over
from gfgnn.problem import Problem
from gfgnn.solver.base import StepInfo

MASKS = ("own", "graph")


@dataclass(eq=False)
class AdamState:
    """Parameters, running statistics of batch normalisation, and the optimiser's moments."""

    network: Network
    parameters: Tensors
    running: Tensors
    groups: list[Group]
    generator: torch.Generator
    targets: Tensor
    share: float = 1.0  #: of all known targets, those of this part


class AdamSolver:
    """A :class:`gfgnn.solver.base.Solver` that trains by backprop with Adam.

    On parts of a graph it computes what it would on one device, up to rounding: halo rows of activations travel
    forward, those of gradients backward; gradients of weights are summed over the parts, which all make one step.

    Args:
        config: what to change of the published setting.
        family: the model family, for the number of iterations and the patience it was published with.
        masks: of dropout, on several parts: ``own``, each part draws those of its nodes; or ``graph``, each draws those
            of all nodes and keeps its own, so that they are those of one device.
    """

    name = "adam"
    differentiates = True

    def __init__(self, config: AdamConfig | None = None, family: str = "gcn", *, masks: str = "own") -> None:
        check_choice("masks", masks, MASKS)
        self.config, self.masks = config or AdamConfig(), masks
        self.default_iters: int = PUBLISHED[family].iters
        self.default_patience: int | None = PUBLISHED[family].patience

    def init(self, problem: Problem, generator: torch.Generator) -> AdamState:
        settings = self._settings(problem)
        with torch.enable_grad():
            network = self.network(problem, settings)
            parameters, running = network.start(generator)
        groups = make_groups(parameters, settings)
        own = problem.grid.world.size > 1 and self.masks == "own"
        if problem.device.type != "cpu" or own:  # masks are drawn where the activations are
            seed = int(torch.randint(2**62, (1,), generator=generator)) + own * problem.grid.world.rank
            generator = torch.Generator(device=problem.device).manual_seed(seed)
        share = share_of_targets(problem)
        return AdamState(network, parameters, running, groups, generator, loss_targets(problem), share)

    def network(self, problem: Problem, settings: AdamSettings) -> Network:
        """The network to train. Called by every part."""
        return Network(problem, settings, dropping=self.dropping(problem))

    def dropping(self, problem: Problem) -> Dropping:
        """How masks are drawn."""
        if self.masks == "own":
            return drop
        return partial(drop_rows, node_ids=problem.node_ids, num_nodes=problem.facts.num_nodes)

    def step(self, problem: Problem, state: AdamState) -> tuple[AdamState, StepInfo]:
        """One epoch; the reported loss is that of the network with dropout, before the update."""
        with torch.enable_grad():
            scores = state.network.scores(state.parameters, state.running, state.generator)
            loss = mean_loss(problem.model.task, scores, state.targets, state.share)
        gradients = torch.autograd.grad(loss, [p for group in state.groups for p in group.parameters])
        *sums, loss = sum_over(problem.grid.parts, *gradients, loss.detach(), purpose=PURPOSE)
        step_groups(state.groups, sums, state.network.settings.lr)
        return state, StepInfo(float(loss))

    def weights(self, problem: Problem, state: AdamState) -> dict[str, Tensor]:
        with torch.no_grad():
            return state.network.effective_weights(state.parameters, state.running)

    def describe(self, problem: Problem) -> dict[str, Any]:
        settings = asdict(self._settings(problem))
        decays = settings.pop("decays")
        middle = decays[len(decays) // 2]
        settings["weight_decay"] = {"first": decays[0], "middle": middle, "last": decays[-1]}
        return settings

    def _settings(self, problem: Problem) -> AdamSettings:
        return resolve(self.config, problem.model.config.family, len(problem.model.blocks))


def loss_targets(problem: Problem) -> Tensor:
    """The targets as :func:`mean_loss` takes them: class numbers, which are cheaper than one-hot rows, or values."""
    return problem.targets.argmax(1) if problem.model.task == "multiclass" else problem.targets


def mean_loss(task: str, scores: Tensor, targets: Tensor, share: float = 1.0) -> Tensor:
    """The mean loss of labelled nodes, times ``share``; nothing where none is labelled."""
    if share == 0.0:
        return scores.sum() * 0.0  # others may wait for its derivative
    if task == "multiclass":
        return share * torch.nn.functional.cross_entropy(scores, targets)
    return share * metrics.loss(task, scores, targets)


def share_of_targets(problem: Problem) -> float:
    """How many of all known targets are those of this part. Called by every part; sends one number."""
    own = known_targets(problem)
    (every,) = sum_over(problem.grid.parts, own, purpose="setup")
    return float(own / every)


def known_targets(problem: Problem) -> Tensor:
    """How many targets this part knows, float64."""
    return (~torch.isnan(problem.targets)).sum().double()


def step_groups(groups: list[Group], gradients: Sequence[Tensor], lr: float) -> None:
    """One step of Adam with the gradients of all parameters in a row."""
    rest = iter(gradients)
    adam_step(groups, [[next(rest) for _ in group.parameters] for group in groups], lr)


def make_groups(parameters: Tensors, settings: AdamSettings) -> list[Group]:
    """Parameters grouped by weight decay; scale and shift of batch normalisation do not decay."""
    groups: dict[float, list[Tensor]] = {}
    for name, value in parameters.items():
        index = int(name.split(".")[0].removeprefix("block"))
        decay = settings.decays[index] if name.endswith((".weight", ".bias")) else 0.0
        groups.setdefault(decay, []).append(value)
    return [make_group(values, decay) for decay, values in groups.items()]
