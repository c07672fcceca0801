"""The families of networks, each as a list of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.blocks import Block


@dataclass(frozen=True)
class Model:
    """A network: its configuration and the blocks made from it. Weights live apart, in a dictionary."""

    config: ModelConfig
    blocks: tuple[Block, ...]
    num_features: int
    num_classes: int
    task: str


def build_model(config: ModelConfig, graph: Graph) -> Model:
    """The network of ``config`` for the features, classes and task of ``graph``.

    Raises:
        InputError: the graph has no features.
    """
    if graph.num_features == 0:
        raise InputError(
            f"{graph.name} has no node features; load it with features='structure' to make some from the edges."
        )
    return make_model(config, graph.num_features, graph.num_classes, graph.task)


def make_model(config: ModelConfig, num_features: int, num_classes: int, task: str) -> Model:
    """The network of ``config`` for stated sizes (what a checkpoint stores)."""
    blocks = FAMILY_BLOCKS[config.family](config, num_features, num_classes)
    return Model(config, tuple(blocks), num_features, num_classes, task)


def _gcn(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Kipf and Welling 2017: H_l = act(S H_{l-1} W_l + b_l), the last one without activation."""
    hidden = [_hidden(c, "graph") for _ in range(c.layers - 2)]
    return [_block(c, "graph", f, c.hidden), *hidden, _output(c, "graph", k)]


def _gcnii(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Chen et al. 2020: H_l = act(((1-a) S H_{l-1} + a H_0)((1-b_l) I + b_l W_l)), b_l = log(theta / l + 1)."""
    hidden = [
        Block(
            propagate="initial", in_channels=c.hidden, out_channels=c.hidden, activation=c.activation, bias=False,
            reference="identity", alpha=c.alpha, beta=math.log(c.theta / layer + 1.0),
        )
        for layer in range(1, c.layers + 1)
    ]  # fmt: skip
    return [_block(c, "none", f, c.hidden), *hidden, _output(c, "none", k)]


def _resgcn(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Residual GCN: H_l = H_{l-1} + tau act(S H_{l-1} W_l + b_l), tau = 1/sqrt(layers), between two linear maps.

    The scale tau keeps the sum of the branches bounded at any depth. The branches' reference is the identity: with
    W = 0 no node would hear of its neighbours.
    """
    tau = 1.0 / math.sqrt(c.layers)
    hidden = [
        Block(
            propagate="graph", in_channels=c.hidden, out_channels=c.hidden, activation=c.activation, bias=c.bias,
            reference="identity", skip=tau,
        )
        for _ in range(c.layers)
    ]  # fmt: skip
    return [_block(c, "none", f, c.hidden), *hidden, _output(c, "none", k)]


def _sage(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Hamilton et al. 2017 with mean aggregation: H_l = act([H_{l-1}, D^-1 A H_{l-1}] W_l + b_l)."""
    hidden = [_hidden(c, "concat") for _ in range(c.layers - 2)]
    return [_block(c, "concat", f, c.hidden), *hidden, _output(c, "concat", k)]


def _sgc(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Wu et al. 2019: one linear map of S^K X."""
    return [
        Block(
            propagate="power",
            hops=c.layers,
            in_channels=f,
            out_channels=k,
            activation="identity",
            bias=c.bias,
        )
    ]


def _sign(c: ModelConfig, f: int, k: int) -> list[Block]:
    """Frasca et al. 2020 (GA-MLP): an MLP with one hidden layer more on [X, S X, ..., S^K X]."""
    return [_block(c, "hops", f, c.hidden, hops=c.layers), _hidden(c, "none"), _output(c, "none", k)]


FAMILY_BLOCKS = {
    "gcn": _gcn,
    "gcnii": _gcnii,
    "resgcn": _resgcn,
    "sage": _sage,
    "sgc": _sgc,
    "sign": _sign,
}


def _block(c: ModelConfig, propagate: str, in_channels: int, out_channels: int, hops: int = 1) -> Block:
    return Block(
        propagate=propagate, in_channels=in_channels, out_channels=out_channels, hops=hops,
        activation=c.activation, bias=c.bias,
    )  # fmt: skip


def _hidden(c: ModelConfig, propagate: str) -> Block:
    return Block(
        propagate=propagate, in_channels=c.hidden, out_channels=c.hidden, activation=c.activation, bias=c.bias,
        reference="identity",
    )  # fmt: skip


def _output(c: ModelConfig, propagate: str, num_classes: int) -> Block:
    return Block(
        propagate=propagate,
        in_channels=c.hidden,
        out_channels=num_classes,
        activation="identity",
        bias=c.bias,
    )


def propagation_settings(config: ModelConfig) -> tuple[str, bool]:
    """The normalisation a family uses: SAGE averages over the neighbours, without the node itself."""
    if config.family == "sage":
        return "rw", False
    return config.norm, config.self_loops


def initial_weights(
    model: Model, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Glorot-uniform weights (Glorot and Bengio 2010) and zero biases; drawn in float64, so that a seed means the
    same network in every precision.

    Returns:
        ``block{l}.weight`` [fan_in, out_channels] and, where the block has one, ``block{l}.bias`` [out_channels].
    """
    weights = {}
    for index, block in enumerate(model.blocks):
        bound = math.sqrt(6.0 / (block.fan_in + block.out_channels))
        draw = torch.rand(block.fan_in, block.out_channels, generator=generator, dtype=torch.float64)
        weights[f"block{index}.weight"] = ((2 * draw - 1) * bound).to(dtype)
        if block.bias:
            weights[f"block{index}.bias"] = torch.zeros(block.out_channels, dtype=dtype)
    return weights
