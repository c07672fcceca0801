"""Small training problems and runs of the block solver on them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from random_graphs import one_way
from torch import Tensor

from gfgnn.config import ModelConfig, TargetConfig
from gfgnn.data import load
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.graph.operators import build_propagation
from gfgnn.metrics import score
from gfgnn.model.build import build_model
from gfgnn.problem import Problem, prepare
from gfgnn.solver.state import TargetState
from gfgnn.solver.target import TargetSolver

FAMILIES = ("gcn", "gcnii", "resgcn", "sage", "sgc", "sign")
DEEP = ("gcn", "gcnii", "resgcn", "sage")


@cache
def synthetic(noise: float = 1.6) -> Graph:
    """Three classes that neighbours tell better than a node's own six features do."""
    return load(f"synthetic:nodes=240,classes=3,features=6,noise={noise},degree=10,seed=1")


@cache
def directed_weighted() -> Graph:
    """One direction of each edge of :func:`synthetic`, with random weights."""
    return one_way(synthetic())


@cache
def regression() -> Graph:
    """Two values a node: a linear map of its smoothed features, and an offset."""
    graph = synthetic()
    s, x = build_propagation(graph), graph.x
    assert x is not None
    maps = torch.randn(x.size(1), 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = s.apply(s.apply(x.double())) @ maps + 3.0
    return graph.replace(y=values.float(), num_classes=2, task="regression")


@cache
def multilabel() -> Graph:
    values = regression().y
    return synthetic().replace(y=(values > values.mean(0)).float(), num_classes=2, task="multilabel")


def make(
    family: str = "gcn",
    graph: Graph | None = None,
    *,
    layers: int = 3,
    hidden: int = 12,
    dtype: torch.dtype = torch.float64,
    **changes: Any,
) -> Problem:
    graph = synthetic() if graph is None else graph
    config = ModelConfig(family=family, layers=layers, hidden=hidden, **changes)
    return prepare(build_model(config, graph), graph, dtype=dtype)


def start(
    problem: Problem, iters: int = 12, seed: int = 0, **settings: Any
) -> tuple[TargetSolver, TargetState]:
    solver = TargetSolver(TargetConfig(**settings), iters)
    return solver, solver.init(problem, torch.Generator().manual_seed(seed))


def run(
    problem: Problem, iters: int = 12, seed: int = 0, **settings: Any
) -> tuple[TargetSolver, TargetState, list[float]]:
    """All iterations of a run: the solver, its last state, and the loss before each iteration."""
    solver, state = start(problem, iters, seed, **settings)
    losses = []
    for _ in range(iters):
        state, info = solver.step(problem, state)
        losses.append(info.loss)
    return solver, state, losses


def held_out(problem: Problem, state: TargetState) -> float:
    scores = forward(problem, state.weights)
    return score(problem.model.task, scores, problem.y, problem.test_index)


def randn_like(t: Tensor, seed: int = 0) -> Tensor:
    return torch.randn(t.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
