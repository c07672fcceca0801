"""GraphSAINT: every step trains on a sampled subgraph, with sums corrected for what is sampled how often (Zeng et al.
2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgnn.baseline.chain import ChainLearner, problem_on, propagation_of
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.network import Network
from gfgnn.baseline.settings import AdamSettings, adam_config, resolve
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import check_choice, check_count
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_operator
from gfgnn.graph.validate import check_trainable
from gfgnn.model.build import Model, build_model
from gfgnn.ops.spmm import to_scipy
from gfgnn.problem import Problem

SAMPLERS = ("walk", "node")
#: Roots of the walks at most, and their length, as published for random walks on Reddit; a tenth of the nodes where
#: few.
ROOTS, LENGTH = 3000, 2


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    sampler: str = "walk",
    roots: int | None = None,
    length: int = LENGTH,
    coverage: int = 50,
    epochs: int = 200,
    patience: int | None = None,
    eval_every: int = 1,
    **adam: Any,
) -> Outcome:
    """Trains a chain of blocks on sampled subgraphs; an iteration is an epoch: as many as hold N nodes together.

    Subgraphs are induced on the nodes of random walks (``roots`` of them, ``length`` steps), or on nodes drawn with
    a probability in proportion to the squared column of S (``roots`` times ``length + 1`` draws). With C_v and C_uv
    counted over samples drawn beforehand, so many that each node is drawn ``coverage`` times in the mean, S_vu is
    divided by C_uv / C_v and the loss of node v by C_v over the samples: section 3.2 of the paper, whose
    normalisations of aggregator and loss these are. S is that of the whole graph. Unlike the paper's training graph,
    subgraphs hold all nodes, labelled or not, and the loss is of labelled ones. Samples for training are drawn anew.
    Evaluation is on the whole graph. Learning rate .01 is the paper's; decay and dropout (there .1 or .2 and none,
    for many labels) are those published for the model's family (:mod:`gfgnn.baseline.settings`) unless given. Family
    ``sage`` is the paper's layer, [H, S H] W.

    Args:
        sampler: ``walk`` or ``node``.
        roots: None for 3000, or a tenth of the nodes where that is less.
        adam: fields of :class:`gfgnn.config.AdamConfig`.
    """
    check_choice("sampler", sampler, SAMPLERS)
    roots = max(1, min(ROOTS, graph.num_nodes // 10)) if roots is None else roots
    for name, value in (("roots", roots), ("length", length), ("coverage", coverage)):
        check_count(name, value, 1)
    check_trainable(graph)
    built = build_model(model, graph)
    settings = resolve(adam_config({"lr": 0.01} | adam), model.family, len(built.blocks))

    def make() -> Learner:
        generator = torch.Generator().manual_seed(seed)
        return SaintLearner(
            Samples(built, graph, sampler, roots, length, coverage, generator), settings, generator
        )

    stop = Stop(iterations=epochs, patience=patience, eval_every=eval_every)
    return learn("graphsaint", make, graph, stop, budget=budget, seed=seed, threads=threads)


class Samples:
    """Subgraphs and their coefficients, estimated when this is made.

    Attributes:
        draws: samples that the coefficients come from.
        node_counts: C_v ``[N]``.
        edge_counts: C_uv, one for each non-zero of S ``[nnz]``.
        mean_size: nodes of a sample.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        sampler: str,
        roots: int,
        length: int,
        coverage: int,
        generator: torch.Generator,
    ) -> None:
        self.model, self.graph, self.sampler = model, graph, sampler
        self.roots, self.length, self.generator = roots, length, generator
        self.operator = build_operator(graph, model.operators[0], torch.float32)
        s = to_scipy(self.operator.matrix)
        self.values = s.data
        # the number of each non-zero, so that a block of S says which they are
        numbers = np.arange(s.nnz, dtype=np.int64)
        self.numbered = scipy.sparse.csr_matrix((numbers, s.indices, s.indptr), shape=s.shape)
        squares = np.bincount(s.indices, weights=np.square(s.data, dtype=np.float64), minlength=s.shape[1])
        self.chances = torch.from_numpy(np.cumsum(squares))
        target, source = graph.edge_index[1], graph.edge_index[0]
        self.start = torch.zeros(graph.num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(target, minlength=graph.num_nodes), 0, out=self.start[1:])
        self.neighbours = source
        self.node_counts = np.zeros(graph.num_nodes, dtype=np.int64)
        self.edge_counts = np.zeros(s.nnz, dtype=np.int64)
        self.draws = 0
        while self.draws < 2 or int(self.node_counts.sum()) < coverage * graph.num_nodes:
            nodes = self.draw().numpy()
            self.node_counts[nodes] += 1
            self.edge_counts[self.block(nodes).data] += 1
            self.draws += 1
        self.mean_size = float(self.node_counts.sum()) / self.draws

    def draw(self) -> Tensor:
        """The nodes of one subgraph, ascending."""
        n, generator = self.graph.num_nodes, self.generator
        if self.sampler == "node":
            draws = torch.rand(self.roots * (self.length + 1), generator=generator, dtype=torch.float64)
            return torch.searchsorted(self.chances, draws * self.chances[-1]).clamp_(max=n - 1).unique()
        here = torch.randint(n, (self.roots,), generator=generator)
        seen = [here]
        degree = self.start.diff()
        for _ in range(self.length):
            step = (torch.rand(here.numel(), generator=generator, dtype=torch.float64) * degree[here]).long()
            place = (self.start[here] + step).clamp_(max=max(0, self.neighbours.numel() - 1))
            moved = self.neighbours[place] if self.neighbours.numel() else here
            here = torch.where(degree[here] > 0, moved, here)  # a walk ends where no edge leads on
            seen.append(here)
        return torch.cat(seen).unique()

    def block(self, nodes: np.ndarray) -> scipy.sparse.csr_matrix:
        """Numbers of the non-zeros of S between ``nodes``."""
        return self.numbered[nodes][:, nodes]

    def problem(self, nodes: Tensor) -> tuple[Problem, Tensor]:
        """The problem of a subgraph, and weights ``[k]`` that make its summed loss the mean loss in expectation.

        A node or edge that no sample for the coefficients had counts as drawn once.
        """
        ids = nodes.numpy()
        block = self.block(ids)
        node_counts = np.maximum(self.node_counts[ids], 1)
        edge_counts = np.maximum(self.edge_counts[block.data], 1)
        row = np.repeat(np.arange(ids.size), np.diff(block.indptr))
        data = self.values[block.data] * (node_counts[row] / edge_counts)
        s = propagation_of(scipy.sparse.csr_matrix((data, block.indices, block.indptr), shape=block.shape))
        problem = problem_on(self.model, self.graph, s, nodes)
        labelled = int(self.graph.labelled(self.graph.train_mask).numel())
        chance = torch.from_numpy(node_counts / self.draws)[problem.train_index]
        return problem, (1.0 / (labelled * chance)).float()

    def whole(self) -> Problem:
        return problem_on(self.model, self.graph, self.operator)


class SaintLearner(ChainLearner):
    """A step is an epoch: one update for each sampled subgraph with a labelled node."""

    def __init__(self, samples: Samples, adam: AdamSettings, generator: torch.Generator) -> None:
        self.samples = samples
        self.steps = max(1, round(samples.graph.num_nodes / samples.mean_size))
        first = Network(samples.problem(samples.draw())[0], adam)
        super().__init__(
            first, samples.whole, generator, sampler=samples.sampler, roots=samples.roots,
            length=samples.length, presampled=samples.draws, mean_nodes=samples.mean_size, steps_per_epoch=self.steps,
        )  # fmt: skip

    def step(self) -> float:
        losses = []
        for _ in range(self.steps):
            problem, weights = self.samples.problem(self.samples.draw())
            if problem.train_index.numel():
                losses.append(self.update(Network(problem, self.network.settings), weights))
        return float(np.mean(losses)) if losses else float("nan")
