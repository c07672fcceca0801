"""Pipelines: stages make up the network, clusters the graph without cut edges, a schedule Adam's epoch."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from grids import distance
from random_graphs import random_graph
from torch import Tensor

from gfgnn.baseline.adam import AdamSolver, known_targets, loss_targets, mean_loss
from gfgnn.baseline.costs import backprop_costs
from gfgnn.baseline.micro import micro_problems, without_cut_edges
from gfgnn.baseline.network import Network
from gfgnn.baseline.pipeline import run_1f1b, run_gpipe
from gfgnn.baseline.ranks import make_job, run_job
from gfgnn.baseline.settings import resolve
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.comm.grid import ProcessGrid, make_grid
from gfgnn.comm.serial import SerialCommunicator
from gfgnn.config import AdamConfig, ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.launch.method import Method
from gfgnn.model.build import Model, build_model
from gfgnn.partitioning import partition_of
from gfgnn.plan.plan import sizes_of
from gfgnn.problem import Problem, prepare
from gfgnn.shards import make_shards, shard_problem

FAMILIES = ("gcn", "gcnii", "sage", "resgcn")


def clustered(family: str, *, sparse: bool = False, directed: bool = False) -> tuple[Graph, Model, Tensor]:
    """A graph, a network, and four clusters of unequal size, one of them without a label."""
    graph = random_graph(nodes=30, labelled=20, directed=directed)
    if sparse:
        graph = graph.replace(x=graph.x.relu().to_sparse_csr())
    cluster = torch.randint(4, (30,), generator=torch.Generator().manual_seed(4))
    cluster[:20] = cluster[:20] % 3
    return graph, build_model(ModelConfig(family=family, layers=3, hidden=4), graph), cluster


def problem_of(model: Model, graph: Graph) -> Problem:
    (shard,) = make_shards(model, graph, torch.zeros(graph.num_nodes).long(), 1, dtype=torch.float64)
    grid = make_grid(SerialCommunicator(), 1, 1)
    bounds = (0, len(model.blocks))
    return shard_problem(model, shard, grid, bounds, dtype=torch.float64, keep_features=True)


def micro(model: Model, graph: Graph, cluster: Tensor) -> tuple[Problem, list[Problem]]:
    problem, cut = problem_of(model, graph), without_cut_edges(graph, cluster)
    (shard,) = make_shards(model, cut, torch.zeros(graph.num_nodes).long(), 1, dtype=torch.float64)
    return problem, micro_problems(problem, shard, cluster)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_clusters_have_the_loss_of_the_graph_without_cut_edges(
    family: str, sparse: bool, directed: bool
) -> None:
    graph, model, cluster = clustered(family, sparse=sparse, directed=directed)
    settings = resolve(AdamConfig(dropout=0.0), family, len(model.blocks))
    whole, problems = micro(model, graph, cluster)
    reference = Network(prepare(model, without_cut_edges(graph, cluster), dtype=torch.float64), settings)
    parameters, _ = reference.start(torch.Generator().manual_seed(0))
    generator = torch.Generator()

    def loss_of(network: Network, share: float = 1.0) -> Tensor:
        scores = network.scores(parameters, {}, generator)
        return mean_loss("multiclass", scores, loss_targets(network.problem), share)

    expected = loss_of(reference)
    shares = [float(known_targets(one) / known_targets(whole)) for one in problems]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) == 0.0, "a cluster without a label is among them"
    assert len({one.propagation.num_nodes for one in problems}) == 1
    found = torch.stack([loss_of(Network(one, settings), s) for one, s in zip(problems, shares, strict=True)])
    assert float(found.sum()) == pytest.approx(float(expected), abs=1e-12)
    leaves = list(parameters.values())
    gradients = torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(expected, leaves)
    for a, b in zip(*gradients, strict=True):
        assert distance(a, b) < 1e-10


def on_stage(problem: Problem, stage: int, bounds: tuple[int, ...]) -> Problem:
    """The same problem with the blocks of one stage; nothing is sent."""
    alone = SerialCommunicator()
    grid = ProcessGrid(alone, 1, len(bounds) - 1, 0, stage, alone, alone)
    inputs = problem.block_inputs if stage == 0 else {}
    return replace(problem, grid=grid, bounds=bounds, block_inputs=inputs)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2)])
def test_stages_make_up_the_network(family: str, cuts: tuple[int, ...]) -> None:
    graph = random_graph(nodes=30, labelled=20)
    model = build_model(ModelConfig(family=family, layers=3, hidden=4), graph)
    settings = resolve(AdamConfig(dropout=0.0), family, len(model.blocks))
    problem, generator = problem_of(model, graph), torch.Generator()
    whole = Network(problem, settings)
    parameters, _ = whole.start(torch.Generator().manual_seed(0))
    bounds = (0, *cuts, len(model.blocks))
    message: tuple[Tensor, ...] = ()
    owned: dict[str, Tensor] = {}
    for stage, _span in enumerate(pairwise(bounds)):
        network = Network(on_stage(problem, stage, bounds), settings)
        own, _ = network.start(torch.Generator().manual_seed(0))
        assert not own.keys() & owned.keys()
        owned |= own
        message = network.outputs(own, {}, generator, *message)
    assert list(owned) == list(parameters)
    expected = whole.scores(parameters, {}, generator)
    assert distance(message[0].detach(), expected.detach()) < 1e-12
    gradients = torch.autograd.grad(expected.sum(), list(parameters.values()))
    for name, a, b in zip(
        owned, torch.autograd.grad(message[0].sum(), list(owned.values())), gradients, strict=True
    ):
        assert distance(a, b) < 1e-12, name


def test_1f1b_is_adam_on_the_graph_without_cut_edges() -> None:
    """On processes, by torch's own schedule."""
    graph = random_graph(nodes=40, labelled=20)
    config = ModelConfig(family="gcnii", layers=3, hidden=4)
    asked = {"dropout": 0.0, "dtype": "float64", "order": "none"}
    outcome = run_1f1b(
        graph, config, budget=Budget(iterations=4), seed=0, threads=1, micro_batches=3, **asked
    )
    assert (outcome.status, outcome.reason, outcome.contender) == ("done", None, "pipeline-1f1b")
    cluster = partition_of(graph, 3, method="auto", seed=0).assignment
    problem = prepare(build_model(config, graph), without_cut_edges(graph, cluster), dtype=torch.float64)
    solver = AdamSolver(AdamConfig(dropout=0.0), "gcnii")
    state = solver.init(problem, torch.Generator().manual_seed(0))
    losses = []
    for _ in range(4):
        state, info = solver.step(problem, state)
        losses.append(info.loss)
    assert [line["step_loss"] for line in outcome.history] == pytest.approx(losses, abs=1e-12)
    rows = int(torch.bincount(cluster).max())
    # H and H_0 up, their gradients down, for each micro-batch
    assert outcome.bytes_per_iteration["stage"] == 3 * 4 * rows * 4 * 8
    assert all(0.0 < share < 1.0 for share in outcome.idle_share)


def test_a_rank_that_fails_is_told() -> None:
    graph = random_graph(nodes=40, labelled=20)
    config = ModelConfig(family="gcn", layers=3, hidden=4)
    job = make_job("failing", graph, config, Budget(iterations=5), 0, 1, {"timeout": 20.0}, parts=2)
    outcome = run_job(job, Method("pipeline_jobs:failing"))
    assert outcome.status == "out of memory"
    assert outcome.reason is not None
    assert "rank 1 (part 1, stage 0) raised MemoryError: no more after iteration 2" in outcome.reason
    assert outcome.best is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "exact"}, "micro_batches must be at least 2"),
        ({"micro_batches": 1}, "micro_batches must be at least 2"),
        ({"mode": "rows"}, "mode"),
        ({"backend": "thread"}, "backend must be 'process'"),
        ({"batch_norm": True}, "batch_norm"),
    ],
)
def test_settings_of_1f1b_are_checked(settings: dict[str, object], words: str) -> None:
    graph, config = random_graph(nodes=20), ModelConfig(family="gcn", layers=2, hidden=4)
    with pytest.raises(InputError, match=words):
        run_1f1b(graph, config, budget=Budget(iterations=1), seed=0, threads=1, **settings)


def test_more_stages_than_blocks() -> None:
    graph, config = random_graph(nodes=20), ModelConfig(family="gcn", layers=2, hidden=4)
    with pytest.raises(InputError, match="stages"):
        run_gpipe(graph, config, budget=Budget(iterations=1), seed=0, threads=1, ranks=3)


def test_costs_grow_with_the_work() -> None:
    graph, model, _ = clustered("gcnii")
    sizes = sizes_of(model, graph, 4)
    costs = backprop_costs(model, sizes, resolve(AdamConfig(), "gcnii", len(model.blocks)))
    hidden = costs[1]
    # T W, and its two derivatives; S h and S' q
    assert hidden.dense_flops == 3 * 2 * 30 * 4 * 4
    assert hidden.sparse_flops == 2 * 2 * sizes.nnz * 4
    assert costs[1] == costs[2]
    assert costs[-1].dense_flops == 3 * 2 * 20 * 4 * 3, "the output works on labelled rows"
