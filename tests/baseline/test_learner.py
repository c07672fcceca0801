"""The loop of the baselines: budgets, patience, statuses, clocks; and every baseline keeps to it."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import gfgnn
from gfgnn.baseline import adam_tuned, cluster, feedback, propagation, revgnn, saint
from gfgnn.baseline.learner import Learner, Stop, flops_of, learn
from gfgnn.bench.outcome import Budget, Outcome
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph

FREE = Budget()
#: contender: its function, and settings that make it quick
BASELINES: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam-tuned": (adam_tuned.run, {}),
    "revgnn": (revgnn.run, {"lr": 0.02}),
    "cluster-gcn": (cluster.run, {"parts": 4, "batch": 2, "partitioner": "ldg"}),
    "graphsaint": (saint.run, {"coverage": 10}),
    "label-propagation": (propagation.run, {}),
    "correct-and-smooth": (propagation.run_smoothed, {}),
    "dfa": (feedback.run, {"lr": 0.05}),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return gfgnn.load("synthetic:nodes=240,classes=3,features=16,noise=1")


def run(name: str, graph: Graph, *, seed: int = 0, **changes: Any) -> Outcome:
    function, settings = BASELINES[name]
    model = ModelConfig(family="gcn", layers=2, hidden=8)
    budget = changes.pop("budget", Budget(iterations=25))
    return function(graph, model, budget=budget, seed=seed, threads=1, **settings, **changes)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_learns_and_says_what_it_did(name: str, graph: Graph) -> None:
    outcome = run(name, graph)
    assert outcome.contender == name
    assert outcome.status == "done"
    assert outcome.reason is None
    assert outcome.best is not None
    assert outcome.best["test"] > 0.7
    seconds = [line["seconds"] for line in outcome.history]
    assert seconds == sorted(seconds)
    assert outcome.setup_seconds <= seconds[0]
    assert [line["iteration"] for line in outcome.history] == list(range(1, len(seconds) + 1))
    assert outcome.seconds_per_iteration is not None
    assert outcome.seconds_per_iteration > 0
    assert outcome.flops_per_iteration is not None
    assert outcome.flops_per_iteration > 1000
    assert outcome.peak_bytes[0] >= outcome.facts["peak_bytes_before_evaluation"] > 10**7
    assert outcome.settings
    assert outcome.facts["seed"] == 0


@pytest.mark.parametrize("name", BASELINES)
def test_same_seed_same_result(name: str, graph: Graph) -> None:
    budget = Budget(iterations=2)
    torch.manual_seed(1)
    first = run(name, graph, seed=3, budget=budget)
    torch.manual_seed(2)  # nothing may hang on torch's own generator
    second = run(name, graph, seed=3, budget=budget)
    for one, other in zip(first.history, second.history, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    if name != "label-propagation":
        other = run(name, graph, seed=4, budget=budget)
        assert [line["loss"] for line in other.history] != [line["loss"] for line in first.history]


@pytest.mark.parametrize("name", BASELINES)
def test_a_budget_of_no_seconds_leaves_one_evaluated_iteration(name: str, graph: Graph) -> None:
    outcome = run(name, graph, budget=Budget(seconds=0.0))
    assert outcome.status == "done"
    assert outcome.facts["stopped"] == "seconds"
    assert len(outcome.history) == (2 if name == "correct-and-smooth" else 1)  # it still smooths
    assert outcome.last is not None


class Fake(Learner):
    """Perfect scores from iteration ``good``; sleeps in evaluation."""

    def __init__(
        self, graph: Graph, good: int = 1, error: BaseException | None = None, loss: float = 1.0
    ) -> None:
        super().__init__(good=good)
        self.graph, self.good, self.error, self.loss, self.steps = graph, good, error, loss, 0

    def step(self) -> float:
        self.steps += 1
        if self.error is not None:
            raise self.error
        return self.loss

    def scores(self) -> Tensor:
        time.sleep(0.01)
        right = torch.nn.functional.one_hot(self.graph.y, self.graph.num_classes).double()
        return right if self.steps >= self.good else torch.zeros_like(right)


def of_fake(graph: Graph, stop: Stop, budget: Budget = FREE, **about: Any) -> Outcome:
    return learn("fake", lambda: Fake(graph, **about), graph, stop, budget=budget, seed=0, threads=1)


def test_evaluation_is_not_timed_and_can_be_rare(graph: Graph) -> None:
    outcome = of_fake(graph, Stop(iterations=7, eval_every=3), good=5)
    evaluated = [line["iteration"] for line in outcome.history if line["val"] is not None]
    assert evaluated == [3, 6, 7]
    assert outcome.best is not None
    assert outcome.best["iteration"] == 6
    assert outcome.best["val"] == 1.0
    assert outcome.history[-1]["seconds"] < 0.02


def test_patience_counts_from_the_last_improvement(graph: Graph) -> None:
    outcome = of_fake(graph, Stop(iterations=50, patience=4), good=3)
    assert len(outcome.history) == 7
    assert outcome.facts["stopped"] == "patience"


def test_the_budget_goes_before_the_baselines_own_number(graph: Graph) -> None:
    outcome = of_fake(graph, Stop(iterations=50), Budget(iterations=3))
    assert len(outcome.history) == 3
    assert outcome.facts["stopped"] == "iterations"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), "out of memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 1 TB"),
            "out of memory",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_what_ends_a_run_is_its_status(graph: Graph, error: BaseException, status: str) -> None:
    outcome = of_fake(graph, Stop(iterations=5), error=error)
    assert outcome.status == status
    assert outcome.reason


def test_other_errors_are_not_hidden(graph: Graph) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        of_fake(graph, Stop(iterations=5), error=RuntimeError("a bug"))


def test_a_loss_that_is_not_finite_ends_the_run(graph: Graph) -> None:
    outcome = of_fake(graph, Stop(iterations=5), loss=math.inf)
    assert outcome.status == "diverged"
    assert len(outcome.history) == 1
    assert run("revgnn", graph, budget=Budget(iterations=30)).status == "done"
    assert BASELINES["cluster-gcn"][0](
        graph, ModelConfig(family="gcn", layers=2, hidden=8), budget=Budget(iterations=9), seed=0, threads=1, parts=2,
        batch=1, lr=1e38,
    ).status == "diverged"  # fmt: skip


def test_threads_are_put_back(graph: Graph) -> None:
    before = torch.get_num_threads()
    learn("fake", lambda: Fake(graph), graph, Stop(iterations=1), budget=Budget(), seed=0, threads=before + 1)
    assert torch.get_num_threads() == before


def test_flops_of_products_are_counted() -> None:
    a, b = torch.zeros(30, 20), torch.zeros(20, 10)
    assert flops_of(lambda: a @ b) == 2 * 30 * 20 * 10


def test_wrong_settings_are_named(graph: Graph) -> None:
    for settings in ({"epochs": 0}, {"patience": 0}, {"eval_every": 0}):
        with pytest.raises(InputError, match=r"patience|iterations|eval_every"):
            run("revgnn", graph, budget=Budget(), **settings)


@pytest.mark.parametrize("name", ["adam-tuned", "cluster-gcn", "graphsaint", "dfa"])
def test_settings_of_adam_are_checked(name: str, graph: Graph) -> None:
    with pytest.raises(InputError, match="rate"):
        run(name, graph, rate=0.1)
    with pytest.raises(InputError, match="dropout"):
        run(name, graph, dropout=2.0)


@pytest.mark.parametrize("name", BASELINES)
def test_a_graph_without_training_labels_is_refused(name: str, graph: Graph) -> None:
    with pytest.raises(InputError):
        run(name, graph.replace(train_mask=torch.zeros_like(graph.train_mask)))
