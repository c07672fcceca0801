"""Adam with backprop on the very same blocks: the baseline that the block solver is measured against.

The settings are those published for each family (:mod:`gfgnn.baseline.settings`). It is meant to be fast: one
fused optimiser call, the sparse kernels of the block solver, output and loss on labelled nodes only, cheap dropout
masks, and the cheaper order of propagation and transform in every layer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.baseline.network import Network, Tensors
from gfgnn.baseline.optimizer import Group, adam_step, make_group
from gfgnn.baseline.settings import PUBLISHED, AdamSettings, resolve
from gfgnn.config import AdamConfig
from gfgnn.problem import Problem
from gfgnn.solver.base import StepInfo


@dataclass(eq=False)
class AdamState:
    """Parameters, running statistics of batch normalisation, and the optimiser's moments."""

    network: Network
    parameters: Tensors
    running: Tensors
    groups: list[Group]
    generator: torch.Generator
    targets: Tensor


class AdamSolver:
    """A :class:`gfgnn.solver.base.Solver` that trains by backprop with Adam.

    Args:
        config: what to change of the published setting.
        family: the model family, for the number of iterations and the patience it was published with.
    """

    name = "adam"
    differentiates = True

    def __init__(self, config: AdamConfig | None = None, family: str = "gcn") -> None:
        self.config = config or AdamConfig()
        self.default_iters: int = PUBLISHED[family].iters
        self.default_patience: int | None = PUBLISHED[family].patience

    def init(self, problem: Problem, generator: torch.Generator) -> AdamState:
        settings = self._settings(problem)
        with torch.enable_grad():
            network = Network(problem, settings)
            parameters, running = network.start(generator)
        groups = groups_of(parameters, settings)
        if problem.device.type != "cpu":  # masks are drawn where the activations are
            seed = int(torch.randint(2**62, (1,), generator=generator))
            generator = torch.Generator(device=problem.device).manual_seed(seed)
        targets = problem.targets
        if problem.model.task == "multiclass":
            targets = targets.argmax(1)
        return AdamState(network, parameters, running, groups, generator, targets)

    def step(self, problem: Problem, state: AdamState) -> tuple[AdamState, StepInfo]:
        """One epoch; the reported loss is that of the network with dropout, before the update."""
        with torch.enable_grad():
            scores = state.network.scores(state.parameters, state.running, state.generator)
            loss = _loss(problem.model.task, scores, state.targets)
        flat = [p for group in state.groups for p in group.parameters]
        gradients = iter(torch.autograd.grad(loss, flat))
        per_group = [[next(gradients) for _ in group.parameters] for group in state.groups]
        adam_step(state.groups, per_group, state.network.settings.lr)
        return state, StepInfo(float(loss.detach()))

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


def _loss(task: str, scores: Tensor, targets: Tensor) -> Tensor:
    if task == "multiclass":  # class numbers are cheaper than one-hot rows
        return torch.nn.functional.cross_entropy(scores, targets)
    return metrics.loss(task, scores, targets)


def groups_of(parameters: Tensors, settings: AdamSettings) -> list[Group]:
    """Parameters grouped by weight decay; scale and shift of batch normalisation do not decay."""
    groups: dict[float, list[Tensor]] = {}
    for name, value in parameters.items():
        index = int(name.split(".")[0].removeprefix("block"))
        decay = settings.decays[index] if name.endswith((".weight", ".bias")) else 0.0
        groups.setdefault(decay, []).append(value)
    return [make_group(values, decay) for decay, values in groups.items()]
