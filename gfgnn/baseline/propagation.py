"""The cheap yardsticks: labels carried along the edges, and Correct & Smooth over a network that sees no edge."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gfgnn import metrics
from gfgnn.baseline.chain import WholeLearner, perceptron
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.network import Network
from gfgnn.baseline.settings import AdamSettings
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_choice
from gfgnn.config import CorrectAndSmoothConfig, ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.graph.validate import check_trainable
from gfgnn.post import check_post, choose_alphas, correct_and_smooth
from gfgnn.problem import prepare

#: What label propagation is tuned over: share of the neighbours in each step (None: all, with training labels put
#: back), and steps.
ALPHAS = (None, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
STEPS = (1, 2, 3, 5, 10, 20, 50, 100)
BASES = ("mlp", "linear")
LEAST = 1e-12


def run(graph: Graph, model: ModelConfig, *, budget: Budget, seed: int, threads: int) -> Outcome:
    """Label propagation, tuned on validation; an iteration tries one alpha, with all numbers of steps on the way.

    With Y the training labels and R = Y at first: ``R <- alpha S R + (1 - alpha) Y`` with S = D^-1/2 A D^-1/2 (Zhou
    et al. 2004), and ``R <- D^-1 A R`` with training rows set back to Y after each step (Zhu and Ghahramani 2002).
    Each line of the history is the best on validation so far; all seconds of the search count. Nothing of ``model``
    applies, and nothing is random. Nodes that no label reaches get the shares of the classes among the training
    labels.

    Raises:
        InputError: a regression, or no labelled node to start from or to choose on.
    """
    _check(graph)
    stop = Stop(iterations=len(ALPHAS))
    budget = Budget(seconds=budget.seconds, iterations=min(len(ALPHAS), budget.iterations or len(ALPHAS)))
    return learn(
        "label-propagation",
        lambda: LabelLearner(graph),
        graph,
        stop,
        budget=budget,
        seed=seed,
        threads=threads,
    )


def run_smoothed(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    base: str = "mlp",
    lr: float = 0.01,
    dropout: float = 0.5,
    weight_decay: float = 5e-4,
    epochs: int = 300,
    patience: int | None = None,
    eval_every: int = 1,
) -> Outcome:
    """Correct & Smooth (Huang et al. 2021, :mod:`gfgnn.post`) over a network of linear layers, ``model.hidden`` wide.

    The base is trained by Adam, an epoch an iteration. Then, as the last iteration, the scores of the epoch that was
    best on validation are corrected and smoothed with both alphas chosen on validation, whose seconds count. Bases,
    learning rate and dropout are the paper's (a linear model or an MLP, on the features alone); the decay, which it
    does not have, is the one of Planetoid's networks and helps where labels are few.

    Args:
        base: ``mlp``, of 3 layers as the paper's, or ``linear``.

    Raises:
        InputError: as :func:`run`.
    """
    _check(graph)
    check_trainable(graph)
    check_choice("base", base, BASES)
    layers = 3 if base == "mlp" else 1
    built = perceptron(graph, model.hidden, layers)
    adam = AdamSettings(
        lr=lr, dropout=dropout, dropout_input=0.0, batch_norm=False, decays=(weight_decay,) * layers
    )

    def make() -> Learner:
        generator = torch.Generator().manual_seed(seed)
        return SmoothedLearner(Network(prepare(built, graph), adam), graph, generator, base=base)

    stop = Stop(iterations=epochs, patience=patience, eval_every=eval_every)
    return learn("correct-and-smooth", make, graph, stop, budget=budget, seed=seed, threads=threads)


class LabelLearner(Learner):
    """The best propagated labels so far; a step tries the next of :data:`ALPHAS`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(alphas=list(ALPHAS), steps=list(STEPS), chosen=None)
        self.graph, self.tried = graph, 0
        self.symmetric = build_operator(graph, Operator(norm="sym", loops=0.0), torch.float32)
        self.mean = build_operator(graph, Operator(norm="rw", loops=0.0), torch.float32)
        self.val = graph.labelled(graph.val_mask)
        self.train = graph.labelled(graph.train_mask)
        self.start = _labels(graph, self.train)
        self.prior = _shares(graph, self.start.sum(0, keepdim=True))
        self.best, self.found = -math.inf, self.prior.expand(graph.num_nodes, -1)

    def step(self) -> float:
        alpha = ALPHAS[self.tried % len(ALPHAS)]
        self.tried += 1
        r = self.start
        for count in range(1, STEPS[-1] + 1):
            if alpha is None:
                r = self.mean.apply(r)
                r[self.train] = self.start[self.train]
            else:
                r = self.symmetric.apply(r, scale=alpha, plus=self.start, plus_scale=1.0 - alpha)
            if count in STEPS:
                self._keep_if_better(r, alpha, count)
        return math.nan

    def _keep_if_better(self, r: Tensor, alpha: float | None, steps: int) -> None:
        shares = _shares(self.graph, r)
        shares = torch.where(shares.isfinite(), shares, self.prior)
        value = metrics.score(self.graph.task, shares, self.graph.y, self.val)
        if value > self.best:
            self.best, self.found = value, shares
            how = "rw, training labels put back" if alpha is None else "sym"
            self.settings["chosen"] = {"alpha": alpha, "steps": steps, "norm": how}

    def scores(self) -> Tensor:
        return _logits(self.graph, self.found)


class SmoothedLearner(WholeLearner):
    """A perceptron, then its best scores smoothed."""

    def __init__(self, network: Network, graph: Graph, generator: torch.Generator, **about: Any) -> None:
        super().__init__(network, generator, **about)
        self.graph = graph
        self.val = graph.labelled(graph.val_mask)
        self.best, self.kept = -math.inf, torch.empty(0)
        self.smoothed: Tensor | None = None

    def scores(self) -> Tensor:
        if self.smoothed is not None:
            return self.smoothed
        scores = super().scores()
        value = metrics.score(self.graph.task, scores, self.graph.y, self.val)
        if value > self.best:
            self.best, self.kept = value, scores
        return scores

    def finish(self) -> bool:
        several = self.graph.task == "multilabel"
        probabilities = self.kept.sigmoid() if several else self.kept.softmax(1)
        automatic = CorrectAndSmoothConfig(correction_alpha="auto", smoothing_alpha="auto")
        config = choose_alphas(self.graph, probabilities, automatic)
        self.settings["correct_and_smooth"] = asdict(config)
        self.smoothed = _logits(self.graph, correct_and_smooth(self.graph, probabilities, config))
        return True


def _check(graph: Graph) -> None:
    if graph.task == "regression":
        raise InputError(
            f"labels are carried for classes and multi-label targets; {graph.name} is a regression."
        )
    check_post(graph, CorrectAndSmoothConfig(correction_alpha="auto"))


def _labels(graph: Graph, train: Tensor) -> Tensor:
    """Known training labels ``[N, C]``; of multi-label targets beside them which are known, ``[N, 2 C]``."""
    if graph.task == "multiclass":
        start = torch.zeros(graph.num_nodes, graph.num_classes)
        start[train, graph.y[train]] = 1.0
        return start
    start = torch.zeros(graph.num_nodes, 2 * graph.num_classes)
    labels = graph.y[train].float()
    start[train] = torch.cat([labels.nan_to_num(0.0), (~labels.isnan()).float()], 1)
    return start


def _shares(graph: Graph, r: Tensor) -> Tensor:
    """``[., C]`` shares of the classes, or of the positives among the known labels, in what has been carried.

    Not finite where nothing has arrived.
    """
    if graph.task == "multiclass":
        return r / r.sum(1, keepdim=True)
    positive, known = r.chunk(2, 1)
    return positive / known


def _logits(graph: Graph, shares: Tensor) -> Tensor:
    """Scores whose softmax, or sigmoid, are the shares; rows of shares may sum to anything."""
    if graph.task == "multiclass":
        return shares.clamp(min=LEAST).log()
    return torch.logit(shares, eps=1e-6)
