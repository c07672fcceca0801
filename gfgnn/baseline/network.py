"""The blocks as a differentiable network: dropout, batch normalisation, scores of the labelled nodes only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gfgnn.baseline.products import Dropping, FirstLayer, Operator, Products, drop, scaled, times
from gfgnn.baseline.settings import AdamSettings
from gfgnn.baseline.sums import batch_norm
from gfgnn.graph.propagation import Propagator
from gfgnn.model.blocks import Block, activate
from gfgnn.model.build import initial_weights
from gfgnn.problem import Problem

BN_MOMENTUM = 0.1  #: share of the newest statistics in the running ones, as in torch
BN_EPS = 1e-5

Tensors = dict[str, Tensor]


class Network:
    """Training-time forward pass of a problem's blocks.

    Parameters are ``block{l}.weight``, ``block{l}.bias`` and, with batch normalisation, ``block{l}.gamma``
    and ``block{l}.shift``; ``block{l}.mean`` and ``block{l}.var`` are running statistics, kept apart. Where a block
    has ``beta`` its parameter is W' of W = (1 - beta) I + beta W'.

    On a grid of ranks it is this part's nodes and this stage's blocks; every part of a stage must call, and what is
    sent are halos and the sums of batch normalisation.

    Args:
        propagations: S for each block, where these are not the same; of a part, its halos.
        dropping: how dropout masks are drawn.
    """

    def __init__(
        self,
        problem: Problem,
        settings: AdamSettings,
        propagations: Sequence[Propagator] | None = None,
        dropping: Dropping = drop,
    ) -> None:
        self.problem = problem
        self.settings = settings
        self.blocks = problem.model.blocks
        self.dropping = dropping
        rows, last = problem.train_index, len(self.blocks) - 1
        self.first: FirstLayer | None = None
        if problem.is_first:
            self.first = FirstLayer(problem, settings.dropout_input, rows if last == 0 else None, dropping)
        self.operators: dict[int, Operator] = {}
        stored: dict[tuple[Propagator, float], Operator] = {}
        self.identities: Tensors = {}
        for index in problem.span:
            block = self.blocks[index]
            s = problem.propagation if propagations is None else propagations[index]
            if block.propagate == "initial":
                key = s, 1.0 - block.alpha
                if key not in stored:
                    stored[key] = scaled(*key)
                self.operators[index] = stored[key]
            elif 0 < index < last:
                self.operators[index] = s
            elif index == last and index > 0 and block.propagate != "none":
                self.operators[index] = Products(*s.rows(rows))
            if block.beta is not None:
                identity = torch.eye(block.fan_in, dtype=problem.dtype, device=problem.device)
                self.identities[f"block{index}"] = (1.0 - block.beta) * identity

    def normalises(self, index: int) -> bool:
        return normalises(self.problem, self.settings, index)

    def start(self, generator: torch.Generator) -> tuple[Tensors, Tensors]:
        """Initial parameters and running statistics of this stage; draws those of all."""
        return start(self.problem, self.settings, generator)

    def weight(self, parameters: Tensors, index: int) -> Tensor:
        """W of a block, from W' where the block splits off an identity."""
        name = f"block{index}"
        weight, beta = parameters[f"{name}.weight"], self.blocks[index].beta
        return weight if beta is None else torch.add(self.identities[name], weight, alpha=beta)

    def scores(self, parameters: Tensors, running: Tensors, generator: torch.Generator) -> Tensor:
        """Scores ``[k, C]`` of the labelled training nodes, with dropout, where one stage has all blocks."""
        (scores,) = self.outputs(parameters, running, generator)
        return scores

    @property
    def passes_initial(self) -> bool:
        """Whether a later stage needs H_0."""
        return any(block.propagate == "initial" for block in self.blocks[self.problem.span.stop :])

    def outputs(
        self, parameters: Tensors, running: Tensors, generator: torch.Generator, *received: Tensor
    ) -> tuple[Tensor, ...]:
        """What this stage's blocks make of what the stage below has passed on.

        Args:
            received: H of the block below and, where blocks from here on need it, H_0; nothing in the first stage.

        Returns:
            The same for the stage above; of the last stage the scores ``[k, C]`` of the labelled training nodes.
        """
        p, last = self.settings.dropout, len(self.blocks) - 1
        h, h0 = received[0] if received else torch.empty(0), received[-1] if received else None
        alphas = {b.alpha for b in (self.blocks[i] for i in self.problem.span) if b.propagate == "initial"}
        initial = {} if h0 is None else {alpha: alpha * h0 for alpha in alphas}  # once for all layers
        for index in self.problem.span:
            block = self.blocks[index]
            weight, bias = self.weight(parameters, index), parameters.get(f"block{index}.bias")
            if self.first is not None and index == 0:
                z = self.first(weight, generator)
                z = z if bias is None else z + bias
            else:
                dropped, mixed = self.dropping(h, p, generator), initial.get(block.alpha)
                rows = self.problem.train_index if index == last else None
                mixed = mixed if block.propagate == "initial" else None
                z = transform(block, self.operators.get(index), dropped, weight, bias, mixed, rows=rows)
            if self.normalises(index):
                z = self._normalised(z, parameters, running, f"block{index}")
            below, h = h, activate(z, block.activation)
            if block.skip is not None:
                h = torch.add(below, h, alpha=block.skip)
            if index == 0:
                h0, initial = h, {alpha: alpha * h for alpha in alphas}
        if self.problem.is_last or not self.passes_initial:
            return (h,)
        assert h0 is not None
        return h, h0

    def _normalised(self, z: Tensor, parameters: Tensors, running: Tensors, name: str) -> Tensor:
        """``z`` after batch normalisation over the nodes of all parts."""
        return batch_norm(
            z,
            (running[f"{name}.mean"], running[f"{name}.var"]),
            (parameters[f"{name}.gamma"], parameters[f"{name}.shift"]),
            (BN_MOMENTUM, BN_EPS),
            self.problem,
        )

    def effective_weights(self, parameters: Tensors, running: Tensors) -> Tensors:
        """See :func:`effective_weights`."""
        return effective_weights(self.problem, self.settings, parameters, running)


def normalises(problem: Problem, settings: AdamSettings, index: int) -> bool:
    """Whether batch normalisation follows the transform of a block."""
    return settings.batch_norm and index < len(problem.model.blocks) - 1


def start(problem: Problem, settings: AdamSettings, generator: torch.Generator) -> tuple[Tensors, Tensors]:
    """Initial parameters and running statistics of this stage; draws those of all."""
    blocks = problem.model.blocks
    parameters = initial_weights(problem.model, generator, problem.dtype)
    running: Tensors = {}
    for index, block in enumerate(blocks):
        name = f"block{index}"
        if problem.model.config.family == "gcnii":
            _uniform(parameters, name, block, generator)
        if normalises(problem, settings, index):
            parameters.pop(f"{name}.bias", None)
            parameters[f"{name}.gamma"] = torch.ones(block.out_channels, dtype=problem.dtype)
            parameters[f"{name}.shift"] = torch.zeros(block.out_channels, dtype=problem.dtype)
            running[f"{name}.mean"] = torch.zeros(block.out_channels, dtype=problem.dtype)
            running[f"{name}.var"] = torch.ones(block.out_channels, dtype=problem.dtype)
    device, own = problem.device, tuple(f"block{index}." for index in problem.span)
    parameters = {k: v.to(device).requires_grad_() for k, v in parameters.items() if k.startswith(own)}
    return parameters, {k: v.to(device) for k, v in running.items() if k.startswith(own)}


def effective_weights(
    problem: Problem, settings: AdamSettings, parameters: Tensors, running: Tensors
) -> Tensors:
    """Weights for :func:`gfgnn.forward.forward`: W' expanded, batch normalisation folded in.

    Running statistics are used, as torch does in evaluation mode:
    ``W gamma / std`` and ``shift + (b - mean) gamma / std``.
    """
    weights: Tensors = {}
    for index in problem.span:
        name, beta = f"block{index}", problem.model.blocks[index].beta
        weight, bias = parameters[f"{name}.weight"], parameters.get(f"{name}.bias")
        if beta is not None:
            identity = torch.eye(weight.size(0), dtype=weight.dtype, device=weight.device)
            weight = torch.add((1.0 - beta) * identity, weight, alpha=beta)
        if normalises(problem, settings, index):
            factor = parameters[f"{name}.gamma"] / (running[f"{name}.var"] + BN_EPS).sqrt()
            weight = weight * factor
            bias = parameters[f"{name}.shift"] - running[f"{name}.mean"] * factor
        weights[f"{name}.weight"] = weight.detach()
        if bias is not None:
            weights[f"{name}.bias"] = bias.detach()
    return weights


def transform(
    block: Block,
    operator: Operator | None,
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial: Tensor | None = None,
    *,
    rows: Tensor | None = None,
) -> Tensor:
    """``propagate(h) @ weight + bias`` of a block above the first, in the cheaper order of the two products.

    Args:
        operator: S; for an ``initial`` block (1 - alpha) S; None where nothing is propagated.
        initial: alpha H_0 of such a block.
        rows: the nodes to compute, where ``operator`` holds only their rows of S.
    """
    narrower = block.out_channels < block.in_channels
    if block.propagate == "none":
        return _linear(h if rows is None else h[rows], weight, bias)
    assert operator is not None
    if block.propagate == "graph" and narrower:
        z = times(operator, h @ weight)
        return z if bias is None else z + bias
    if block.propagate in ("graph", "initial"):
        return _linear(times(operator, h, initial), weight, bias)
    assert block.propagate == "concat", block.propagate
    own, neighbours = weight.split(block.in_channels)
    z = _linear(h if rows is None else h[rows], own, bias)
    if narrower:
        return z + times(operator, h @ neighbours)
    return torch.addmm(z, times(operator, h), neighbours)


def _linear(t: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return t @ weight if bias is None else torch.addmm(bias, t, weight)


def _uniform(weights: Tensors, name: str, block: Block, generator: torch.Generator) -> None:
    """The start of the GCNII code: U(-b, b) with b = 1/sqrt(fan_in), biases too, as ``torch.nn.Linear``."""
    bound = 1.0 / math.sqrt(block.fan_in)
    for key in (f"{name}.weight", f"{name}.bias"):
        if key in weights:
            draw = torch.rand(weights[key].shape, generator=generator, dtype=torch.float64)
            weights[key] = ((2 * draw - 1) * bound).to(weights[key].dtype)
