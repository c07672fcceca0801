"""Direct feedback alignment for graph convolutions: no derivative passes from layer to layer."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.optimizer import adam_step, make_group
from gfgnn.baseline.products import dropout_mask
from gfgnn.baseline.settings import AdamSettings, adam_config, resolve
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_between, check_count
from gfgnn.config import ModelConfig
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.graph.validate import check_trainable
from gfgnn.model.blocks import activate
from gfgnn.model.build import build_model, initial_weights
from gfgnn.problem import Problem, prepare

Tensors = dict[str, Tensor]


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    spread: float = 0.0,
    spreads: int = 10,
    epochs: int = 500,
    patience: int | None = None,
    eval_every: int = 1,
    **adam: Any,
) -> Outcome:
    """Trains a GCN by direct feedback alignment (Nøkland 2016); an iteration is an epoch.

    With ``Z_l = S H_{l-1} W_l + b_l``, ``H_l = relu(Z_l)``, L layers and the error E of the output (predicted
    probabilities less labels over the labelled nodes' number; 0 elsewhere)::

        output:  dW_L = (S H_{L-1})' E                                 as by backprop
        hidden:  D_l  = (S')^(L-l) E~ B_l * relu'(Z_l),   dW_l = (S H_{l-1})' D_l

    B_l is drawn once, as W_L' would be, in place of the product of transposed weights that backprop has there. The
    S' are the edges' share of that product, which is fixed and known: what Zhao et al. (2024, DFA-GNN, arXiv
    2406.02040) call the topology in the feedback links. E~ is E with, where ``spread`` is not 0, pseudo errors on
    the other nodes after their second idea, errors carried along the edges: ``R <- spread S R + (1 - spread) E``,
    ``spreads`` times. This is no reproduction of DFA-GNN: its filter of nodes is left out and its settings are not
    taken over. Updates are made by Adam with the settings published for GCN under backprop, hidden dropout included,
    and none on the input.

    Args:
        spread: share of the neighbours, below 1.
        adam: fields of :class:`gfgnn.config.AdamConfig`, without ``batch_norm``.

    Raises:
        InputError: another family than ``gcn``, or settings out of range.
    """
    if model.family != "gcn":
        raise InputError(f"direct feedback alignment is written for family gcn; got {model.family!r}.")
    check_between("spread", spread, 0.0, 0.999)
    check_count("spreads", spreads, 1)
    config = adam_config(adam)
    if config.batch_norm:
        raise InputError("direct feedback alignment is written without batch_norm; leave it out.")
    check_trainable(graph)
    built = build_model(model, graph)
    settings = resolve(config, model.family, len(built.blocks))

    def make() -> Learner:
        generator = torch.Generator().manual_seed(seed)
        return FeedbackLearner(prepare(built, graph), settings, spread, spreads, generator)

    stop = Stop(iterations=epochs, patience=patience, eval_every=eval_every)
    return learn("dfa", make, graph, stop, budget=budget, seed=seed, threads=threads)


class FeedbackLearner(Learner):
    """Weights, and a fixed matrix of feedback for each hidden layer.

    Attributes:
        feedback: B_l ``[C, d_l]``, by block number.
    """

    def __init__(
        self, problem: Problem, adam: AdamSettings, spread: float, spreads: int, generator: torch.Generator
    ) -> None:
        settings = asdict(adam) | {"dropout_input": 0.0, "spread": spread, "spreads": spreads}
        super().__init__(**settings)
        self.problem, self.adam, self.generator = problem, adam, generator
        self.spread, self.spreads = spread, spreads
        self.weights = initial_weights(problem.model, generator, problem.dtype)
        blocks, classes = problem.model.blocks, problem.model.num_classes
        self.feedback = {}
        for index, block in enumerate(blocks[:-1]):
            bound = math.sqrt(6.0 / (block.out_channels + classes))
            draw = torch.rand(classes, block.out_channels, generator=generator, dtype=torch.float64)
            self.feedback[index] = ((2 * draw - 1) * bound).to(problem.dtype)
        self.groups = [
            make_group([v for k, v in self.weights.items() if k.startswith(f"block{index}.")], decay)
            for index, decay in enumerate(adam.decays)
        ]

    @torch.no_grad()
    def step(self) -> float:
        loss, changes = self.changes()
        per_group = [
            [change for name, change in changes.items() if name.startswith(f"block{index}.")]
            for index in range(len(self.groups))
        ]
        adam_step(self.groups, per_group, self.adam.lr)
        return loss

    def changes(self) -> tuple[float, Tensors]:
        """The loss, and for each weight what takes the place of its derivative, in the order of the weights."""
        problem, blocks = self.problem, self.problem.model.blocks
        last, s = len(blocks) - 1, self.problem.propagation
        inputs: dict[int, Tensor] = {}
        slopes: dict[int, Tensor] = {}
        h = torch.empty(0)
        for index, block in enumerate(blocks):
            weight, bias = self.weights[f"block{index}.weight"], self.weights.get(f"block{index}.bias")
            if index == 0:
                z = problem.inputs.matmul(weight)
            else:
                inputs[index] = s.apply(h)
                z = inputs[index] @ weight
            h = z if bias is None else z + bias
            if index < last:
                mask = dropout_mask(h, self.adam.dropout, self.generator) if self.adam.dropout else 1.0
                slopes[index] = torch.where(h > 0, 1.0, block.slope_below) * mask
                h = activate(h, block.activation) * mask
        loss, error = error_of(problem, h)
        changes: Tensors = {}
        carried = self._with_pseudo_errors(error)
        delta = error
        for index in range(last, -1, -1):
            if index < last:
                carried = s.adjoint(carried)
                delta = (carried @ self.feedback[index]) * slopes[index]
            if f"block{index}.bias" in self.weights:
                changes[f"block{index}.bias"] = delta.sum(0)
            changes[f"block{index}.weight"] = (
                problem.inputs.adjoint(delta) if index == 0 else inputs[index].t() @ delta
            )
        return loss, {name: changes[name] for name in self.weights}

    def _with_pseudo_errors(self, error: Tensor) -> Tensor:
        if self.spread == 0.0:
            return error
        r = error
        for _ in range(self.spreads):
            r = self.problem.propagation.apply(r, scale=self.spread, plus=error, plus_scale=1.0 - self.spread)
        r[self.problem.train_index] = error[self.problem.train_index]
        return r

    def scores(self) -> Tensor:
        return forward(self.problem, self.weights)


def error_of(problem: Problem, scores: Tensor) -> tuple[float, Tensor]:
    """The training loss (:func:`gfgnn.metrics.loss`) and its derivative by the scores ``[N, C]``, in closed form."""
    task, rows, targets = problem.model.task, problem.train_index, problem.targets
    picked = scores[rows]
    known = ~torch.isnan(targets)
    filled = torch.where(known, targets, 0.0)
    if task == "multiclass":
        predicted, count = picked.softmax(1), rows.numel()
    else:
        predicted, count = (picked.sigmoid() if task == "multilabel" else picked), int(known.sum())
    error = torch.zeros_like(scores)
    error[rows] = torch.where(known, predicted - filled, 0.0) / count
    return float(metrics.loss(task, picked, targets)), error
