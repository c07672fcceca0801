"""Backprop on parts of a graph: exact halos give what one device gives, stale ones lag an epoch behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from grids import distance, random_parts
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from torch import Tensor
from torch.nn import functional as F

from gfgnn.baseline.adam import AdamSolver, AdamState
from gfgnn.baseline.parallel import StaleAdamSolver, run, run_stale
from gfgnn.baseline.stale import stale
from gfgnn.baseline.sums import batch_norm, total
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.comm.thread import run_threads
from gfgnn.config import AdamConfig, ModelConfig
from gfgnn.exchange.halo import ShardPropagation
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.problem import Problem, prepare
from gfgnn.shards import make_shards, shard_problem

GCN = ModelConfig(family="gcn", layers=3, hidden=4)
Step = Callable[[AdamSolver, AdamState, int], None]


def model_of(family: str, graph: Graph) -> Model:
    return build_model(ModelConfig(family=family, layers=3, hidden=4), graph)


def solve(
    solver: AdamSolver, problem: Problem, iters: int, before: Step | None
) -> tuple[AdamState, list[float]]:
    state = solver.init(problem, torch.Generator().manual_seed(0))
    losses = []
    for iteration in range(iters):
        if before is not None:
            before(solver, state, iteration)
        state, info = solver.step(problem, state)
        losses.append(info.loss)
    return state, losses


def alone(model: Model, graph: Graph, config: AdamConfig, iters: int) -> tuple[AdamState, list[float]]:
    solver = AdamSolver(config, model.config.family)
    return solve(solver, prepare(model, graph, dtype=torch.float64), iters, None)


def on_parts(
    make: Callable[[], AdamSolver],
    model: Model,
    graph: Graph,
    parts: int,
    iters: int,
    before: Step | None = None,
) -> list[tuple[AdamState, list[float]]]:
    assignment = random_parts(graph.num_nodes, parts)
    shards = make_shards(model, graph, assignment, parts, dtype=torch.float64)

    def rank(world: Communicator) -> tuple[AdamState, list[float]]:
        grid = make_grid(world, parts, 1)
        bounds = (0, len(model.blocks))
        problem = shard_problem(
            model, shards[grid.part], grid, bounds, dtype=torch.float64, keep_features=True
        )
        solver = make()
        solved = solve(solver, problem, iters, before)
        if isinstance(solver, StaleAdamSolver):
            solver.finish(problem, solved[0])
        return solved

    return run_threads(parts, rank, timeout=20.0)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "resgcn", "sgc", "sign"])
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_parts_train_what_one_device_trains(family: str, parts: int, dropout: float) -> None:
    graph = random_graph(nodes=40, labelled=20, directed=family == "sage")
    model, config = model_of(family, graph), AdamConfig(dropout=dropout)
    expected, losses = alone(model, graph, config, 10)
    for state, found in on_parts(lambda: AdamSolver(config, family, masks="graph"), model, graph, parts, 10):
        assert found == pytest.approx(losses, abs=1e-10)
        for name, value in expected.parameters.items():
            assert distance(state.parameters[name].detach(), value.detach()) < 1e-8, name


def test_batch_norm_uses_the_nodes_of_all_parts() -> None:
    graph = random_graph(nodes=40, labelled=3)  # fewer labels than parts: some have no loss of their own
    model, config = model_of("gcn", graph), AdamConfig(dropout=0.3, batch_norm=True)
    expected, _ = alone(model, graph, config, 5)
    for state, _ in on_parts(lambda: AdamSolver(config, "gcn", masks="graph"), model, graph, 4, 5):
        for name, value in (expected.parameters | expected.running).items():
            found = (state.parameters | state.running)[name]
            assert distance(found.detach(), value.detach()) < 1e-8, name


@settings(max_examples=10, deadline=None)
@given(n=st.integers(4, 12), d=st.integers(1, 4), seed=st.integers(0, 99))
def test_derivative_of_shared_batch_norm(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, weight = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
    gamma, shift = (torch.randn(d, generator=generator, dtype=torch.float64) for _ in range(2))
    cut = n // 3
    graph = random_graph(nodes=n, labelled=2)

    def rank(world: Communicator) -> list[Tensor]:
        shard = make_shards(
            model_of("gcn", graph), graph, (torch.arange(n) >= cut).long(), 2, dtype=torch.float64
        )
        grid = make_grid(world, 2, 1)
        problem = shard_problem(model_of("gcn", graph), shard[grid.part], grid, (0, 3), dtype=torch.float64)
        rows = slice(0, cut) if grid.part == 0 else slice(cut, n)
        own, running = z[rows].clone().requires_grad_(), (torch.zeros(d).double(), torch.ones(d).double())
        out = batch_norm(own, running, (gamma, shift), (0.1, 1e-5), problem)
        return [out.detach(), torch.autograd.grad((out * weight[rows]).sum(), own)[0], *running]

    parts = run_threads(2, rank)
    whole, running = z.clone().requires_grad_(), (torch.zeros(d).double(), torch.ones(d).double())
    out = F.batch_norm(whole, *running, gamma, shift, training=True, momentum=0.1, eps=1e-5)
    (gradient,) = torch.autograd.grad((out * weight).sum(), whole)
    for found, expected in zip(
        map(torch.cat, list(zip(*parts, strict=True))[:2]), (out, gradient), strict=True
    ):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-7, atol=1e-8)
    for found, expected in zip(parts[1][2:], running, strict=True):
        torch.testing.assert_close(found, expected)


def test_the_derivative_of_a_sum_is_the_sum_of_derivatives() -> None:
    def rank(world: Communicator) -> Tensor:
        x = torch.full((2,), float(world.rank + 1), requires_grad=True)
        loss = (total(world, x) ** 2).sum() * (world.rank + 1)
        return torch.autograd.grad(loss, x)[0]

    # L = (1 + 2) |x_0 + x_1|^2 with x_0 + x_1 = 3
    assert all(torch.equal(gradient, torch.full((2,), 18.0)) for gradient in run_threads(2, rank))


def freeze(solver: AdamSolver, state: AdamState, iteration: int) -> None:
    """Lets the first three epochs change the weights, and no later one."""
    if iteration == 3:
        object.__setattr__(state.network.settings, "lr", 0.0)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage"])
def test_stale_halos_begin_exact_and_catch_up_with_frozen_weights(family: str) -> None:
    graph, config = random_graph(nodes=40, labelled=20), AdamConfig(dropout=0.0)
    model = model_of(family, graph)
    exact = on_parts(lambda: AdamSolver(config, family), model, graph, 2, 20, freeze)
    late = on_parts(lambda: StaleAdamSolver(config, family), model, graph, 2, 20, freeze)
    for (_, expected), (state, found) in zip(exact, late, strict=True):
        assert found[0] == pytest.approx(expected[0], abs=1e-12)
        assert abs(found[2] - expected[2]) > 1e-6, "the third epoch saw the first update's halos late"
        # the halos of block l are right l epochs after the weights were last changed
        assert max(found[10:]) - min(found[10:]) < 1e-14
        frozen = {name: value.detach() for name, value in state.parameters.items()}
        reference = loss_of(model, graph, config, frozen)
        assert found[-1] == pytest.approx(reference, abs=1e-12)


def loss_of(model: Model, graph: Graph, config: AdamConfig, parameters: dict[str, Tensor]) -> float:
    """The loss on one device with these parameters."""

    def put(solver: AdamSolver, state: AdamState, iteration: int) -> None:
        for name, value in parameters.items():
            state.parameters[name].data.copy_(value)

    problem = prepare(model, graph, dtype=torch.float64)
    return solve(AdamSolver(config, model.config.family), problem, 1, put)[1][0]


def test_with_weights_frozen_from_the_start_stale_epochs_are_exact() -> None:
    graph, config = random_graph(nodes=40, labelled=20), AdamConfig(dropout=0.0, lr=0.0)
    model = model_of("gcn", graph)
    ((_, expected), _) = on_parts(lambda: AdamSolver(config, "gcn"), model, graph, 2, 4)
    for smoothing in (0.0, 0.6):
        runs = on_parts(lambda s=smoothing: StaleAdamSolver(config, "gcn", smoothing=s), model, graph, 2, 4)
        assert all(found == pytest.approx(expected, abs=1e-12) for _, found in runs)


def test_outcome_of_threads() -> None:
    graph = random_graph(nodes=40, labelled=20)
    asked = {"budget": Budget(iterations=6), "seed": 3, "threads": 1, "backend": "thread", "dtype": "float64"}
    outcome = run(graph, GCN, **asked, masks="graph", order="none")
    assert (outcome.status, outcome.contender) == ("done", "adam-graph-parallel")
    assert [line["iteration"] for line in outcome.history] == list(range(1, 7))
    assert outcome.best is not None
    assert set(outcome.bytes_per_iteration) == {"halo", "weights"}
    halo = sum(outcome.facts["halo"])
    hidden = 3 if graph.num_classes > 4 else 4
    # a hidden block forward and backward; the input's dropped features and the labelled rows of the output besides
    assert outcome.bytes_per_iteration["halo"] > 2 * halo * hidden * 8
    assert len(outcome.idle_share) == len(outcome.peak_bytes) == 2
    assert all(0.0 < share < 1.0 for share in outcome.idle_share)
    late = run_stale(graph, GCN, **asked, masks="graph", order="none", smoothing=0.5)
    assert late.history[0]["step_loss"] == pytest.approx(outcome.history[0]["step_loss"], abs=1e-12)
    assert late.bytes_per_iteration == outcome.bytes_per_iteration
    assert late.settings["smoothing"] == 0.5


def test_budget_of_seconds() -> None:
    graph = random_graph(nodes=40, labelled=20)
    budget = Budget(iterations=10**6, seconds=0.2)
    outcome = run(graph, GCN, budget=budget, seed=0, threads=1, backend="thread")
    assert outcome.status == "done"
    assert outcome.history[-2]["seconds"] < 0.2 <= outcome.history[-1]["seconds"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"speed": 2}, "no setting 'speed'"), ({"masks": "none"}, "masks"), ({"lr": -1.0}, "lr")],
)
def test_settings_are_checked(settings: dict[str, object], words: str) -> None:
    graph = random_graph(nodes=20)
    asked = {"budget": Budget(iterations=1), "seed": 0, "threads": 1, "backend": "thread"}
    with pytest.raises(InputError, match=words):
        run(graph, GCN, **asked, **settings)


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_halos_of_a_call_are_those_of_the_call_before_or_their_moving_average(smoothing: float) -> None:
    graph, calls = random_graph(nodes=20), 4
    model, assignment = model_of("gcn", graph), random_parts(20, 2)
    shards = make_shards(model, graph, assignment, 2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(20, 3, generator=generator, dtype=torch.float64) for _ in range(calls)]
    s = prepare(model, graph, dtype=torch.float64).propagation.matrix.to_dense()

    def rank(world: Communicator) -> list[Tensor]:
        shard = shards[world.rank]
        exact = ShardPropagation(world, shard.matrix, shard.matrix_t, shard.scale)
        late = stale(exact, smoothing)
        products = [late.apply(h[shard.nodes], scale=2.0) for h in given]
        late.drain()
        return products

    found = run_threads(2, rank)
    average = given[0]
    for call, h in enumerate(given):
        average = smoothing * average + (1 - smoothing) * given[max(0, call - 1)]
        for part, shard in enumerate(shards):
            outside = (assignment != part).double()[:, None]
            seen = torch.where(outside > 0, average, h)
            torch.testing.assert_close(found[part][call], 2.0 * (s @ seen)[shard.nodes])
