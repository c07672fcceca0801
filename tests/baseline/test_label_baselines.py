"""Label propagation against dense matrices, and Correct & Smooth over a perceptron."""

from __future__ import annotations

import pytest
import torch
from random_graphs import dense_propagation, random_graph

import gfgnn
from gfgnn import metrics, post
from gfgnn.baseline import propagation
from gfgnn.baseline.propagation import ALPHAS, STEPS, LabelLearner, run, run_smoothed
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph

MODEL = ModelConfig(family="gcn", layers=2, hidden=16)


@pytest.mark.parametrize("directed", [False, True])
def test_the_best_of_all_alphas_and_steps_is_found(directed: bool) -> None:
    graph = random_graph(3, nodes=60, labelled=20, isolated=3, directed=directed)
    graph = graph.replace(val_mask=torch.arange(60) >= 30, test_mask=torch.zeros(60, dtype=torch.bool))
    learner = LabelLearner(graph)
    start = torch.zeros(60, 3, dtype=torch.float64)
    start[torch.arange(20), graph.y[:20]] = 1.0
    sym, rw = (dense_propagation(graph, norm, False) for norm in ("sym", "rw"))
    best = 0.0
    for alpha in ALPHAS:
        learner.step()
        r = start
        for count in range(1, STEPS[-1] + 1):
            r = rw @ r if alpha is None else alpha * sym @ r + (1 - alpha) * start
            if alpha is None:
                r[:20] = start[:20]
            if count in STEPS:
                shares = r / r.sum(1, keepdim=True)
                shares = torch.where(shares.isfinite(), shares, start.sum(0) / 20)
                best = max(best, metrics.score("multiclass", shares, graph.y, learner.val))
        assert learner.best == pytest.approx(best)
    scores = learner.scores()
    assert metrics.score("multiclass", scores, graph.y, learner.val) == pytest.approx(best)
    assert set(learner.settings["chosen"]) == {"alpha", "steps", "norm"}


def test_what_is_kept_is_the_best_so_far() -> None:
    graph = gfgnn.load("synthetic:nodes=400,classes=4,features=8")
    outcome = run(graph, MODEL, budget=Budget(), seed=0, threads=1)
    vals = [line["val"] for line in outcome.history]
    assert vals == sorted(vals)
    assert len(vals) == len(ALPHAS)
    assert outcome.last is not None
    assert outcome.last["test"] > 0.8
    assert len(run(graph, MODEL, budget=Budget(iterations=99), seed=0, threads=1).history) == len(ALPHAS)


def multilabel() -> Graph:
    graph = gfgnn.load("synthetic:nodes=400,classes=4,features=8,noise=3")
    y = torch.stack([graph.y < 2, graph.y % 2 == 0], 1).float()
    y[::7, 0] = float("nan")
    return graph.replace(y=y, num_classes=2, task="multilabel")


@pytest.mark.parametrize("function", [run, run_smoothed])
def test_several_labels_with_unknown_entries(function) -> None:
    outcome = function(multilabel(), MODEL, budget=Budget(iterations=30), seed=0, threads=1)
    assert outcome.status == "done"
    assert outcome.best is not None
    assert outcome.best["test"] > 0.8


@pytest.mark.parametrize("base", propagation.BASES)
def test_smoothing_follows_the_base_and_helps_where_neighbours_agree(base: str) -> None:
    graph = gfgnn.load("synthetic:nodes=600,classes=4,features=8,noise=4,homophily=0.9")
    outcome = run_smoothed(graph, MODEL, budget=Budget(iterations=40), seed=0, threads=1, base=base)
    assert len(outcome.history) == 41
    trained, smoothed = outcome.history[:-1], outcome.history[-1]
    assert smoothed["seconds"] > trained[-1]["seconds"]
    assert smoothed["val"] > max(line["val"] for line in trained) + 0.1
    assert smoothed["test"] > max(line["test"] for line in trained) + 0.1
    assert outcome.settings["correct_and_smooth"]["smoothing_alpha"] in post.ALPHAS


def test_the_base_sees_no_edge() -> None:
    graph = random_graph(3, nodes=40, labelled=20)
    alone = graph.replace(edge_index=graph.edge_index[:, :0])
    runs = [run_smoothed(g, MODEL, budget=Budget(iterations=5), seed=0, threads=1) for g in (graph, alone)]
    for one, other in zip(*(r.history[:-1] for r in runs), strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_values_are_refused() -> None:
    graph = random_graph()
    graph = graph.replace(y=graph.y[:, None].float(), num_classes=1, task="regression")
    for function in (run, run_smoothed):
        with pytest.raises(InputError, match="regression"):
            function(graph, MODEL, budget=Budget(), seed=0, threads=1)
    unknown = random_graph().replace(val_mask=torch.zeros(12, dtype=torch.bool))
    with pytest.raises(InputError, match="validation"):
        run(unknown, MODEL, budget=Budget(), seed=0, threads=1)
