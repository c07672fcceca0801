"""The families of networks, each as a list of blocks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator
from gfgnn.model.blocks import FEATURES, Block, Term


@dataclass(frozen=True)
class Model:
    """A network: its configuration and the blocks made from it. Weights live apart, in a dictionary.

    Attributes:
        num_features: columns of the network's inputs: the features, then the labels where it takes these.
        operators: the propagation matrices that blocks multiply by; a chain uses the first alone.
    """

    config: ModelConfig
    blocks: tuple[Block, ...]
    num_features: int
    num_classes: int
    task: str
    operators: tuple[Operator, ...]

    @property
    def num_label_inputs(self) -> int:
        """Columns of labels among the inputs, see :mod:`gfgnn.label_reuse`."""
        return self.num_classes if self.config.label_inputs else 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; :func:`model_from_dict` is the inverse."""
        about: dict[str, Any] = {
            "model": asdict(self.config), "num_features": self.num_features, "num_classes": self.num_classes,
            "task": self.task,
        }  # fmt: skip
        if self.config.family in UNBUILT:
            about["blocks"] = [asdict(block) for block in self.blocks]
            about["operators"] = [asdict(operator) for operator in self.operators]
        return about


def model_from_dict(about: dict[str, Any]) -> Model:
    """The network that :meth:`Model.to_dict` described."""
    config = ModelConfig(**about["model"])
    sizes = about["num_features"], about["num_classes"], about["task"]
    if config.family not in UNBUILT:
        return make_model(config, *sizes)
    blocks = tuple(_block_from_dict(block) for block in about["blocks"])
    return Model(config, blocks, *sizes, tuple(Operator(**operator) for operator in about["operators"]))


def _block_from_dict(values: dict[str, Any]) -> Block:
    terms = tuple(Term(**term) for term in values["terms"])
    adds = tuple((int(source), float(factor)) for source, factor in values["adds"])
    return Block(**values | {"terms": terms, "adds": adds})


def build_model(config: ModelConfig, graph: Graph) -> Model:
    """The network of ``config`` for the features, classes, task and relations of ``graph``.

    Raises:
        InputError: the graph has no features, or the configuration describes a network made elsewhere, or one with
            labels as inputs and the graph's are values.
    """
    if graph.num_features == 0:
        raise InputError(
            f"{graph.name} has no node features; load it with features='structure' to make some from the edges."
        )
    if config.label_inputs and graph.task == "regression":
        raise InputError(
            f"label_inputs is for classes and multi-label targets; {graph.name} is a regression."
        )
    num_inputs = graph.num_features + (graph.num_classes if config.label_inputs else 0)
    if config.family == "rgcn":
        return _rgcn(config, graph, num_inputs)
    if config.family not in FAMILY_BLOCKS:
        raise InputError(
            "A network of family 'custom' comes from gfgnn.from_pyg; a configuration does not describe it."
        )
    return make_model(config, num_inputs, graph.num_classes, graph.task)


def make_model(config: ModelConfig, num_features: int, num_classes: int, task: str) -> Model:
    """The network of ``config`` for stated sizes; for families whose blocks follow from these alone."""
    blocks = FAMILY_BLOCKS[config.family](config, num_features, num_classes)
    norm, self_loops = propagation_settings(config)
    operators = (Operator(norm=norm, loops=float(self_loops)),)
    return Model(config, tuple(blocks), num_features, num_classes, task, operators)


def _rgcn(c: ModelConfig, graph: Graph, num_features: int) -> Model:
    """Schlichtkrull et al. 2018: H_l = act(sum_r S_r H_{l-1} W_{l,r} + H_{l-1} W_{l,0} + b_l), S_r the mean over the
    neighbours by relation r. On :func:`gfgnn.data.grid_graph` the relations are the offsets of a 3 x 3 convolution,
    the cell itself among them, and no separate root weight is needed."""
    operators = tuple(
        Operator(norm="rw", loops=0.0, weighted=False, relation=r) for r in range(graph.num_relations)
    )
    root = [] if _has_loop_relation(graph) else [None]

    def terms(source: int, width: int) -> tuple[Term, ...]:
        related = [Term(source=source, width=width, hops=1, operator=r) for r in range(len(operators))]
        return (*related, *(Term(source=source, width=width) for _ in root))

    blocks = []
    for index in range(c.layers):
        first, last = index == 0, index == c.layers - 1
        width = num_features if first else c.hidden
        blocks.append(
            Block(
                propagate="terms",
                terms=terms(FEATURES if first else index - 1, width),
                in_channels=width,
                out_channels=graph.num_classes if last else c.hidden,
                bias=c.bias,
                activation="identity" if last else c.activation,
                reference="zero" if first or last else "identity",
            )
        )
    return Model(c, tuple(blocks), num_features, graph.num_classes, graph.task, operators)


def _has_loop_relation(graph: Graph) -> bool:
    """Whether one of the relations links every node with itself alone."""
    if graph.raw is None or graph.raw.edge_type is None:
        return False
    source, target = graph.raw.edge_index
    loops = torch.bincount(graph.raw.edge_type[source == target], minlength=graph.num_relations)
    counts = torch.bincount(graph.raw.edge_type, minlength=graph.num_relations)
    return bool(((loops == counts) & (loops == graph.num_nodes)).any())


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
    """Frasca et al. 2020 (GA-MLP): an MLP of ``mlp_layers`` linear layers on [X, S X, ..., S^K X]."""
    hidden = [_hidden(c, "none") for _ in range(c.mlp_layers - 2)]
    return [_block(c, "hops", f, c.hidden, hops=c.layers), *hidden, _output(c, "none", k)]


#: families whose blocks are stored with a network, since its configuration alone does not tell them
UNBUILT = ("rgcn", "custom")

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
        if not block.weighted:
            continue
        bound = math.sqrt(6.0 / (block.fan_in + block.out_channels))
        draw = torch.rand(block.fan_in, block.out_channels, generator=generator, dtype=torch.float64)
        weights[f"block{index}.weight"] = ((2 * draw - 1) * bound).to(dtype)
        if block.bias:
            weights[f"block{index}.bias"] = torch.zeros(block.out_channels, dtype=dtype)
    return weights
