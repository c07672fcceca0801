"""The Adam baseline: its derivatives, its regularisers, and that it learns."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import functional as F

from gfgnn.baseline.adam import AdamSolver
from gfgnn.baseline.network import Network
from gfgnn.baseline.optimizer import adam_step, make_group
from gfgnn.baseline.products import drop, dropout_mask
from gfgnn.baseline.settings import resolve
from gfgnn.config import AdamConfig, ModelConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.build import build_model
from gfgnn.problem import Problem, prepare
from gfgnn.train import train

FAMILIES = ("gcn", "gcnii", "resgcn", "sage", "sgc", "sign")


def make_graph(*, sparse: bool = False, directed: bool = False, n: int = 60, f: int = 9, c: int = 3) -> Graph:
    """A small planted partition with features that are mostly zeros."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(n) % c
    same = y[:, None] == y[None]
    edges = torch.rand(n, n, generator=generator) < torch.where(same, 0.2, 0.03)
    edges.fill_diagonal_(False)
    if not directed:
        edges = edges | edges.t()
    target, source = edges.nonzero().t()
    x = torch.rand(n, f, generator=generator) * (torch.rand(n, f, generator=generator) < 0.4)
    x[torch.arange(n), y] += 1.0
    part = torch.arange(n) % 4
    return Graph(
        edge_index=torch.stack([source, target]), num_nodes=n, y=y, num_classes=c,
        train_mask=part < 2, val_mask=part == 2, test_mask=part == 3,
        x=x.to_sparse_csr() if sparse else x, directed=directed, name="planted",
    )  # fmt: skip


def make_problem(family: str, graph: Graph, layers: int = 3) -> Problem:
    config = ModelConfig(family=family, layers=layers, hidden=5)
    return prepare(build_model(config, graph), graph, dtype=torch.float64)


def dense_scores(problem: Problem, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """The forward pass of the definitions, with dense matrices and nothing clever."""
    s = problem.propagation.matrix.to_dense()
    x = problem.inputs.features
    h = h0 = x.to_dense() if x.layout == torch.sparse_csr else x
    for index, block in enumerate(problem.model.blocks):
        powers = [h]
        for _ in range(block.hops):
            powers.append(s @ powers[-1])
        t = {
            "none": lambda p=powers: p[0],
            "graph": lambda p=powers: p[1],
            "initial": lambda p=powers, b=block, z=h0: (1 - b.alpha) * p[1] + b.alpha * z,
            "concat": lambda p=powers: torch.cat(p[:2], 1),
            "power": lambda p=powers: p[-1],
            "hops": lambda p=powers: torch.cat(p, 1),
        }[block.propagate]()
        weight = weights[f"block{index}.weight"]
        if block.beta is not None:
            weight = (1 - block.beta) * torch.eye(weight.size(0), dtype=weight.dtype) + block.beta * weight
        z = t @ weight + weights.get(f"block{index}.bias", torch.zeros(1, dtype=weight.dtype))
        out = torch.relu(z) if block.activation == "relu" else z
        h = out if block.skip is None else h + block.skip * out
        h0 = h if index == 0 else h0
    return h


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_dense_ones(family: str, sparse: bool, directed: bool) -> None:
    problem = make_problem(family, make_graph(sparse=sparse, directed=directed))
    network = Network(problem, resolve(AdamConfig(dropout=0.0), family, len(problem.model.blocks)))
    generator = torch.Generator().manual_seed(0)
    parameters, running = network.start(generator)
    classes = problem.targets.argmax(1)
    loss = F.cross_entropy(network.scores(parameters, running, generator), classes)
    dense = F.cross_entropy(dense_scores(problem, parameters)[problem.train_index], classes)
    torch.testing.assert_close(loss, dense)
    ours = torch.autograd.grad(loss, list(parameters.values()))
    theirs = torch.autograd.grad(dense, list(parameters.values()))
    for name, a, b in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, msg=name)


@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_input_dropout_passes_through_both_orders(family: str) -> None:
    """With the same mask, dropped sparse features give the scores of dropped dense ones."""
    graph = make_graph(sparse=True)
    problem = make_problem(family, graph, layers=2)
    settings = resolve(AdamConfig(dropout=0.5), family, len(problem.model.blocks))
    network = Network(problem, settings)
    parameters, _ = network.start(torch.Generator().manual_seed(0))
    weight = parameters["block0.weight"]
    z = network.first(weight, torch.Generator().manual_seed(3))
    x = graph.x.to(torch.float64)
    values = drop(x.values(), 0.5, torch.Generator().manual_seed(3))
    dropped = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape).to_dense()
    s = problem.propagation.matrix.to_dense() if family == "gcn" else torch.eye(graph.num_nodes).double()
    expected = s @ (dropped @ weight)
    torch.testing.assert_close(z, expected)
    (ours,) = torch.autograd.grad(z.square().sum(), weight)
    (theirs,) = torch.autograd.grad(expected.square().sum(), weight)
    torch.testing.assert_close(ours, theirs)


def test_dropout_mask_has_the_right_mean() -> None:
    for p in (0.2, 0.5, 0.6):
        mask = dropout_mask(torch.empty(400, 100), p, torch.Generator().manual_seed(0))
        assert abs(float((mask == 0).double().mean()) - p) < 0.01
        assert abs(float(mask.double().mean()) - 1.0) < 0.02
        assert len(mask.unique()) == 2


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "resgcn", "sign"])
def test_batch_norm_folds_into_the_weights(family: str) -> None:
    problem = make_problem(family, make_graph())
    solver = AdamSolver(AdamConfig(batch_norm=True, dropout=0.0), family)
    state = solver.init(problem, torch.Generator().manual_seed(0))
    for _ in range(3):
        state, _ = solver.step(problem, state)
    weights = solver.weights(problem, state)
    # One network whose running statistics are those of its own batch: then training mode equals evaluation mode.
    for name in state.running:
        state.running[name].zero_() if name.endswith("mean") else state.running[name].fill_(1.0)
    evaluated = solver.weights(problem, state)
    assert set(weights) == set(evaluated)
    gamma, weight = state.parameters["block0.gamma"], state.network.weight(state.parameters, 0)
    expected = weight * gamma / (1.0 + 1e-5) ** 0.5
    torch.testing.assert_close(evaluated["block0.weight"], expected.detach())
    torch.testing.assert_close(evaluated["block0.bias"], state.parameters["block0.shift"].detach())
    assert torch.isfinite(forward(problem, weights)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns(family: str) -> None:
    graph = make_graph(n=200)
    config = TrainConfig(solver="adam", iters=60, adam=AdamConfig(lr=0.05, dropout=0.2))
    result = train(ModelConfig(family=family, layers=2, hidden=16), graph, config)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.8


def test_same_seed_same_result_and_the_global_generator_is_left_alone() -> None:
    graph, config = make_graph(), TrainConfig(solver="adam", iters=5, seed=4)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    a = train(ModelConfig(family="gcn", layers=2, hidden=8), graph, config)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(7)
    b = train(ModelConfig(family="gcn", layers=2, hidden=8), graph, config)
    for name in a.last_weights:
        assert torch.equal(a.last_weights[name], b.last_weights[name])


def test_trains_inside_inference_mode_of_the_caller() -> None:
    with torch.inference_mode():
        result = train(
            ModelConfig(family="gcn", layers=2, hidden=8), make_graph(), TrainConfig(solver="adam", iters=2)
        )
    assert result.iterations == 2


def test_updates_equal_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.randn(4, 3, generator=generator), torch.randn(3, generator=generator)]
    theirs = [p.clone().requires_grad_() for p in ours]
    groups = [make_group(ours[:1], 0.1), make_group(ours[1:], 0.0)]
    reference = [{"params": theirs[:1], "weight_decay": 0.1}, {"params": theirs[1:], "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(reference, lr=0.03)
    for _ in range(4):
        gradients = [torch.randn(p.shape, generator=generator) for p in ours]
        adam_step(groups, [gradients[:1], gradients[1:]], 0.03)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach())


def test_weight_decay_follows_the_publications() -> None:
    assert resolve(AdamConfig(), "gcn", 3).decays == (5e-4, 0.0, 0.0)
    assert resolve(AdamConfig(), "gcnii", 4).decays == (5e-4, 0.01, 0.01, 5e-4)
    assert resolve(AdamConfig(weight_decay=0.1), "gcnii", 4).decays == (5e-4, 0.1, 0.1, 5e-4)
    assert resolve(AdamConfig(dropout=0.3), "sage", 2).dropout_input == 0.0
    assert resolve(AdamConfig(batch_norm=True), "gcn", 2).dropout_input == 0.0


def test_gcn_on_citeseer_reaches_the_published_accuracy() -> None:
    from gfgnn.checks import InputError
    from gfgnn.data.registry import load

    try:
        graph = load("citeseer")
    except InputError:
        pytest.skip("citeseer is not here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = TrainConfig(solver="adam", iters=80, threads=1)
        result = train(ModelConfig(family="gcn", layers=2, hidden=16), graph, config)
    assert result.last_test_accuracy is not None
    assert result.last_test_accuracy > 0.66  # published .703 after 200 epochs
