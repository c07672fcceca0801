"""The block solver on a grid of ranks: the same network as on one device, or, with old messages, one that learns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from grids import (
    RankRun,
    check_equal,
    distance,
    even_bounds,
    joined_scores,
    joined_weights,
    run_alone,
    run_grid,
    small,
    small_directed,
    with_values,
)
from torch import Tensor

from gfgnn.config import ModelConfig
from gfgnn.evaluate import evaluate
from gfgnn.graph.graph import Graph
from gfgnn.metrics import score
from gfgnn.model.build import Model, build_model
from gfgnn.problem import Problem
from gfgnn.solver import input_system, refresh, target
from gfgnn.solver.state import TargetState
from gfgnn.solver.sweep import SweepStep
from gfgnn.solver.updates import pass_down

GRIDS = [(parts, stages) for parts in (1, 2, 3, 4) for stages in (1, 2, 4) if parts * stages > 1]
GRAPHS = {"undirected": small, "directed": small_directed}


def network(family: str, graph: Graph, layers: int = 5, **changes: Any) -> Model:
    return build_model(ModelConfig(family=family, layers=layers, hidden=8, **changes), graph)


def sparse() -> Graph:
    """The graph with half of the features' entries."""
    graph = small()
    assert graph.x is not None
    return graph.replace(x=torch.where(graph.x > 0, graph.x, 0.0).to_sparse_csr())


@cache
def reference(family: str, kind: str, step: str) -> RankRun:
    graph = GRAPHS[kind]()
    return run_alone(network(family, graph), graph, step=step)


@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
@pytest.mark.parametrize(("parts", "stages"), GRIDS)
def test_a_grid_trains_the_network_of_one_device(
    parts: int, stages: int, family: str, step: str, kind: str
) -> None:
    graph = GRAPHS[kind]()
    runs = run_grid(network(family, graph), graph, parts, stages, step=step)
    check_equal(runs, reference(family, kind, step))


@pytest.mark.parametrize(
    ("family", "graph", "settings"),
    [
        ("resgcn", small_directed, {"step": "sweep"}),
        ("resgcn", small, {"step": "polar"}),
        ("sage", small_directed, {"step": "sweep"}),
        ("sage", small, {"step": "polar"}),
        ("sign", small, {"step": "sweep"}),
        ("gcn", sparse, {"step": "polar"}),  # graph
        ("gcnii", sparse, {"step": "sweep"}),  # none
        ("sage", sparse, {"step": "polar"}),  # concat
        ("sign", sparse, {"step": "polar"}),  # hops
        ("gcn", small, {"step": "sweep", "dropout_encoder": 0.3, "dropout_output": 0.2}),
        ("gcnii", small, {"step": "sweep", "sampled_dropout": 0.3}),
        ("gcn", small, {"step": "polar", "sampled_dropout": 0.2}),
        ("gcn", small, {"step": "sweep", "freeze_hidden": True, "node_weights": "uniform"}),
        ("gcn", lambda: with_values("regression"), {"step": "sweep"}),
        ("gcnii", lambda: with_values("multilabel"), {"step": "polar"}),
    ],
)
def test_so_it_is_with_every_family_setting_and_task(
    family: str, graph: Callable[[], Graph], settings: dict[str, Any]
) -> None:
    g = graph()
    model = network(family, g, layers=4)
    check_equal(run_grid(model, g, 3, 2, **settings), run_alone(model, g, **settings))


@pytest.mark.parametrize("changes", [{"activation": "leaky_relu"}, {"bias": False}, {"norm": "rw"}])
@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_and_with_every_kind_of_layer(changes: dict[str, Any], step: str) -> None:
    graph = small_directed()
    model = network("gcn", graph, **changes)
    check_equal(run_grid(model, graph, 2, 3, step=step), run_alone(model, graph, step=step))


@pytest.mark.parametrize("graph", [small_directed, sparse])
@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_one_linear_map(graph: Callable[[], Graph], step: str) -> None:
    g = graph()
    model = network("sgc", g, layers=3)
    check_equal(run_grid(model, g, 3, 1, step=step), run_alone(model, g, step=step))


@pytest.mark.parametrize(("graph", "step"), [(small, "sweep"), (sparse, "polar")])
def test_conjugate_gradients(graph: Callable[[], Graph], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_system, "GRAM_LIMIT", 0)
    g = graph()
    model = network("gcn", g)
    runs = run_grid(model, g, 2, 2, step=step)
    assert any(run.state.fixed.systems for run in runs)
    assert all(not run.state.fixed.systems or run.state.fixed.encoder.lower is None for run in runs)
    check_equal(runs, run_alone(model, g, step=step))


def test_threads_may_have_sparse_features() -> None:
    graph = sparse()
    run_grid(network("gcn", graph), graph, 2, 1, iters=1, timeout=1.0)


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage"])
def test_a_part_without_any_labelled_node(family: str, step: str) -> None:
    graph = small()
    known = graph.train_mask | graph.val_mask
    other = torch.where(torch.arange(graph.num_nodes) % 2 == 0, 1, 2)
    assignment = torch.where(known, 0, other)
    model = network(family, graph)
    runs = run_grid(model, graph, 3, 2, assignment=assignment, step=step)
    check_equal(runs, run_alone(model, graph, step=step))


def test_spread_is_measured_on_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a larger graph every so-many-th row, by its number in the whole graph."""
    every_row = reference("gcn", "undirected", "polar").weights["block0.weight"]
    monkeypatch.setattr(refresh, "SPREAD_ROWS", 20)
    graph = small()
    model = network("gcn", graph)
    alone = run_alone(model, graph, step="polar")
    check_equal(run_grid(model, graph, 3, 2, step="polar"), alone)
    assert distance(alone.weights["block0.weight"], every_row) > 1e-3


def test_stages_may_have_a_single_block_each() -> None:
    graph = small()
    model = network("gcnii", graph, layers=3)
    runs = run_grid(model, graph, 1, 5, step="sweep")
    check_equal(runs, run_alone(model, graph, step="sweep"))


# --- messages of earlier iterations -----------------------------------------------------------------------------

LATE = [(2, 1), (3, 1), (2, 2), (3, 2)]


def accuracy(runs: list[RankRun], graph: Graph) -> float:
    return score("multiclass", joined_scores(runs), graph.y, (~graph.train_mask).nonzero().squeeze(1))


def check_in_step(runs: list[RankRun]) -> None:
    """All ranks have been told the same, and have drawn the same conclusions."""
    for run in runs:
        assert run.losses == runs[0].losses
        assert run.slow == runs[0].slow
        assert run.state.scale == runs[0].state.scale
        assert run.state.synchronous_until == runs[0].state.synchronous_until


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
@pytest.mark.parametrize(("stages", "staleness"), LATE)
def test_stages_that_do_not_wait_learn_and_repeat_bit_for_bit(
    stages: int, staleness: int, family: str, step: str
) -> None:
    graph = small()
    model = network(family, graph)
    parts = 2 if stages == 2 else 1
    first, second = (
        run_grid(model, graph, parts, stages, iters=16, staleness=staleness, step=step) for _ in range(2)
    )
    weights = joined_weights(first)
    assert all(torch.equal(w, weights[name]) for name, w in joined_weights(second).items())
    check_in_step(first)
    assert [run.losses for run in first] == [run.losses for run in second]
    assert first[0].losses[-1] < 0.5 * first[0].losses[0]
    assert accuracy(first, graph) > 0.8
    waited = run_alone(model, graph, iters=16, step=step)
    assert distance(weights["block0.weight"], waited.weights["block0.weight"]) > 1e-3, "it is another run"


@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_evaluations_in_between_change_nothing(family: str) -> None:
    """Though their activations travel between the same ranks as the messages that are under way."""
    graph = small()
    model = network(family, graph)
    told: dict[int, list[dict[str, float | None]]] = {}

    def look(problem: Problem, state: TargetState, done: int) -> None:
        told.setdefault(done, []).append(evaluate(problem, state.weights))

    watched, plain = (
        run_grid(model, graph, 2, 3, iters=6, staleness=1, hook=hook, step="sweep") for hook in (look, None)
    )
    expected = joined_weights(plain)
    assert all(torch.equal(w, expected[name]) for name, w in joined_weights(watched).items())
    assert all(len(values) == 6 and values == [values[0]] * 6 for values in told.values())


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize(("stages", "staleness"), LATE)
def test_an_ordinary_run_never_goes_back(stages: int, staleness: int, step: str) -> None:
    """In particular not because losses of the first, synchronous iterations are heard of once more when the first
    late ones begin."""
    graph = small()
    runs = run_grid(network("gcn", graph), graph, 1, stages, iters=12, staleness=staleness, step=step)
    assert runs[0].slow == [1.0] * 12
    assert runs[0].state.synchronous_until == staleness


@pytest.mark.parametrize("parts", [1, 3])
def test_within_one_stage_nothing_is_late(parts: int) -> None:
    graph = small()
    model = network("gcn", graph)
    late, waiting = (
        run_grid(model, graph, parts, 1, iters=6, staleness=staleness, step="sweep") for staleness in (2, 0)
    )
    for name, weight in joined_weights(waiting).items():
        assert torch.equal(joined_weights(late)[name], weight)


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize(("stages", "staleness"), [(2, 0), *LATE])
def test_the_safeguard_returns_all_ranks_to_the_best_network(stages: int, staleness: int, step: str) -> None:
    """Weights are spoilt on all ranks; the loss known next after the return is the lowest one before, and every rank
    waits for messages of the new weights."""
    graph, spoilt, iters = small(), 8, 18

    def spoil(problem: Problem, state: TargetState, done: int) -> None:
        if done == spoilt:
            state.weights = {name: -30.0 * weight for name, weight in state.weights.items()}

    model = network("gcn", graph)
    parts = 2 if stages == 2 else 1
    runs = run_grid(model, graph, parts, stages, iters=iters, staleness=staleness, hook=spoil, step=step)
    check_in_step(runs)
    losses, slow = runs[0].losses, runs[0].slow
    # known when the last stage has measured it, which may be late, and not before the hidden stages pass it on
    back = slow.index(0.5)
    assert spoilt + staleness < back <= spoilt + stages * max(1, staleness) + 1
    assert losses[back - 1] > 2 * losses[0]
    assert losses[back] == pytest.approx(min(losses[:back]), rel=1e-9)
    assert min(slow[back:]) == 0.5, "once is enough"
    assert runs[0].state.synchronous_until == back + staleness
    assert losses[-1] < 0.25 * losses[0]
    assert accuracy(runs, graph) > 0.8


class RelativeSweep(SweepStep):
    """The sweep step with an inverse that does not depend on the scale of the output's weights."""

    def inverse(self, state: TargetState, old: Tensor, new: Tensor) -> Tensor:
        return pass_down(old, state.fixed.settings.rho, relative=True)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn"])
@pytest.mark.parametrize(("stages", "staleness"), [(2, 0), *LATE])
def test_old_messages_are_brought_to_the_present_scale(
    stages: int, staleness: int, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Activations of 16 times the size before the first gauge step, with the output's weights still zero, change
    nothing at all. A message in which later gauge factors are missing would be 16 times too long."""
    monkeypatch.setitem(target.STEPS, "sweep", RelativeSweep())
    graph = small()

    def larger(problem: Problem, state: TargetState, done: int) -> None:
        if done == 0 and problem.is_first:
            state.weights["block0.weight"] = 16.0 * state.weights["block0.weight"]

    model = network(family, graph)
    plain, scaled = (
        run_grid(model, graph, 1, stages, iters=8, staleness=staleness, hook=hook, step="sweep")
        for hook in (None, larger)
    )
    assert scaled[0].state.scale == pytest.approx(16.0 * plain[0].state.scale)
    assert distance(joined_scores(scaled), joined_scores(plain)) < 1e-9
    expected = joined_weights(plain)
    for name, weight in joined_weights(scaled).items():
        assert distance(weight, expected[name]) < 1e-9, name
    assert scaled[0].losses == pytest.approx(plain[0].losses)


def test_bounds_may_be_uneven() -> None:
    """Encoder and output alone in their stages."""
    graph = small()
    model = network("gcnii", graph)
    bounds = (0, 1, len(model.blocks) - 1, len(model.blocks))
    assert bounds != even_bounds(model, 3)
    runs = run_grid(model, graph, 2, 3, bounds=bounds, step="sweep")
    check_equal(runs, reference("gcnii", "undirected", "sweep"))
