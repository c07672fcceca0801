"""Direct feedback alignment: closed-form changes against autograd where they must agree, and what feedback is."""

from __future__ import annotations

import pytest
import torch
from random_graphs import dense_propagation, random_graph

from gfgnn import metrics
from gfgnn.baseline.feedback import FeedbackLearner, error_of, run
from gfgnn.baseline.settings import AdamSettings
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import build_model
from gfgnn.problem import prepare


def learner(graph: Graph, layers: int, *, spread: float = 0.0) -> FeedbackLearner:
    model = build_model(ModelConfig(family="gcn", layers=layers, hidden=5), graph)
    adam = AdamSettings(lr=0.01, dropout=0.0, dropout_input=0.0, batch_norm=False, decays=(0.0,) * layers)
    problem = prepare(model, graph, dtype=torch.float64)
    return FeedbackLearner(problem, adam, spread, 7, torch.Generator().manual_seed(0))


def backprop(found: FeedbackLearner, graph: Graph) -> dict[str, torch.Tensor]:
    s = dense_propagation(graph)
    weights = {k: v.clone().requires_grad_() for k, v in found.weights.items()}
    h, last = graph.x.double(), len(found.problem.model.blocks) - 1
    for index in range(last + 1):
        z = s @ h @ weights[f"block{index}.weight"] + weights[f"block{index}.bias"]
        h = z if index == last else z.relu()
    loss = metrics.loss(graph.task, h[found.problem.train_index], found.problem.targets)
    return dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))


@pytest.mark.parametrize("directed", [False, True])
def test_with_the_transposed_weights_two_layers_follow_the_derivative(directed: bool) -> None:
    graph = random_graph(2, nodes=20, labelled=9, directed=directed)
    found = learner(graph, 2)
    found.feedback[0] = found.weights["block1.weight"].t().clone()
    _, changes = found.changes()
    for name, derivative in backprop(found, graph).items():
        torch.testing.assert_close(changes[name], derivative, msg=name)


def test_the_output_follows_the_derivative_and_hidden_layers_their_feedback() -> None:
    graph = random_graph(2, nodes=20, labelled=9, directed=True)
    found = learner(graph, 3)
    before = {k: v.clone() for k, v in found.feedback.items()}
    _, changes = found.changes()
    derivatives = backprop(found, graph)
    torch.testing.assert_close(changes["block2.weight"], derivatives["block2.weight"])
    assert not torch.allclose(changes["block1.weight"], derivatives["block1.weight"])
    s = dense_propagation(graph)
    z = [s @ graph.x.double() @ found.weights["block0.weight"] + found.weights["block0.bias"]]
    z.append(s @ z[0].relu() @ found.weights["block1.weight"] + found.weights["block1.bias"])
    scores = s @ z[1].relu() @ found.weights["block2.weight"] + found.weights["block2.bias"]
    _, error = error_of(found.problem, scores)
    for index, steps in ((1, 1), (0, 2)):
        carried = torch.linalg.matrix_power(s.t(), steps) @ error
        delta = (carried @ found.feedback[index]) * (z[index] > 0)
        below = s @ (graph.x.double() if index == 0 else z[0].relu())
        torch.testing.assert_close(changes[f"block{index}.weight"], below.t() @ delta)
        torch.testing.assert_close(changes[f"block{index}.bias"], delta.sum(0))
    found.step()
    assert all(torch.equal(before[k], v) for k, v in found.feedback.items())


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_the_error_is_the_derivative_of_the_loss(task: str) -> None:
    graph = random_graph(4, nodes=20, labelled=9)
    if task != "multiclass":
        y = (torch.rand(20, 3, generator=torch.Generator().manual_seed(0)) > 0.5).float()
        y[1, 2] = float("nan")
        graph = graph.replace(y=y, task=task)
    found = learner(graph, 2)
    scores = torch.randn(20, 3, dtype=torch.float64, requires_grad=True)
    loss, error = error_of(found.problem, scores.detach())
    wanted = metrics.loss(task, scores[found.problem.train_index], found.problem.targets)
    (derivative,) = torch.autograd.grad(wanted, scores)
    assert loss == pytest.approx(float(wanted.detach()))
    torch.testing.assert_close(error, derivative)


def test_pseudo_errors_reach_unlabelled_nodes_only() -> None:
    graph = random_graph(4, nodes=20, labelled=9)
    found = learner(graph, 2, spread=0.8)
    error = torch.zeros(20, 3, dtype=torch.float64)
    error[:9] = torch.randn(9, 3, dtype=torch.float64)
    s, r = dense_propagation(graph), error
    for _ in range(7):
        r = 0.8 * s @ r + 0.2 * error
    r[:9] = error[:9]
    torch.testing.assert_close(found._with_pseudo_errors(error), r)
    assert bool((r[9:19] != 0).any())


def test_what_it_cannot_train_is_said() -> None:
    graph, wanted = random_graph(), {"budget": Budget(), "seed": 0, "threads": 1}
    with pytest.raises(InputError, match="family gcn"):
        run(graph, ModelConfig(family="sage", layers=2, hidden=4), **wanted)
    with pytest.raises(InputError, match="batch_norm"):
        run(graph, ModelConfig(family="gcn", layers=2, hidden=4), batch_norm=True, **wanted)
    with pytest.raises(InputError, match="spread"):
        run(graph, ModelConfig(family="gcn", layers=2, hidden=4), spread=1.0, **wanted)


def test_nothing_in_it_asks_for_derivatives() -> None:
    graph = random_graph()
    with torch.inference_mode():  # where autograd could not record a thing
        outcome = run(
            graph, ModelConfig(family="gcn", layers=3, hidden=4), budget=Budget(iterations=3), seed=0, threads=1,
            spread=0.5,
        )  # fmt: skip
    assert outcome.status == "done"
