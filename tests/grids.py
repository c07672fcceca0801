"""Runs of the block solver on grids of threads, and the same on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from random_graphs import one_way
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import ProcessGrid, make_grid
from gfgnn.comm.hub import Hub
from gfgnn.comm.thread import ThreadCommunicator
from gfgnn.config import TargetConfig
from gfgnn.data import load
from gfgnn.evaluate import evaluate
from gfgnn.forward import stage_forward
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model
from gfgnn.problem import Problem, prepare
from gfgnn.shards import make_shards, shard_problem
from gfgnn.solver.state import TargetState
from gfgnn.solver.target import TargetSolver

T = TypeVar("T")
#: called before each iteration with the problem, the state and the number of iterations done
Hook = Callable[[Problem, TargetState, int], None]


def run_open(size: int, function: Callable[[Communicator], T], timeout: float = 20.0) -> tuple[list[T], int]:
    """Runs ``function`` on ranks that are threads: what each returned, and how many messages nobody has taken."""
    hub = Hub()

    def job(rank: int) -> T:
        try:
            return function(ThreadCommunicator(hub, rank, size, timeout))
        except BaseException as error:
            hub.abort(error)
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(job, rank) for rank in range(size)]
    errors = [future.exception() for future in futures if future.exception()]
    if errors:
        raise next((e for e in errors if e is hub._error), errors[0])
    return [future.result() for future in futures], sum(len(left) for left in hub._messages.values())


@cache
def small() -> Graph:
    """90 nodes of three classes, undirected."""
    return load("synthetic:nodes=90,classes=3,features=6,noise=1.6,degree=8,seed=2")


@cache
def small_directed() -> Graph:
    """One direction of each edge of :func:`small`, with random weights."""
    return one_way(small())


def with_values(task: str) -> Graph:
    """:func:`small` with two values a node, or whether each is above its mean."""
    graph = small()
    assert graph.x is not None
    values = graph.x @ torch.randn(6, 2, generator=torch.Generator().manual_seed(0)) + 3.0
    y = values if task == "regression" else (values > values.mean(0)).float()
    return graph.replace(y=y, num_classes=2, task=task)


def random_parts(num_nodes: int, num_parts: int, seed: int = 3) -> Tensor:
    """A part for each node; every part has at least one."""
    assignment = torch.randint(num_parts, (num_nodes,), generator=torch.Generator().manual_seed(seed))
    assignment[torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))[:num_parts]] = (
        torch.arange(num_parts)
    )
    return assignment


def even_bounds(model: Model, num_stages: int) -> tuple[int, ...]:
    """Stages of about as many blocks each."""
    return tuple(round(stage * len(model.blocks) / num_stages) for stage in range(num_stages + 1))


@dataclass(frozen=True)
class RankRun:
    """What one rank has after a run: its place, weights, losses as reported, and its last state."""

    grid: ProcessGrid
    weights: dict[str, Tensor]
    losses: list[float]
    slow: list[float]
    scores: Tensor | None
    node_ids: Tensor
    evaluation: dict[str, float | None]
    state: TargetState


def run_grid(
    model: Model,
    graph: Graph,
    num_parts: int,
    num_stages: int,
    *,
    iters: int = 10,
    staleness: int = 0,
    assignment: Tensor | None = None,
    bounds: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    hook: Hook | None = None,
    timeout: float = 20.0,
    **settings: Any,
) -> list[RankRun]:
    """A whole run; checks that it leaves no message behind."""
    parts = random_parts(graph.num_nodes, num_parts) if assignment is None else assignment
    shards = make_shards(model, graph, parts, num_parts, dtype=dtype)
    cuts = tuple(bounds) if bounds else even_bounds(model, num_stages)

    def job(world: Communicator) -> RankRun:
        with torch.inference_mode():
            grid = make_grid(world, num_parts, num_stages)
            problem = shard_problem(model, shards[grid.part], grid, cuts, dtype=dtype)
            return _run(problem, iters, staleness, hook, settings)

    runs, left = run_open(num_parts * num_stages, job, timeout)
    assert left == 0, f"{left} messages were never taken"
    return runs


def run_alone(
    model: Model, graph: Graph, *, iters: int = 10, dtype: torch.dtype = torch.float64, **settings: Any
) -> RankRun:
    """The same on one device."""
    with torch.inference_mode():
        return _run(prepare(model, graph, dtype=dtype), iters, 0, None, settings)


def _run(
    problem: Problem, iters: int, staleness: int, hook: Hook | None, settings: dict[str, Any]
) -> RankRun:
    solver = TargetSolver(TargetConfig(**settings), iters, staleness)
    state = solver.init(problem, torch.Generator().manual_seed(0))
    losses, slow = [], []
    for done in range(iters):
        if hook is not None:
            hook(problem, state, done)
        state, info = solver.step(problem, state)
        losses.append(info.loss)
        slow.append(info.extra["slow"])
    solver.finish(problem, state)
    scores = stage_forward(problem, state.weights)
    evaluation = evaluate(problem, state.weights)
    return RankRun(problem.grid, state.weights, losses, slow, scores, problem.node_ids, evaluation, state)


def joined_weights(runs: list[RankRun]) -> dict[str, Tensor]:
    """The weights of all stages; every part of a stage must have the same bits."""
    weights: dict[str, Tensor] = {}
    for run in runs:
        for name, weight in run.weights.items():
            assert torch.equal(weights.setdefault(name, weight), weight), f"{name} differs between parts"
    return weights


def joined_scores(runs: list[RankRun]) -> Tensor:
    """Scores of all nodes by their numbers in the whole graph."""
    last = [run for run in runs if run.scores is not None]
    scores = torch.cat([run.scores for run in last if run.scores is not None])
    out = torch.full_like(scores, torch.nan)
    out[torch.cat([run.node_ids for run in last])] = scores
    return out


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry expected."""
    assert found.shape == expected.shape
    if not expected.any():
        return float(found.abs().max())
    return float((found - expected).abs().max() / expected.abs().max())


def check_equal(runs: list[RankRun], alone: RankRun, tolerance: float = 1e-10) -> None:
    """A grid has found the same network as one device, and says the same about it."""
    weights = joined_weights(runs)
    assert weights.keys() == alone.weights.keys()
    for name, weight in alone.weights.items():
        assert distance(weights[name], weight) < tolerance, name
    assert alone.scores is not None
    assert distance(joined_scores(runs), alone.scores) < tolerance
    for run in runs:
        assert run.losses == runs[0].losses, "every rank is told the same"
        assert max(abs(a - b) for a, b in zip(run.losses, alone.losses, strict=True)) < tolerance
