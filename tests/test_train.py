"""The loop: what it records, keeps, stops at and gives back, with a solver made for the purpose."""

from __future__ import annotations

import importlib
import math
import os
import signal
from dataclasses import replace
from typing import Any

import pytest
import torch

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.evaluate import evaluate
from gfgnn.graph.graph import Graph
from gfgnn.model.build import initial_weights
from gfgnn.result import Result
from gfgnn.solver.base import StepInfo

# The module: the attribute of the package is the function.
loop = importlib.import_module("gfgnn.train")

MODEL = ModelConfig(family="gcn", layers=2, hidden=8)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic:nodes=150,classes=3,features=8")


class Noise:
    """Fresh random weights in every iteration, in memory that it reuses; ``bad`` iterations give a loss of NaN."""

    name, default_iters = "noise", 6

    def __init__(self, bad: int | None = None, interrupt: int | None = None) -> None:
        self.bad, self.interrupt = bad, interrupt
        self.inference: list[bool] = []

    def init(self, problem: Any, generator: torch.Generator) -> dict[str, Any]:
        return {"step": 0, "generator": generator, "weights": initial_weights(problem.model, generator)}

    def step(self, problem: Any, state: dict[str, Any]) -> tuple[dict[str, Any], StepInfo]:
        self.inference.append(torch.is_inference_mode_enabled())
        state["step"] += 1
        for weight in state["weights"].values():
            weight.normal_(generator=state["generator"])
        if state["step"] == self.interrupt:
            raise KeyboardInterrupt
        return state, StepInfo(math.nan if state["step"] == self.bad else 1.0, {"changed": 2.0})

    def weights(self, problem: Any, state: dict[str, Any]) -> dict[str, torch.Tensor]:
        return state["weights"]

    def describe(self, problem: Any) -> dict[str, Any]:
        return {"noise": 1}


def run(graph: Graph, monkeypatch: pytest.MonkeyPatch, solver: Noise | None = None, **changes: Any) -> Result:
    solver = solver or Noise()
    monkeypatch.setattr(loop, "make_solver", lambda config, model: solver)
    callback = changes.pop("on_iteration", None)
    return loop.train(MODEL, graph, TrainConfig(**changes), on_iteration=callback)


def test_a_result_is_shown_in_one_line(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph.replace(val_mask=torch.zeros_like(graph.val_mask)), monkeypatch)
    expected = "Result(synthetic, gcn with 2 layers, target: best at 6 of 6 iterations, val -, test"
    assert repr(result).startswith(expected)


def test_returns_the_best_validation_iterate(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph, monkeypatch)
    scores = [line["val"] for line in result.history]
    assert result.iterations == 6
    assert result.best_iteration == scores.index(max(scores)) + 1
    assert result.val_accuracy == max(scores)
    assert result.test_accuracy == result.history[result.best_iteration - 1]["test"]
    assert result.last_test_accuracy == result.history[-1]["test"]
    problem = loop.prepare(result.model, graph)
    assert evaluate(problem, result.weights)["val"] == max(scores)
    assert evaluate(problem, result.last_weights)["val"] == scores[-1]


def test_seconds_grow_and_leave_evaluation_out(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph, monkeypatch)
    seconds = [line["seconds"] for line in result.history]
    assert seconds == sorted(seconds)
    assert result.seconds == seconds[-1] >= result.setup_seconds > 0
    assert result.seconds_to_best == seconds[result.best_iteration - 1]
    assert result.history[0]["extra"] == {"changed": 2.0}


def test_gradient_free_solvers_run_under_inference_mode(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = Noise()
    result = run(graph, monkeypatch, solver)
    assert all(solver.inference)
    assert not any(weight.is_inference() for weight in result.weights.values())


def test_evaluates_as_often_as_asked_and_at_the_end(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph, monkeypatch, eval_every=4)
    assert [line["iteration"] for line in result.history if line["val"] is not None] == [4, 6]


def test_patience_and_time_limit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph, monkeypatch, iters=500, patience=3)
    assert result.iterations < 500
    assert result.iterations >= result.best_iteration + 3 or result.history[-1]["val_loss"] is not None
    assert run(graph, monkeypatch, iters=500, max_seconds=0).iterations == 1


def test_stops_at_a_loss_that_is_not_finite(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="not finite at iteration 4"):
        result = run(graph, monkeypatch, Noise(bad=4))
    assert result.diverged
    assert result.best_iteration <= 3
    with pytest.raises(InputError, match="very first"), pytest.warns(UserWarning, match="not finite"):
        run(graph, monkeypatch, Noise(bad=1))


def test_ctrl_c_keeps_the_best_iterate(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(graph, monkeypatch, Noise(interrupt=4))
    assert result.interrupted
    assert result.iterations == 3
    problem = loop.prepare(result.model, graph)
    assert evaluate(problem, result.weights)["val"] == result.val_accuracy
    with pytest.raises(KeyboardInterrupt):
        run(graph, monkeypatch, Noise(interrupt=1))


def test_ctrl_c_after_the_last_iteration_loses_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = Noise()
    monkeypatch.setattr(solver, "describe", lambda problem: os.kill(os.getpid(), signal.SIGINT) or {})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = run(graph, monkeypatch, solver)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted
    assert result.iterations == 6


@pytest.mark.parametrize("solver", ["target", "adam"])
def test_isolated_nodes_and_a_class_without_training_nodes(graph: Graph, solver: str) -> None:
    inside = (graph.edge_index < 100).all(0)
    alone = graph.replace(edge_index=graph.edge_index[:, inside])
    seen = alone.replace(train_mask=alone.train_mask & (alone.y != 1))
    with pytest.warns(UserWarning, match="1 of 3 classes have no training node"):
        result = loop.train(MODEL, seen, TrainConfig(solver=solver, iters=3))
    assert math.isfinite(result.loss)
    assert result.weights["block1.weight"].size(1) == 3
    assert all(torch.isfinite(weight).all() for weight in result.weights.values())


def test_without_validation_the_last_iterate_is_taken(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = graph.replace(val_mask=torch.zeros(graph.num_nodes, dtype=torch.bool))
    result = run(bare, monkeypatch)
    assert result.best_iteration == 6
    assert result.val_accuracy is None
    assert any("last iterate" in note for note in result.notes)


def test_threads_are_restored(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = torch.get_num_threads(), []
    run(
        graph, monkeypatch, threads=before + 1, on_iteration=lambda line: seen.append(torch.get_num_threads())
    )
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


def test_bad_input(graph: Graph) -> None:
    nobody = torch.zeros(graph.num_nodes, dtype=torch.bool)
    with pytest.raises(InputError, match="train"):
        loop.train(MODEL, graph.replace(train_mask=nobody))
    for device in ("abacus", "meta", "mps"):
        with pytest.raises(InputError, match=f"device must be cpu or cuda; got '{device}'"):
            loop.train(MODEL, graph, TrainConfig(device=device))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="cuda"):
            loop.train(MODEL, graph, TrainConfig(device="cuda"))


def test_target_solver_same_seed_same_result(graph: Graph) -> None:
    config = TrainConfig(iters=3, seed=5)
    a, b = (loop.train(replace(MODEL, family="gcnii"), graph, config) for _ in range(2))
    for name, weight in a.last_weights.items():
        assert torch.equal(weight, b.last_weights[name]), name
    assert a.test_accuracy is not None
    assert a.test_accuracy > 0.6


def test_summary_keys_are_frozen(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(run(graph, monkeypatch).summary()) == [
        "dataset", "num_nodes", "num_edges", "num_features", "num_classes", "task", "score", "model", "layers",
        "hidden", "solver", "seed", "threads", "device", "dtype", "iterations", "best_iteration", "train_accuracy",
        "val_accuracy", "test_accuracy", "last_test_accuracy", "loss", "seconds", "seconds_to_best",
        "seconds_per_iteration", "setup_seconds", "peak_rss_bytes", "parts", "stages", "staleness", "ranks", "version",
        "interrupted", "diverged", "settings", "notes",
    ]  # fmt: skip
