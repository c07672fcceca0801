"""Cluster-GCN: every step trains on a few parts of the graph, put together (Chiang et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgnn.baseline.chain import ChainLearner, adjacency, problem_on, propagation_of
from gfgnn.baseline.learner import Learner, Stop, learn
from gfgnn.baseline.network import Network
from gfgnn.baseline.settings import AdamSettings, adam_config, resolve
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError, check_count
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import partition_nodes
from gfgnn.graph.propagation import Propagation
from gfgnn.graph.validate import check_trainable
from gfgnn.model.build import Model, build_model, propagation_settings
from gfgnn.problem import Problem

#: Nodes of a part and parts of a batch, as published for Reddit: 1500 parts of 232,965 nodes, 20 in a batch.
PART, BATCH = 155, 20


def run(
    graph: Graph,
    model: ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    parts: int | None = None,
    batch: int | None = None,
    diagonal: float | None = None,
    epochs: int = 200,
    patience: int | None = None,
    eval_every: int = 1,
    partitioner: str = "auto",
    **adam: Any,
) -> Outcome:
    """Trains a chain of blocks on random groups of METIS parts; an iteration is an epoch, a step for each group.

    The edges between the parts of a group are put back and S is normalised within the group (stochastic multiple
    partitions, section 3.2). Evaluation is on the whole graph with the normalisation of training. Learning rate .01
    is the paper's; decay, dropout and placement of both, which it has for many labels only (dropout .2, no decay),
    are those published for the model's family (:mod:`gfgnn.baseline.settings`) unless given.

    Args:
        parts: None for parts of 155 nodes, at least 4.
        batch: parts in a group; None for 20, or a quarter of them where they are few.
        diagonal: lambda of the diagonal enhancement, S = B + lambda diag(B) with B = (D + I)^-1 (A + I), which
            the paper takes with lambda 1 where networks are deep; None has the model's own S.
        partitioner: see :func:`gfgnn.graph.partition.partition_nodes`.
        adam: fields of :class:`gfgnn.config.AdamConfig`.

    Raises:
        InputError: more parts in a batch than there are, or as :func:`gfgnn.model.build.build_model`.
    """
    parts = min(graph.num_nodes, max(4, round(graph.num_nodes / PART))) if parts is None else parts
    batch = max(1, min(BATCH, parts // 4)) if batch is None else batch
    check_count("parts", parts, 1, graph.num_nodes)
    check_count("batch", batch, 1)
    if batch > parts:
        raise InputError(f"batch is {batch} of {parts} parts; give as many at most.")
    check_trainable(graph)
    built = build_model(model, graph)
    settings = resolve(adam_config({"lr": 0.01} | adam), model.family, len(built.blocks))

    def make() -> Learner:
        assignment = partition_nodes(graph, parts, method=partitioner, seed=seed).assignment
        batches = Clusters(built, graph, assignment, batch, diagonal)
        return ClusterLearner(batches, settings, torch.Generator().manual_seed(seed))

    stop = Stop(iterations=epochs, patience=patience, eval_every=eval_every)
    return learn("cluster-gcn", make, graph, stop, budget=budget, seed=seed, threads=threads)


class Clusters:
    """Groups of parts as problems.

    Args:
        assignment: ``[N]``, the part of each node.
        batch: parts in a group.
        diagonal: see :func:`run`.
    """

    def __init__(
        self, model: Model, graph: Graph, assignment: Tensor, batch: int, diagonal: float | None
    ) -> None:
        self.model, self.graph, self.batch, self.diagonal = model, graph, batch, diagonal
        self.num_parts = int(assignment.max()) + 1
        self.adjacency = adjacency(graph)
        order = torch.argsort(assignment, stable=True)
        self.parts = order.split(torch.bincount(assignment, minlength=self.num_parts).tolist())

    def groups(self, generator: torch.Generator) -> Iterator[Tensor]:
        """The nodes of each group of one epoch, in ascending order: every part once, the parts drawn anew."""
        for chosen in torch.randperm(self.num_parts, generator=generator).split(self.batch):
            yield torch.cat([self.parts[int(part)] for part in chosen]).sort().values

    def problem(self, nodes: Tensor | None = None) -> Problem:
        """The problem of some nodes and all edges between them; None for the whole graph."""
        a = self.adjacency
        if nodes is not None:
            a = a[nodes.numpy()][:, nodes.numpy()]
        norm, loops = propagation_settings(self.model.config)
        s = normalised(a, norm, loops) if self.diagonal is None else enhanced(a, self.diagonal)
        return problem_on(self.model, self.graph, s, nodes)


class ClusterLearner(ChainLearner):
    """A step is an epoch: one update for every group with a labelled node."""

    def __init__(self, clusters: Clusters, adam: AdamSettings, generator: torch.Generator) -> None:
        self.clusters = clusters
        first = Network(clusters.problem(next(clusters.groups(generator))), adam)
        super().__init__(
            first, clusters.problem, generator, parts=clusters.num_parts, batch=clusters.batch,
            diagonal=clusters.diagonal,
        )  # fmt: skip

    def step(self) -> float:
        losses, counts = [], []
        for nodes in self.clusters.groups(self.generator):
            problem = self.clusters.problem(nodes)
            if problem.train_index.numel():
                losses.append(self.update(Network(problem, self.network.settings)))
                counts.append(problem.train_index.numel())
        return float(np.average(losses, weights=counts))


def normalised(a: scipy.sparse.csr_matrix, norm: str, loops: bool) -> Propagation:
    """S of an adjacency matrix: D^-1/2 A D^-1/2 (``sym``), D^-1 A (``rw``) or A, with the identity added first."""
    if loops:
        a = a + scipy.sparse.identity(a.shape[0], dtype=a.dtype, format="csr")
    degree = np.asarray(a.sum(1), dtype=np.float64).ravel()
    power = {"sym": -0.5, "rw": -1.0, "none": 0.0}[norm]
    factor = np.zeros_like(degree)
    np.power(degree, power, out=factor, where=degree > 0)
    s = scipy.sparse.diags(factor) @ a
    return propagation_of((s @ scipy.sparse.diags(factor) if norm == "sym" else s).tocsr())


def enhanced(a: scipy.sparse.csr_matrix, diagonal: float) -> Propagation:
    """``B + diagonal * diag(B)`` with ``B = (D + I)^-1 (A + I)`` (equation 11 of the paper)."""
    identity = scipy.sparse.identity(a.shape[0], dtype=a.dtype, format="csr")
    degree = np.asarray(a.sum(1), dtype=np.float64).ravel()
    inverse = scipy.sparse.diags(1.0 / (degree + 1.0))
    return propagation_of((inverse @ (a + (1.0 + diagonal) * identity)).tocsr())
