"""RevGNN: grouped reversible layers, whose activations are made again on the way back (Li et al. 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gfgnn.baseline.chain import loss_of, perceptron
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.optimizer import adam_step, make_group
from gfgnn.baseline.products import FirstLayer, dropout_mask, times
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_at_least, check_between, check_count
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.graph.propagation import Propagation
from gfgnn.graph.validate import check_trainable
from gfgnn.model.build import propagation_settings
from gfgnn.problem import Problem, prepare


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    groups: int = 2,
    lr: float = 0.003,
    dropout: float = 0.5,
    weight_decay: float = 0.0,
    epochs: int = 500,
    patience: int | None = None,
    eval_every: int = 1,
) -> Outcome:
    """Trains PyG's ``GroupAddRev`` on the whole graph; an iteration is an epoch.

    A linear layer to ``model.hidden`` columns, ``model.layers`` reversible blocks, LayerNorm, ReLU, dropout and a
    linear layer. The columns fall into groups X_1 ... X_C; a block makes ``X'_0 = X_2 + ... + X_C`` and ``X'_i =
    f_i(X'_{i-1}) + X_i`` with f LayerNorm, ReLU, dropout and a graph convolution: that of family ``sage`` ([H, S H]
    W + b) where the model is one, else that of ``gcn`` (S H W + b). One dropout mask serves all blocks of a step, or
    the way back could not repeat them. Shape and settings are those of PyG's example for ogbn-products
    (``rev_gnn.py``: Adam with learning rate .003, dropout .5, no decay, 2 groups).

    Freed memory is given back at once: kept for the next allocation, its holes would grow with the depth (20 MB a
    layer on 20,000 nodes, hidden 64).

    Raises:
        InputError: hidden columns that the groups do not divide, or settings out of range.
    """
    check_count("groups", groups, 2)
    if model.hidden % groups:
        raise InputError(
            f"RevGNN divides the hidden columns into {groups} groups; got hidden {model.hidden}."
        )
    check_at_least("lr", lr, 0.0)
    check_at_least("weight_decay", weight_decay, 0.0)
    check_between("dropout", dropout, 0.0, 0.99)
    check_trainable(graph)
    import torch_geometric.nn  # noqa: F401 - takes seconds, which are not the method's

    def make() -> Learner:
        generator = torch.Generator().manual_seed(seed)
        return RevLearner(graph, model, groups, generator, lr=lr, dropout=dropout, weight_decay=weight_decay)

    stop = Stop(iterations=epochs, patience=patience, eval_every=eval_every)
    return learn("revgnn", make, graph, stop, budget=budget, seed=seed, threads=threads, lean=True)


class Convolution(torch.nn.Module):
    """f of a group: LayerNorm, ReLU, dropout, then ``S H W + b`` or ``[H, S H] W + b``.

    Args:
        concat: the second.
    """

    def __init__(self, channels: int, concat: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(channels)
        self.own = linear(channels, channels, generator) if concat else None
        self.neighbours = linear(channels, channels, generator)

    def forward(self, h: Tensor, s: Propagation, mask: Tensor | None = None) -> Tensor:
        h = self.norm(h).relu()
        h = h if mask is None else h * mask
        z = self.neighbours(times(s, h))
        return z if self.own is None else z + self.own(h)


class RevNetwork(torch.nn.Module):
    """Encoder, reversible blocks, output.

    Args:
        problem: of a perceptron of two layers, whose inputs are the features.
        reversible: False keeps all activations instead, as any network does.
    """

    def __init__(
        self,
        problem: Problem,
        s: Propagation,
        layers: int,
        groups: int,
        concat: bool,
        generator: torch.Generator,
        reversible: bool = True,
    ) -> None:
        from torch_geometric.nn import GroupAddRev

        super().__init__()
        encoder, output = problem.model.blocks
        self.problem, self.s = problem, s
        self.inputs = FirstLayer(problem, 0.0, None)
        first = linear(encoder.in_channels, encoder.out_channels, generator)
        self.weight, self.bias = torch.nn.Parameter(first.weight.detach().t().contiguous()), first.bias
        width = encoder.out_channels // groups
        self.blocks = torch.nn.ModuleList()
        for _ in range(layers):
            convolutions = torch.nn.ModuleList(Convolution(width, concat, generator) for _ in range(groups))
            self.blocks.append(GroupAddRev(convolutions, disable=not reversible))
        self.norm = torch.nn.LayerNorm(encoder.out_channels)
        self.output = linear(encoder.out_channels, output.out_channels, generator)

    def forward(self, generator: torch.Generator, dropout: float, rows: Tensor | None = None) -> Tensor:
        """Scores of ``rows``, or of all nodes; without dropout where that is 0."""
        h = self.inputs(self.weight, generator) + self.bias
        mask = dropout_mask(h, dropout, generator) if dropout else None
        arguments = (self.s,) if mask is None else (self.s, mask)
        for block in self.blocks:
            h = block(h, *arguments)
        h = self.norm(h).relu()
        h = h if mask is None else h * dropout_mask(h, dropout, generator)
        return self.output(h if rows is None else h[rows])


class RevLearner(Learner):
    """Adam on a :class:`RevNetwork`; a step is an epoch."""

    def __init__(
        self,
        graph: Graph,
        model: ModelConfig,
        groups: int,
        generator: torch.Generator,
        *,
        lr: float,
        dropout: float,
        weight_decay: float,
    ) -> None:
        concat = model.family == "sage"
        super().__init__(
            lr=lr, dropout=dropout, weight_decay=weight_decay, groups=groups, layers=model.layers,
            hidden=model.hidden, convolution="sage" if concat else "gcn",
        )  # fmt: skip
        self.problem = prepare(perceptron(graph, model.hidden, 2), graph)
        norm, loops = propagation_settings(model)
        s = build_operator(graph, Operator(norm=norm, loops=float(loops)), torch.float32)
        self.network = RevNetwork(self.problem, s, model.layers, groups, concat, generator)
        self.lr, self.dropout, self.generator = lr, dropout, generator
        self.parameters: list[Tensor] = list(self.network.parameters())
        self.group = make_group(self.parameters, weight_decay)

    def step(self) -> float:
        with torch.enable_grad():
            scores = self.network(self.generator, self.dropout, self.problem.train_index)
            loss = loss_of(self.problem, scores, None)
        adam_step([self.group], [list(torch.autograd.grad(loss, self.parameters))], self.lr)
        return float(loss.detach())

    def scores(self) -> Tensor:
        scores: Tensor = self.network(self.generator, 0.0)
        return scores


def linear(inputs: int, outputs: int, generator: torch.Generator) -> torch.nn.Linear:
    """A linear layer with torch's own start, U(-b, b) and b = 1 / sqrt(inputs), drawn from ``generator``."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
    bound = 1.0 / math.sqrt(inputs)
    with torch.no_grad():
        for value in (layer.weight, layer.bias):
            value.uniform_(-bound, bound, generator=generator)
    return layer
