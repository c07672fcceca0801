"""Training with the block solver, from the outside: what it reaches, on which inputs, and what it never does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from problems import (
    DEEP,
    FAMILIES,
    directed_weighted,
    held_out,
    make,
    multilabel,
    regression,
    run,
    start,
    synthetic,
)
from random_graphs import rewired
from torch import Tensor

from gfgnn.config import ACTIVATIONS, NORMS, ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.forward import forward
from gfgnn.model.blocks import LEAKY_SLOPE, Block, activate, propagate, transform
from gfgnn.problem import Problem
from gfgnn.solver.refresh import refresh
from gfgnn.solver.state import TargetState, Update
from gfgnn.solver.sweep import SweepStep
from gfgnn.solver.target import STEPS
from gfgnn.train import train

both = pytest.mark.parametrize("step", ["sweep", "polar"])


@both
@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_same_seed_same_bits(step: str, family: str, dropout: float) -> None:
    p = make(family, dtype=torch.float32, layers=4)
    a, b, other = (run(p, 4, seed, step=step, sampled_dropout=dropout)[1].weights for seed in (7, 7, 8))
    for name, weight in a.items():
        assert torch.equal(weight, b[name]), name
    assert not torch.equal(a["block0.weight"], other["block0.weight"])


@both
def test_sampled_dropout_changes_the_run(step: str) -> None:
    p = make("gcn", layers=4)
    plain, dropped = (run(p, 3, step=step, sampled_dropout=d)[1].weights for d in (0.0, 0.4))
    assert not torch.allclose(plain["block1.weight"], dropped["block1.weight"])


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_single_precision_agrees_with_double(step: str, family: str) -> None:
    """Scores of all nodes after five iterations, within two thousandths of their rms."""
    scores = []
    for dtype in (torch.float32, torch.float64):
        p = make(family, dtype=dtype)
        weights = run(p, 5, step=step)[1].weights
        assert all(w.dtype == dtype for w in weights.values())
        scores.append(forward(p, weights).double())
    off = (scores[0] - scores[1]).square().mean().sqrt() / scores[1].square().mean().sqrt()
    assert float(off) < 2e-3


class Forbidden(Exception):
    """Autograd was asked for a derivative."""


def forbid_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise Forbidden

    monkeypatch.setattr(torch.autograd, "grad", refuse)
    monkeypatch.setattr(torch.autograd, "backward", refuse)
    monkeypatch.setattr(Tensor, "backward", refuse)
    monkeypatch.setattr(Tensor, "requires_grad_", refuse)


def tensors_of(state: TargetState) -> list[Tensor]:
    kept = (state.weights, state.velocity, state.averages, state.good)
    return [t for group in kept for t in group.values()]


@both
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["inference", "no_grad", "grad"])
def test_no_derivative_is_ever_asked_for(
    step: str, family: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradients switched on everything would be recorded if any tensor required one: none does."""
    forbid_autograd(monkeypatch)
    context = {"inference": torch.inference_mode(), "no_grad": torch.no_grad(), "grad": torch.enable_grad()}
    with context[mode]:
        p = make(family)
        _, state, losses = run(p, 3, step=step)
        acts = refresh(p, state, unit_spread=step == "polar")
    assert losses[-1] < losses[0]
    found = [*tensors_of(state), *acts.inputs.values(), *acts.outputs.values(), acts.scores]
    assert not any(t.requires_grad or t.grad_fn is not None for t in found)
    assert all(t.is_inference() == (mode == "inference") for t in acts.outputs.values())


def test_the_check_above_catches_backpropagation(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_autograd(monkeypatch)
    model = ModelConfig(family="gcn", layers=2, hidden=4)
    with pytest.raises(Forbidden):
        train(model, synthetic(), TrainConfig(solver="adam", iters=1))
    assert train(model, synthetic(), TrainConfig(iters=2)).iterations == 2


def combinations() -> list[tuple[str, str, str]]:
    """Every family, activation and normalisation that makes a difference."""
    found = []
    for family, activation, norm in product(FAMILIES, ACTIVATIONS, NORMS):
        if (family == "sgc" and activation != "identity") or (family == "sage" and norm != "rw"):
            continue  # SGC has no activation; SAGE always takes the mean
        found.append((family, activation, norm))
    return found


@both
@pytest.mark.parametrize(("family", "activation", "norm"), combinations())
def test_every_network_learns(step: str, family: str, activation: str, norm: str) -> None:
    """Chance is a third."""
    p = make(family, activation=activation, norm=norm, dtype=torch.float32)
    _, state, losses = run(p, 8, step=step)
    assert held_out(p, state) > 0.7
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("family", ["gcnii", "resgcn", "sage"])
def test_sixteen_layers_learn_without_the_safeguard(family: str) -> None:
    p = make(family, layers=16, hidden=16, dtype=torch.float32)
    _, state, _ = run(p, 15, step="sweep")
    assert held_out(p, state) > 0.85
    assert state.slow == 1.0


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_directed_and_weighted_graphs(step: str, family: str) -> None:
    """It learns, and the direction of the edges is felt."""
    graph = directed_weighted()
    assert graph.directed
    p = make(family, graph)
    _, state, _ = run(p, 12, step=step)
    assert held_out(p, state) > 0.6
    turned = make(family, rewired(graph, graph.edge_index.flip(0), graph.edge_weight))
    assert not torch.allclose(forward(p, state.weights), forward(turned, state.weights))


def hidden_layers(p: Problem, h0: Tensor, state: TargetState) -> Tensor:
    """H_L from H_0, written out."""
    h = h0
    for index, block in enumerate(p.model.blocks[1:-1], start=1):
        t = propagate(block, p.propagation, h, h0.clone())
        z = transform(t, state.weights[f"block{index}.weight"], state.weights.get(f"block{index}.bias"))
        a = activate(z, block.activation)
        h = a if block.skip is None else h + block.skip * a
    return h


@pytest.mark.parametrize("family", DEEP)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_message_is_the_transpose_at_the_starting_weights(family: str, activation: str) -> None:
    """At identity weights a layer's regularised inverse is its transpose, on directed and weighted graphs too: the
    message for H_0 is then what backpropagation (the oracle here) would send. A concatenation, whose starting weights
    average two halves, loses (1 + 2 rho) / (1 + rho) of it in each layer."""
    p = make(family, directed_weighted(), layers=5, activation=activation)
    solver, state = start(p, step="sweep", freeze_hidden=True)
    acts = refresh(p, state, unit_spread=False)
    message = torch.randn(acts.top().shape, generator=torch.Generator().manual_seed(3)).double()
    z0 = p.inputs.matmul(state.weights["block0.weight"]) + state.weights["block0.bias"]
    h0 = activate(z0, activation).requires_grad_()
    (expected,) = torch.autograd.grad((message * hidden_layers(p, h0, state)).sum(), h0)
    rho, depth = state.fixed.settings.rho, len(p.model.blocks) - 2
    if family == "sage":
        expected = expected * ((1 + rho) / (1 + 2 * rho)) ** depth
    rule, gate = Listening(), activate_slope(h0.detach(), activation)
    acts.forget_outputs()
    solver._hidden(p, state, acts, {len(p.model.blocks) - 2: message}, rule)
    assert not acts.inputs
    assert not acts.gates, "T and gates are let go"
    torch.testing.assert_close(rule.heard, expected * gate)


class Listening(SweepStep):
    """Keeps what the encoder is told, and does nothing about it."""

    heard: Tensor

    def encoder(self, state: TargetState, index: int, block: Block, r: Tensor) -> Update:
        self.heard = r
        return Update(torch.zeros_like(state.weights["block0.weight"]), None)


def activate_slope(h: Tensor, activation: str) -> Tensor:
    """The slope of the activation where its value is ``h``."""
    slopes = {"relu": 0.0, "leaky_relu": LEAKY_SLOPE, "identity": 1.0}
    return torch.where(h > 0, 1.0, slopes[activation]).to(h)


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_multilabel_targets(step: str, family: str) -> None:
    """ROC-AUC; a constant has .5."""
    p = make(family, multilabel())
    assert held_out(p, run(p, 12, step=step)[1]) > 0.8


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_regression_targets(step: str, family: str) -> None:
    """R-squared; a constant has 0 at best. SAGE cannot represent these targets and has too few nodes to come near."""
    p = make(family, regression())
    assert held_out(p, run(p, 12, step=step)[1]) > (0.25 if family == "sage" else 0.6)


@both
def test_regression_does_not_depend_on_the_unit_of_the_targets(step: str) -> None:
    graph = regression()
    plain, scaled = (
        make("gcn", graph.replace(y=a * graph.y + b)) for a, b in ((1.0, 0.0), (1000.0, -5000.0))
    )
    first, second = (held_out(p, run(p, 20, step=step)[1]) for p in (plain, scaled))
    assert abs(first - second) < 0.1
    assert min(first, second) > 0.6


@both
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("self_loops", [True, False])
def test_isolated_nodes(step: str, family: str, self_loops: bool) -> None:
    """A third of the nodes, labelled ones among them, have no edge; the others are learnt as before."""
    graph, alone = synthetic(noise=0.8), 80
    kept = (graph.edge_index >= alone).all(0)
    p = make(family, rewired(graph, graph.edge_index[:, kept]), self_loops=self_loops)
    _, state, losses = run(p, 12, step=step)
    scores = forward(p, state.weights)
    assert bool(torch.isfinite(scores).all())
    connected = p.test_index[p.test_index >= alone]
    right = scores[connected].argmax(1) == p.y[connected]
    assert float(right.double().mean()) > 0.65
    assert losses[-1] < 0.75 * losses[0]


@both
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("self_loops", [True, False])
def test_no_edges_at_all(step: str, family: str, self_loops: bool) -> None:
    """Without loops nothing reaches GCN's and SGC's labels; then only the class shares can be learnt."""
    p = make(
        family, rewired(synthetic(noise=0.8), torch.zeros(2, 0, dtype=torch.int64)), self_loops=self_loops
    )
    _, state, losses = run(p, 8, step=step)
    assert all(bool(torch.isfinite(w).all()) for w in state.weights.values())
    if self_loops or family not in ("gcn", "sgc"):
        assert losses[-1] < 0.75 * losses[0]
        assert held_out(p, state) > 0.5
    else:
        assert losses[-1] <= losses[0]


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_absent_from_training(step: str, family: str) -> None:
    graph = synthetic()
    p = make(family, graph.replace(train_mask=graph.train_mask & (graph.y != 1)))
    _, state, _ = run(p, 12, step=step)
    scores, index = forward(p, state.weights), p.test_index[p.y[p.test_index] != 1]
    assert bool(torch.isfinite(scores).all())
    assert float((scores[index].argmax(1) == p.y[index]).double().mean()) > 0.8


@both
def test_a_network_one_unit_wide(step: str) -> None:
    p = make("gcn", hidden=1)
    assert held_out(p, run(p, 12, step=step)[1]) > 0.5


@both
def test_features_that_are_all_the_same(step: str) -> None:
    """Only degrees tell nodes apart; nothing explodes."""
    graph = synthetic()
    p = make("gcn", graph.replace(x=torch.ones(graph.num_nodes, 4)))
    _, state, losses = run(p, 30, step=step)
    assert all(bool(torch.isfinite(w).all()) for w in state.weights.values())
    assert losses[-1] < losses[0]


@both
@pytest.mark.parametrize("bias", [True, False])
def test_the_fixed_point_of_one_layer_is_the_ridge_solution(step: str, bias: bool) -> None:
    """SGC with regression targets: iterations end in what one dense solve gives, closed-form dropout included."""
    p, ridge, dropout = make("sgc", regression(), bias=bias), 0.3, 0.2
    _, state, _ = run(p, 60, step=step, ridge_output=ridge, dropout_output=dropout)
    t = p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64))[p.train_index]
    y, k = p.targets, p.train_index.numel()
    m, ybar = (t.mean(0), y.mean(0)) if bias else (torch.zeros_like(t[0]), torch.zeros_like(y[0]))
    gram = (t - m).t() @ (t - m) / k
    charge = dropout / (1 - dropout) * t.square().mean(0) + ridge * gram.diagonal().mean()
    weight = torch.linalg.solve(gram + torch.diag(charge), (t - m).t() @ (y - ybar) / k)
    torch.testing.assert_close(state.weights["block0.weight"], weight, rtol=1e-8, atol=1e-10)
    if bias:
        torch.testing.assert_close(state.weights["block0.bias"], ybar - m @ weight, rtol=1e-8, atol=1e-10)


def explode(problem: Problem, state: TargetState, value: float) -> None:
    """Weights far too large, and an output layer that is wrong about everything it knows."""
    last = f"block{len(problem.model.blocks) - 1}."
    state.weights = {n: (-value if n.startswith(last) else value) * w for n, w in state.weights.items()}


@both
@pytest.mark.parametrize("family", ["gcn", "gcnii", "sgc"])
@pytest.mark.parametrize("value", [1e4, float("inf"), float("nan")])
def test_safeguard_goes_back_and_training_recovers(step: str, family: str, value: float) -> None:
    p = make(family)
    solver, state, losses = run(p, 6, step=step)
    good, good_loss = dict(state.good), state.good_loss
    assert good_loss == min(losses)
    explode(p, state, value)
    state, info = solver.step(p, state)
    assert not info.loss <= 1.5 * losses[0], "it was wrong indeed"
    assert all(torch.equal(state.weights[name], w) for name, w in good.items())
    assert state.slow == 0.5
    assert not any(bool(v.any()) for v in state.velocity.values())
    assert state.averages == {}
    later = []
    for _ in range(8):
        state, info = solver.step(p, state)
        later.append(info.loss)
    assert later[0] == pytest.approx(good_loss), "the good weights have the loss they were remembered with"
    assert later[-1] < good_loss
    assert 0.5 < state.slow < 1.0
    assert held_out(p, state) > 0.8


def test_safeguard_slows_down_no_further_than_a_64th() -> None:
    p = make("gcn")
    solver, state, _ = run(p, 3, step="sweep")
    for _ in range(10):
        explode(p, state, float("nan"))
        state, _ = solver.step(p, state)
    assert state.slow == 1 / 64


def test_steps_that_are_too_long_are_caught() -> None:
    """The loss runs away several times; the best network is better than the first one all the same."""
    p = make("gcn", layers=6, dtype=torch.float32)
    solver, state = start(p, 25, step="sweep", step_size=30.0, ridge_hidden=1e-3, momentum=0.9)
    infos = []
    for _ in range(25):
        state, info = solver.step(p, state)
        infos.append(info)
    assert max(i.loss for i in infos) > 2 * infos[0].loss
    assert min(i.extra["slow"] for i in infos) < 0.3
    assert state.good_loss < 0.95 * infos[0].loss
    assert all(bool(torch.isfinite(w).all()) for w in state.good.values())


@both
def test_start_and_description(step: str) -> None:
    p = make("gcn", layers=4)
    solver, state = start(p, step=step)
    eye = torch.eye(12, dtype=torch.float64)
    assert torch.equal(state.weights["block1.weight"], eye)
    assert torch.equal(state.weights["block2.weight"], eye)
    assert not bool(state.weights["block3.weight"].any())
    assert bool(state.weights["block0.weight"].any())
    assert solver.describe(p) == state.fixed.settings.to_dict()
    assert solver.describe(p)["step"] == step
    assert set(STEPS) == {"sweep", "polar"}


def test_sparse_features_give_what_dense_ones_give() -> None:
    graph = synthetic()
    assert graph.x is not None
    thin = graph.x * (graph.x > 1.5)
    dense, sparse = (make("gcn", graph.replace(x=x)) for x in (thin, thin.to_sparse_csr()))
    for step in ("sweep", "polar"):
        a, b = (run(p, 4, step=step)[1].weights for p in (dense, sparse))
        for name, weight in a.items():
            torch.testing.assert_close(weight, b[name], rtol=1e-6, atol=1e-8, msg=name)


def test_citeseer_sixteen_layers() -> None:
    """Six iterations are enough."""
    graph = load("citeseer")
    result = train(ModelConfig(family="gcnii", layers=16), graph, TrainConfig(iters=6, seed=0))
    assert result.settings["step"] == "sweep"
    assert result.test_accuracy is not None
    assert result.test_accuracy >= 0.70
