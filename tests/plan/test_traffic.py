"""Predicted messages and bytes against the books of ranks that really train."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from grids import even_bounds, random_parts, run_open, small, small_directed, with_values

from gfgnn.checks import InputError
from gfgnn.comm.counting import CountingCommunicator
from gfgnn.comm.grid import make_grid
from gfgnn.config import ModelConfig, TargetConfig
from gfgnn.evaluate import evaluate
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model, make_model
from gfgnn.plan.traffic import PartTraffic, SentRows, Traffic, evaluation_traffic, iteration_traffic
from gfgnn.shards import make_shards, shard_problem
from gfgnn.solver import input_system
from gfgnn.solver.input_system import InputSystem
from gfgnn.solver.target import TargetSolver

ITERS = 3


def network(family: str, graph: Graph, layers: int = 4, **changes: Any) -> Model:
    return build_model(ModelConfig(family=family, layers=layers, hidden=7, **changes), graph)


def sparse() -> Graph:
    graph = small_directed()
    assert graph.x is not None
    return graph.replace(x=torch.where(graph.x > 0, graph.x, 0.0).to_sparse_csr())


def booked(comm: CountingCommunicator) -> dict[str, Traffic]:
    """What was sent since the last call, by purpose."""
    found = {name: Traffic(int(e["messages"]), int(e["bytes"])) for name, e in comm.books().items()}
    comm.reset()
    return {name: traffic for name, traffic in found.items() if traffic != Traffic()}


def check(
    model: Model,
    graph: Graph,
    parts: int,
    stages: int,
    *,
    staleness: int = 0,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> None:
    """Compares every rank, iteration and the evaluation after it."""
    shards = make_shards(model, graph, random_parts(graph.num_nodes, parts), parts, dtype=dtype)
    bounds = even_bounds(model, stages)
    products: Counter[int] = Counter()
    product = InputSystem._product

    def counted(system: InputSystem, w: torch.Tensor) -> torch.Tensor:
        products[threading.get_ident()] += 1
        return product(system, w)

    def job(world: Any) -> None:
        comm = CountingCommunicator(world)
        with torch.inference_mode():
            grid = make_grid(comm, parts, stages)
            problem = shard_problem(model, shards[grid.part], grid, bounds, dtype=dtype)
            solver = TargetSolver(TargetConfig(**settings), ITERS, staleness)
            state = solver.init(problem, torch.Generator().manual_seed(0))
            assert graph.x is not None
            part, common = PartTraffic.of(shards[grid.part]), {
                "num_parts": parts, "itemsize": torch.empty(0, dtype=dtype).element_size(),
                "sparse": graph.x.layout == torch.sparse_csr,
            }  # fmt: skip
            booked(comm)
            for _ in range(ITERS):
                products[threading.get_ident()] = 0
                state, info = solver.step(problem, state)
                assert info.extra["slow"] == 1.0
                predicted = iteration_traffic(
                    model, bounds, grid.stage, part, step=settings["step"],
                    freeze_hidden=settings.get("freeze_hidden", False),
                    cg_products=products[threading.get_ident()], **common,
                )  # fmt: skip
                assert booked(comm) == {n: t for n, t in predicted.items() if t != Traffic()}
                evaluate(problem, state.weights)
                total = evaluation_traffic(model, bounds, grid.stage, part, **common)
                assert booked(comm) == ({"evaluate": total} if total != Traffic() else {})
            solver.finish(problem, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InputSystem, "_product", counted)
        run_open(parts * stages, job)


@pytest.mark.parametrize("graph", [small, small_directed, sparse])
@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage", "sign"])
def test_every_family(family: str, step: str, graph: Callable[[], Graph]) -> None:
    g = graph()
    check(network(family, g), g, 2, 2, step=step)


@pytest.mark.parametrize(("parts", "stages"), [(1, 1), (1, 3), (2, 1), (4, 1), (2, 3)])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
@pytest.mark.parametrize("staleness", [0, 1])
def test_every_grid_and_both_kinds_of_iterations(
    parts: int, stages: int, family: str, staleness: int
) -> None:
    """The first iterations are synchronous; messages that come late are as many and as large."""
    graph = small_directed()
    check(network(family, graph), graph, parts, stages, staleness=staleness, step="sweep")


@pytest.mark.parametrize("graph", [small, sparse])
@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_one_linear_map(graph: Callable[[], Graph], step: str) -> None:
    g = graph()
    check(network("sgc", g), g, 3, 1, step=step)


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks(task: str) -> None:
    """Their scores are gathered for the evaluation."""
    graph = with_values(task)
    check(network("gcn", graph), graph, 3, 2, step="sweep", dtype=torch.float64)


@pytest.mark.parametrize("step", ["sweep", "polar"])
@pytest.mark.parametrize(("family", "graph"), [("gcnii", small), ("gcn", sparse), ("sgc", sparse)])
def test_conjugate_gradients(
    step: str, family: str, graph: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_system, "GRAM_LIMIT", 0)
    g = graph()
    check(network(family, g), g, 2, 1, step=step)


def test_no_bias_frozen_layers_and_wide_outputs() -> None:
    """An output wider than the layer below it is multiplied by S first when scores are evaluated."""
    graph = small()
    check(network("gcn", graph, bias=False), graph, 2, 2, step="polar")
    check(network("gcn", graph), graph, 2, 2, step="sweep", freeze_hidden=True)
    narrow = build_model(ModelConfig(family="gcn", layers=3, hidden=2), graph)
    check(narrow, graph, 2, 2, step="polar")


@pytest.mark.parametrize(
    "graph",
    [
        small_directed,
        sparse,
    ],
)
def test_setting_up_is_booked_as_such(graph: Callable[[], Graph]) -> None:
    g = graph()
    model = network("gcn", g)
    shards = make_shards(model, g, random_parts(g.num_nodes, 2), 2, dtype=torch.float32)

    def job(world: Any) -> dict[str, Traffic]:
        comm = CountingCommunicator(world)
        grid = make_grid(comm, 2, 2)
        problem = shard_problem(model, shards[grid.part], grid, even_bounds(model, 2), dtype=torch.float32)
        TargetSolver(TargetConfig(), ITERS).init(problem, torch.Generator().manual_seed(0))
        return booked(comm)

    for books in run_open(4, job)[0]:
        assert set(books) == {"setup"}


PART = PartTraffic(
    nodes=10,
    splits=(6, 2, 2),
    matrix=SentRows(4, 2),
    matrix_t=SentRows(3, 1),
    head=SentRows(2, 1),
    head_t=SentRows(5, 2),
)


def test_gcn_by_hand() -> None:
    """5 -> 4 -> 4 -> 3 in float32 on two parts and two stages, cut before the output."""
    model = make_model(ModelConfig(family="gcn", layers=3, hidden=4), 5, 3, "multiclass")
    settings: dict[str, Any] = {"num_parts": 2, "itemsize": 4}
    below, above = (
        iteration_traffic(model, (0, 2, 3), stage, PART, step="sweep", **settings) for stage in (0, 1)
    )
    assert below == {
        "halo": Traffic(2 + 1, (4 + 3) * 4 * 4),
        "stage": Traffic(1, 10 * 4 * 4),
        "gram": Traffic(2, (5 * 4 + 4) * 4 + (16 + 16 + 1 + 8) * 8),
        "control": Traffic(1, 24),
    }
    assert above == {
        "halo": Traffic(1 + 2, 2 * 4 * 4 + 5 * 3 * 4),
        "stage": Traffic(1, 10 * 4 * 4),
        "gram": Traffic(1, (16 + 12 + 1 + 7 + 4) * 8),
        "control": Traffic(1, 24),
    }
    polar = iteration_traffic(model, (0, 2, 3), 0, PART, step="polar", **settings)
    assert polar["gram"] == below["gram"] + Traffic(2, 2 * 8 * 8)


def test_a_single_rank_sends_nothing() -> None:
    model = make_model(ModelConfig(family="gcn", layers=3, hidden=4), 5, 3, "multiclass")
    alone = replace(PART, matrix=SentRows(), matrix_t=SentRows(), head=SentRows(), head_t=SentRows())
    found = iteration_traffic(model, (0, 3), 0, alone, step="sweep", num_parts=1, itemsize=4)
    assert set(found.values()) == {Traffic()}
    assert evaluation_traffic(model, (0, 3), 0, alone, num_parts=1, itemsize=4) == Traffic()


def test_unknown_steps_are_refused() -> None:
    model = make_model(ModelConfig(family="gcn", layers=3, hidden=4), 5, 3, "multiclass")
    with pytest.raises(InputError, match="newton"):
        iteration_traffic(model, (0, 3), 0, PART, step="newton", num_parts=1, itemsize=4)
