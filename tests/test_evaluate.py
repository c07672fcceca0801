"""Losses and scores: the same on every rank of a grid as on one device."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from grids import even_bounds, random_parts, run_open, small, small_directed, with_values
from random_graphs import randn
from torch import Tensor

from gfgnn import metrics
from gfgnn.comm.grid import make_grid
from gfgnn.config import ModelConfig
from gfgnn.evaluate import evaluate
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.problem import prepare
from gfgnn.shards import make_shards, shard_problem
from gfgnn.solver.state import block_of

GRIDS = [(1, 1), (3, 1), (1, 3), (2, 2)]


def network(graph: Graph, family: str = "gcn") -> Model:
    return build_model(ModelConfig(family=family, layers=4, hidden=5), graph)


def some_weights(model: Model) -> dict[str, Tensor]:
    weights = {}
    for index, block in enumerate(model.blocks):
        weights[f"block{index}.weight"] = randn(block.fan_in, block.out_channels, seed=index) / 2
        if block.bias:
            weights[f"block{index}.bias"] = randn(block.out_channels, seed=100 + index)
    return weights


def on_grid(
    model: Model,
    graph: Graph,
    parts: int,
    stages: int,
    assignment: Tensor | None = None,
    weights: dict[str, Tensor] | None = None,
) -> list[dict[str, float | None]]:
    """What each rank says."""
    weights = some_weights(model) if weights is None else weights
    assignment = random_parts(graph.num_nodes, parts) if assignment is None else assignment
    shards = make_shards(model, graph, assignment, parts, dtype=torch.float64)
    bounds = even_bounds(model, stages)

    def job(world: Any) -> dict[str, float | None]:
        grid = make_grid(world, parts, stages)
        problem = shard_problem(model, shards[grid.part], grid, bounds, dtype=torch.float64)
        own = {name: weight for name, weight in weights.items() if block_of(name) in problem.span}
        return evaluate(problem, own)

    results, left = run_open(parts * stages, job)
    assert left == 0
    return results


def check(found: list[dict[str, float | None]], expected: dict[str, float | None]) -> None:
    for values in found:
        assert repr(values) == repr(found[0]), "every rank says the same (repr: NaN is itself)"
    assert found[0].keys() == expected.keys()
    for name, value in expected.items():
        assert found[0][name] == (None if value is None else pytest.approx(value, rel=1e-12, nan_ok=True)), (
            name
        )


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize(("parts", "stages"), GRIDS)
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_a_grid_says_what_one_device_says(task: str, parts: int, stages: int, family: str) -> None:
    graph = small_directed() if task == "multiclass" else with_values(task)
    model = network(graph, family)
    alone = evaluate(prepare(model, graph, dtype=torch.float64), some_weights(model))
    assert None not in alone.values()
    check(on_grid(model, graph, parts, stages), alone)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_one_device_says_what_the_metrics_say(task: str) -> None:
    graph = small() if task == "multiclass" else with_values(task)
    model = network(graph)
    problem = prepare(model, graph, dtype=torch.float64)
    found = evaluate(problem, some_weights(model))
    scores = forward(problem, some_weights(model))
    for name in ("train", "val", "test"):
        index = getattr(problem, f"{name}_index")
        assert found[name] == pytest.approx(metrics.score(task, scores, graph.y, index))
    for name, index in (("loss", problem.train_index), ("val_loss", problem.val_index)):
        y = graph.y[index]
        targets = torch.nn.functional.one_hot(y, 3).double() if task == "multiclass" else y
        assert found[name] == pytest.approx(float(metrics.loss(task, scores[index], targets)))


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize(("parts", "stages"), [(3, 1), (3, 2)])
def test_parts_without_validation_nodes(task: str, parts: int, stages: int) -> None:
    """Nor any other labelled node in the last one."""
    graph = small() if task == "multiclass" else with_values(task)
    model, ids = network(graph), torch.arange(graph.num_nodes)
    known = graph.train_mask | graph.val_mask | (graph.test_mask & (ids % 2 == 0))
    graph = graph.replace(test_mask=graph.test_mask & known)
    assignment = torch.where(graph.val_mask, 0, torch.where(known, 1, 2))
    alone = evaluate(prepare(model, graph, dtype=torch.float64), some_weights(model))
    check(on_grid(model, graph, parts, stages, assignment), alone)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize(("parts", "stages"), [(1, 1), (2, 1), (2, 2)])
def test_without_any_validation_node(task: str, parts: int, stages: int) -> None:
    graph = small() if task == "multiclass" else with_values(task)
    graph = graph.replace(val_mask=torch.zeros_like(graph.val_mask))
    model = network(graph)
    found = on_grid(model, graph, parts, stages)
    check(found, evaluate(prepare(model, graph, dtype=torch.float64), some_weights(model)))
    assert found[0]["val"] is None
    assert found[0]["val_loss"] is None
    assert all(found[0][name] is not None for name in ("loss", "train", "test"))


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize(("parts", "stages"), [(1, 1), (2, 2)])
def test_weights_that_are_no_numbers_show_in_the_loss(task: str, parts: int, stages: int) -> None:
    graph = small() if task == "multiclass" else with_values(task)
    model = network(graph)
    weights = {name: torch.full_like(weight, math.nan) for name, weight in some_weights(model).items()}
    for values in on_grid(model, graph, parts, stages, weights=weights):
        loss = values["loss"]
        assert loss is not None
        assert math.isnan(loss)
