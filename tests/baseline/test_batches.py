"""Cluster-GCN and GraphSAINT: their matrices and coefficients against the definitions, and a step against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import dense_adjacency, dense_propagation, random_graph
from torch.nn import functional as F

from gfgnn import metrics
from gfgnn.baseline import cluster, saint
from gfgnn.baseline.chain import adjacency, loss_of, problem_on
from gfgnn.baseline.network import Network
from gfgnn.baseline.settings import AdamSettings
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import build_model

PLAIN = AdamSettings(lr=0.01, dropout=0.0, dropout_input=0.0, batch_norm=False, decays=(0.0, 0.0))


def gcn(graph: Graph, family: str = "gcn"):
    return build_model(ModelConfig(family=family, layers=2, hidden=4), graph)


@given(seed=st.integers(0, 50), directed=st.booleans(), weighted=st.booleans())
@settings(max_examples=15, deadline=None)
def test_normalised_and_enhanced_matrices(seed: int, directed: bool, weighted: bool) -> None:
    graph = random_graph(seed, directed=directed, weighted=weighted)
    a = adjacency(graph)
    torch.testing.assert_close(
        torch.from_numpy(a.toarray()).double(), dense_adjacency(graph), rtol=1e-6, atol=1e-6
    )
    for norm, loops in (("sym", True), ("rw", False), ("none", True)):
        s = cluster.normalised(a, norm, loops)
        expected = dense_propagation(graph, norm, loops).float()
        torch.testing.assert_close(s.matrix.to_dense(), expected)
        torch.testing.assert_close(s.matrix_t.to_dense(), expected.t())
    b = dense_propagation(graph, "rw", True)
    expected = (b + 0.7 * torch.diag(b.diag())).float()
    torch.testing.assert_close(cluster.enhanced(a, 0.7).matrix.to_dense(), expected)


def test_a_group_is_the_graph_between_its_nodes() -> None:
    graph = random_graph(3, nodes=20, labelled=9)
    clusters = cluster.Clusters(gcn(graph), graph, torch.arange(20) % 5, 2, None)
    generator = torch.Generator().manual_seed(0)
    groups = list(clusters.groups(generator))
    assert [g.numel() for g in groups] == [8, 8, 4]
    assert torch.equal(torch.cat(groups).sort().values, torch.arange(20))
    for nodes in groups:
        problem, expected = clusters.problem(nodes), graph.subgraph(nodes)
        torch.testing.assert_close(problem.propagation.matrix.to_dense(), dense_propagation(expected).float())
        assert torch.equal(problem.y, expected.y)
        assert torch.equal(problem.train_index, expected.labelled(expected.train_mask))
        torch.testing.assert_close(problem.inputs.features, expected.x)
    again = list(clusters.groups(generator))
    assert not all(torch.equal(one, other) for one, other in zip(groups, again, strict=True))


def test_one_part_is_the_whole_graph_and_its_step_that_of_adam() -> None:
    graph = random_graph(1, nodes=20, labelled=9)
    clusters = cluster.Clusters(gcn(graph), graph, torch.zeros(20, dtype=torch.int64), 1, None)
    learner = cluster.ClusterLearner(clusters, PLAIN, torch.Generator().manual_seed(0))
    before = {k: v.detach().clone().requires_grad_() for k, v in learner.parameters.items()}
    s = dense_propagation(graph).float()
    h = torch.relu(s @ graph.x @ before["block0.weight"] + before["block0.bias"])
    scores = s @ h @ before["block1.weight"] + before["block1.bias"]
    loss = F.cross_entropy(scores[graph.train_mask], graph.y[graph.train_mask])
    optimiser = torch.optim.Adam(before.values(), lr=0.01)
    loss.backward()
    optimiser.step()
    assert learner.step() == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, value in learner.parameters.items():
        torch.testing.assert_close(value.detach(), before[name].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sampler", "family"), [("walk", "sage"), ("node", "gcn")])
def test_samples_correct_what_they_leave_out(sampler: str, family: str) -> None:
    """In the mean over samples, aggregation of a sampled node and the loss are those of the whole graph."""
    graph = random_graph(5, nodes=30, isolated=0, labelled=15)
    generator = torch.Generator().manual_seed(0)
    samples = saint.Samples(gcn(graph, family), graph, sampler, 6, 2, 150, generator)
    s = samples.operator.matrix.to_dense().double()
    h = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    total, seen, weight = torch.zeros(30, 3).double(), torch.zeros(30), 0.0
    count = 250
    for _ in range(count):
        nodes = samples.draw()
        problem, weights = samples.problem(nodes)
        total[nodes] += problem.propagation.matrix.to_dense().double() @ h[nodes]
        seen[nodes] += 1
        weight += float(weights.sum())
    often = seen > 70
    assert int(often.sum()) > 10
    torch.testing.assert_close((total / seen[:, None])[often], (s @ h)[often], rtol=0.0, atol=0.5)
    assert weight / count == pytest.approx(1.0, abs=0.1)  # each labelled node counts as 1 / k
    chance = torch.from_numpy(samples.node_counts / samples.draws)
    torch.testing.assert_close(chance, (seen / count).double(), rtol=0.0, atol=0.2)


def test_walks_follow_edges_into_their_node() -> None:
    graph = random_graph(2, nodes=40, directed=True, isolated=2)
    samples = saint.Samples(gcn(graph), graph, "walk", 1, 3, 1, torch.Generator().manual_seed(0))
    a = dense_adjacency(graph) > 0
    reach = torch.eye(40, dtype=torch.bool)
    for _ in range(3):
        reach = reach | (reach.double() @ a.double() > 0)
    sizes = []
    for _ in range(60):
        nodes = samples.draw()
        sizes.append(nodes.numel())
        assert any(bool(reach[root, nodes].all()) for root in nodes)
    assert max(sizes) == 4
    assert min(sizes) >= 1


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_weights_of_nodes_multiply_their_losses(task: str) -> None:
    graph = random_graph(0, nodes=20, labelled=9)
    generator = torch.Generator().manual_seed(0)
    if task != "multiclass":
        y = (torch.rand(20, 2, generator=generator) > 0.5).float()
        graph = graph.replace(y=y, num_classes=2, task=task)
    problem = problem_on(gcn(graph), graph, cluster.normalised(adjacency(graph), "sym", True))
    network = Network(problem, PLAIN)
    parameters, running = network.start(generator)
    scores = network.scores(parameters, running, generator)
    k = problem.train_index.numel()
    mean = loss_of(problem, scores, None)
    torch.testing.assert_close(loss_of(problem, scores, torch.full((k,), 1.0 / k)), mean)
    torch.testing.assert_close(mean, metrics.loss(task, scores, problem.targets))
    one = torch.zeros(k)
    one[2] = 3.0
    torch.testing.assert_close(
        loss_of(problem, scores, one), 3.0 * metrics.loss(task, scores[2:3], problem.targets[2:3])
    )


def test_wrong_settings_of_samplers_are_named() -> None:
    graph, model = random_graph(), ModelConfig(family="gcn", layers=2, hidden=4)
    wanted = {"budget": Budget(iterations=1), "seed": 0, "threads": 1}
    with pytest.raises(InputError, match="batch is 3 of 2 parts"):
        cluster.run(graph, model, parts=2, batch=3, **wanted)
    with pytest.raises(InputError, match="parts"):
        cluster.run(graph, model, parts=99, **wanted)
    with pytest.raises(InputError, match="sampler"):
        saint.run(graph, model, sampler="edge", **wanted)
    with pytest.raises(InputError, match="coverage"):
        saint.run(graph, model, coverage=0, **wanted)
    assert np.isfinite(saint.run(graph, model, coverage=1, **wanted).history[0]["loss"])
