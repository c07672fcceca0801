"""The blocks as a differentiable network: dropout, batch normalisation, scores of the labelled nodes only."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from gfgnn.baseline.products import FirstLayer, Operator, drop, restrict, scaled, times
from gfgnn.baseline.settings import AdamSettings
from gfgnn.graph.propagation import Propagation
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
    """

    def __init__(self, problem: Problem, settings: AdamSettings) -> None:
        self.problem = problem
        self.settings = settings
        self.blocks = problem.model.blocks
        rows = problem.train_index
        self.first = FirstLayer(problem, settings.dropout_input, rows if len(self.blocks) == 1 else None)
        assert isinstance(problem.propagation, Propagation), "the baseline runs on one device"
        uses_graph = self.blocks[-1].propagate != "none" and len(self.blocks) > 1
        self.output_propagation = restrict(problem.propagation, rows) if uses_graph else None
        alphas = {block.alpha for block in self.blocks if block.propagate == "initial"}
        self.damped = {alpha: scaled(problem.propagation, 1.0 - alpha) for alpha in alphas}
        self.identities = {
            index: (1.0 - block.beta) * torch.eye(block.fan_in, dtype=problem.dtype, device=problem.device)
            for index, block in enumerate(self.blocks)
            if block.beta is not None
        }

    def normalises(self, index: int) -> bool:
        return self.settings.batch_norm and index < len(self.blocks) - 1

    def start(self, generator: torch.Generator) -> tuple[Tensors, Tensors]:
        """Initial parameters and running statistics."""
        problem = self.problem
        parameters = initial_weights(problem.model, generator, problem.dtype)
        running: Tensors = {}
        for index, block in enumerate(self.blocks):
            name = f"block{index}"
            if problem.model.config.family == "gcnii":
                _uniform(parameters, name, block, generator)
            if self.normalises(index):
                parameters.pop(f"{name}.bias", None)
                parameters[f"{name}.gamma"] = torch.ones(block.out_channels, dtype=problem.dtype)
                parameters[f"{name}.shift"] = torch.zeros(block.out_channels, dtype=problem.dtype)
                running[f"{name}.mean"] = torch.zeros(block.out_channels, dtype=problem.dtype)
                running[f"{name}.var"] = torch.ones(block.out_channels, dtype=problem.dtype)
        device = problem.device
        parameters = {k: v.to(device).requires_grad_() for k, v in parameters.items()}
        return parameters, {k: v.to(device) for k, v in running.items()}

    def weight(self, parameters: Tensors, index: int) -> Tensor:
        """W of a block, from W' where the block splits off an identity."""
        weight = parameters[f"block{index}.weight"]
        beta = self.blocks[index].beta
        return weight if beta is None else torch.add(self.identities[index], weight, alpha=beta)

    def scores(self, parameters: Tensors, running: Tensors, generator: torch.Generator) -> Tensor:
        """Scores ``[k, C]`` of the labelled training nodes, with dropout."""
        p, last = self.settings.dropout, len(self.blocks) - 1
        h = torch.empty(0)
        initial: dict[float, Tensor] = {}
        for index, block in enumerate(self.blocks):
            weight, bias = self.weight(parameters, index), parameters.get(f"block{index}.bias")
            if index == 0:
                z = self.first(weight, generator)
                z = z if bias is None else z + bias
            elif index == last:
                z = self._output(block, drop(h, p, generator), weight, bias)
            else:
                mixes = block.propagate == "initial"
                operator = self.damped[block.alpha] if mixes else self.problem.propagation
                mixed = initial[block.alpha] if mixes else None
                z = transform(block, operator, drop(h, p, generator), weight, bias, mixed)
            if self.normalises(index):
                z = _batch_norm(z, parameters, running, f"block{index}")
            below, h = h, activate(z, block.activation)
            if block.skip is not None:
                h = torch.add(below, h, alpha=block.skip)
            if index == 0:  # shares of H_0, scaled once for all layers
                initial = {alpha: alpha * h for alpha in self.damped}
        return h

    def _output(self, block: Block, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The last block, on the labelled rows only."""
        rows = self.problem.train_index
        if self.output_propagation is None:
            return _linear(h[rows], weight, bias)
        return transform(block, self.output_propagation, h, weight, bias, rows=rows)

    def effective_weights(self, parameters: Tensors, running: Tensors) -> Tensors:
        """Weights for :func:`gfgnn.forward.forward`: W' expanded, batch normalisation folded in.

        Running statistics are used, as torch does in evaluation mode:
        ``W gamma / std`` and ``shift + (b - mean) gamma / std``.
        """
        weights: Tensors = {}
        for index in range(len(self.blocks)):
            name = f"block{index}"
            weight, bias = self.weight(parameters, index), parameters.get(f"{name}.bias")
            if self.normalises(index):
                factor = parameters[f"{name}.gamma"] / (running[f"{name}.var"] + BN_EPS).sqrt()
                weight = weight * factor
                bias = parameters[f"{name}.shift"] - running[f"{name}.mean"] * factor
            weights[f"{name}.weight"] = weight.detach()
            if bias is not None:
                weights[f"{name}.bias"] = bias.detach()
        return weights


def transform(
    block: Block,
    operator: Operator,
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial: Tensor | None = None,
    *,
    rows: Tensor | None = None,
) -> Tensor:
    """``propagate(h) @ weight + bias`` of a block above the first, in the cheaper order of the two products.

    Args:
        operator: S; for an ``initial`` block (1 - alpha) S.
        initial: alpha H_0 of such a block.
        rows: the nodes to compute, where ``operator`` holds only their rows of S.
    """
    narrower = block.out_channels < block.in_channels
    if block.propagate == "none":
        return _linear(h if rows is None else h[rows], weight, bias)
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


def _batch_norm(z: Tensor, parameters: Tensors, running: Tensors, name: str) -> Tensor:
    mean, var = running[f"{name}.mean"], running[f"{name}.var"]
    gamma, shift = parameters[f"{name}.gamma"], parameters[f"{name}.shift"]
    return F.batch_norm(z, mean, var, gamma, shift, training=True, momentum=BN_MOMENTUM, eps=BN_EPS)


def _uniform(weights: Tensors, name: str, block: Block, generator: torch.Generator) -> None:
    """The start of the GCNII code: U(-b, b) with b = 1/sqrt(fan_in), biases too, as ``torch.nn.Linear``."""
    bound = 1.0 / math.sqrt(block.fan_in)
    for key in (f"{name}.weight", f"{name}.bias"):
        if key in weights:
            draw = torch.rand(weights[key].shape, generator=generator, dtype=torch.float64)
            weights[key] = ((2 * draw - 1) * bound).to(weights[key].dtype)
