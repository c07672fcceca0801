"""A chain of blocks trained by Adam, on the whole graph or on pieces of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import scipy.sparse
import torch
from torch import Tensor
from torch.nn import functional as F

from gfgnn.baseline.adam import make_groups
from gfgnn.baseline.learner import Learner
from gfgnn.baseline.network import Network
from gfgnn.baseline.optimizer import adam_step
from gfgnn.checks import check_count
from gfgnn.comm.grid import serial_grid
from gfgnn.config import CUSTOM, ModelConfig
from gfgnn.forward import forward
from gfgnn.graph.features import select_rows
from gfgnn.graph.graph import Graph
from gfgnn.graph.propagation import Propagation, same
from gfgnn.model.blocks import Block
from gfgnn.model.build import Model, build_model
from gfgnn.model.inputs import make_inputs
from gfgnn.ops.spmm import from_parts, transpose
from gfgnn.problem import Facts, Problem, training_targets


class ChainLearner(Learner):
    """Weights of a network that are trained on one problem after another and evaluated on the whole graph.

    Args:
        network: any of the problems to come, for the shapes of the weights.
        whole: makes the problem of the whole graph; called by the first evaluation, and not timed.
        generator: of weights and masks.
    """

    def __init__(
        self, network: Network, whole: Callable[[], Problem], generator: torch.Generator, **about: Any
    ) -> None:
        adam = network.settings
        settings = asdict(adam)
        decays = settings.pop("decays")
        middle = decays[len(decays) // 2]
        settings["weight_decay"] = {"first": decays[0], "middle": middle, "last": decays[-1]}
        super().__init__(**settings, **about)
        self.network, self.generator, self._make_whole = network, generator, whole
        self.parameters, self.running = network.start(generator)
        self.groups = make_groups(self.parameters, adam)

    @cached_property
    def whole(self) -> Problem:
        return self._make_whole()

    def update(self, network: Network, weights: Tensor | None = None) -> float:
        """One step of Adam on the labelled nodes of a problem; returns their loss.

        Args:
            weights: ``[k]`` what the losses of single nodes are multiplied by before they are summed; None means them.
        """
        with torch.enable_grad():
            scores = network.scores(self.parameters, self.running, self.generator)
            loss = loss_of(network.problem, scores, weights)
        flat = [p for group in self.groups for p in group.parameters]
        gradients = iter(torch.autograd.grad(loss, flat))
        per_group = [[next(gradients) for _ in group.parameters] for group in self.groups]
        adam_step(self.groups, per_group, network.settings.lr)
        return float(loss.detach())

    def scores(self) -> Tensor:
        weights = self.network.effective_weights(self.parameters, self.running)
        return self.whole.by_node(forward(self.whole, weights))


class WholeLearner(ChainLearner):
    """The same on the whole graph: a step is an epoch."""

    def __init__(self, network: Network, generator: torch.Generator, **about: Any) -> None:
        super().__init__(network, lambda: network.problem, generator, **about)

    def step(self) -> float:
        return self.update(self.network)


def loss_of(problem: Problem, scores: Tensor, weights: Tensor | None) -> Tensor:
    """The loss of ``scores`` ``[k, C]`` of the labelled nodes: a mean, or a sum with a weight for each node.

    Cross-entropy for classes; else binary cross-entropy, or half the squared error, in the mean over the C outputs, of
    which unknown ones count as 0.
    """
    task, targets = problem.model.task, problem.targets
    if task == "multiclass":
        losses = F.cross_entropy(scores, problem.y[problem.train_index], reduction="none")
    else:
        known = ~torch.isnan(targets)
        filled = torch.where(known, targets, 0.0)
        if task == "multilabel":
            entries = F.binary_cross_entropy_with_logits(scores, filled, reduction="none")
        else:
            entries = 0.5 * (scores - filled).square()
        losses = torch.where(known, entries, 0.0).mean(1)
    return losses.mean() if weights is None else losses @ weights


def adjacency(graph: Graph) -> scipy.sparse.csr_matrix:
    """A ``[N, N]``: row i holds the weights of the edges into node i, as edges are sorted."""
    n, (source, target) = graph.num_nodes, graph.edge_index
    start = torch.zeros(n + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(target, minlength=n), 0, out=start[1:])
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.float()
    return scipy.sparse.csr_matrix((weight.numpy(), source.numpy(), start.numpy()), shape=(n, n))


def propagation_of(matrix: scipy.sparse.csr_matrix) -> Propagation:
    """S of a SciPy matrix, in float32."""
    matrix = matrix.astype("float32")
    matrix.sort_indices()
    crow, col, value = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    s = from_parts(crow, col, value, matrix.shape)
    s_t = transpose(s)
    return Propagation(s, s if same(s, s_t) else s_t, torch.ones(matrix.shape[0]))


def problem_on(model: Model, graph: Graph, s: Propagation, nodes: Tensor | None = None) -> Problem:
    """The problem of some nodes of a graph, in the order given, with a propagation matrix made for them.

    Args:
        s: S of these nodes ``[n, n]``.
        nodes: None for all of them.
    """
    index = torch.arange(graph.num_nodes) if nodes is None else nodes
    assert graph.x is not None
    features = (graph.x if nodes is None else select_rows(graph.x, nodes)).float()
    y = graph.y if nodes is None else graph.y[nodes]
    known = y >= 0 if graph.task == "multiclass" else ~torch.isnan(y).all(1)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    train, val, test = ((mask[index] & known).nonzero().squeeze(1) for mask in masks)
    return Problem(
        model=model,
        grid=serial_grid(),
        bounds=(0, len(model.blocks)),
        facts=Facts(
            num_nodes=index.numel(), num_train=train.numel(), num_val=val.numel(), homophily=float("nan")
        ),
        propagations=(s,),
        block_inputs={0: make_inputs(model.blocks[0], s, features)},
        features=None,
        y=y,
        node_ids=index,
        targets=training_targets(model, y[train]).float(),
        train_index=train,
        val_index=val,
        test_index=test,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def perceptron(graph: Graph, hidden: int, layers: int) -> Model:
    """A network of ``layers`` linear layers with ReLU in between, which does not look at the edges.

    Raises:
        InputError: the graph has no features.
    """
    check_count("layers", layers, 1)
    checked = build_model(ModelConfig(family="gcn", layers=2, hidden=hidden), graph)  # checks the graph, too
    widths = [graph.num_features, *[hidden] * (layers - 1), graph.num_classes]
    blocks = tuple(
        Block(
            propagate="none",
            in_channels=below,
            out_channels=above,
            activation="identity" if index == layers - 1 else "relu",
        )
        for index, (below, above) in enumerate(pairwise(widths))
    )
    return replace(checked, config=replace(checked.config, family=CUSTOM, layers=layers), blocks=blocks)
