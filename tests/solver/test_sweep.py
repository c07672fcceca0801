"""The sweep step's own parts: look-ahead, what the head takes, response gain, frozen layers, gauge."""

from __future__ import annotations

import pytest
import torch
from problems import DEEP, directed_weighted, held_out, make, randn_like, run, start

from gfgnn.config import ACTIVATIONS
from gfgnn.forward import forward
from gfgnn.model.blocks import Block
from gfgnn.ops.gate import Gate
from gfgnn.ops.ridge import moments
from gfgnn.solver.refresh import refresh
from gfgnn.solver.setup import response
from gfgnn.solver.sweep import SweepStep
from gfgnn.solver.target import _through_activation
from gfgnn.solver.updates import pass_down


@pytest.mark.parametrize("family", [*DEEP, "sign"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gauge_changes_no_score(family: str, activation: str) -> None:
    """Nor those of the weights the safeguard keeps; afterwards H_L has rms 1."""
    p = make(family, directed_weighted(), layers=4, activation=activation)
    _, state, _ = run(p, 4, step="sweep", ridge_hidden=0.1, step_size=1.0)
    state.weights["block0.weight"] *= 7.0
    state.weights["block0.bias"] *= 7.0
    acts = refresh(p, state, unit_spread=False)
    before = {name: w.clone() for name, w in state.weights.items()}
    scores, good = forward(p, state.weights), forward(p, state.good)
    rms = float(acts.top().square().mean().sqrt())
    assert abs(rms - 1.0) > 0.5
    moved = SweepStep().finish(p, state, rms, before)
    torch.testing.assert_close(forward(p, state.weights), scores)
    torch.testing.assert_close(forward(p, state.good), good)
    for name, w in state.weights.items():  # the velocity, their difference, is on the new scale
        torch.testing.assert_close(moved[name], w)
    rms = refresh(p, state, unit_spread=False).top().square().mean().sqrt()
    assert float(rms) == pytest.approx(1.0)


def test_the_gauge_has_nothing_to_do_where_nothing_is_hidden_or_all_is_zero() -> None:
    for p in (make("sgc"), make("gcn")):
        _, state = start(p, step="sweep")
        state.weights = {name: torch.zeros_like(w) for name, w in state.weights.items()}
        before = dict(state.weights)
        assert SweepStep().finish(p, state, 0.0, before) is before
        assert all(bool(torch.isfinite(w).all()) for w in state.weights.values())


@pytest.mark.parametrize("slow", [1.0, 0.5])
def test_momentum_looks_ahead(slow: float) -> None:
    p = make("gcn")
    _, state, _ = run(p, 3, step="sweep", momentum=0.4)
    state.slow, before = slow, dict(state.weights)
    SweepStep().start(state)
    assert any(bool(v.any()) for v in state.velocity.values())
    for name, w in state.weights.items():
        torch.testing.assert_close(w, before[name] + 0.4 * slow * state.velocity[name])


def test_without_momentum_an_iteration_forgets_the_last_change() -> None:
    p = make("gcn")
    solver, state, _ = run(p, 3, step="sweep", momentum=0.0)
    _, other, _ = run(p, 3, step="sweep", momentum=0.0)
    other.velocity = {name: v + 1.0 for name, v in other.velocity.items()}
    for s in (state, other):
        solver.step(p, s)
    assert all(torch.equal(w, other.weights[name]) for name, w in state.weights.items())


def test_the_head_passes_its_ridge_shrinkage_on_to_nobody() -> None:
    """With nothing wanted of the scores the ridge still pulls at the weights, but nothing is taken or passed down."""
    p = make("gcn")
    _, state, _ = run(p, 3, step="sweep")
    t = refresh(p, state, unit_spread=False).head
    c = t.new_full((t.size(0),), 0.5 / t.size(0))
    data = moments(t, c, torch.zeros(t.size(0), 3, dtype=torch.float64), centred=True)
    update, taken = SweepStep().head(state, "block2", data, c @ t.square(), True)
    weight = state.weights["block2.weight"]
    assert float((update.weight * weight).sum()) < -1e-3 * float(weight.square().sum()), "it shrinks"
    assert taken.bias is not None
    assert not bool(taken.weight.any())
    assert not bool(taken.bias.any())


def test_head_without_ridge_takes_what_it_changes() -> None:
    p = make("gcn")
    _, state, _ = run(p, 3, step="sweep", ridge_output=0.0, dropout_output=0.0)
    t = refresh(p, state, unit_spread=False).head
    c = t.new_full((t.size(0),), 0.5 / t.size(0))
    data = moments(t, c, c[:, None] * randn_like(t[:, :3]), centred=True)
    update, taken = SweepStep().head(state, "block2", data, c @ t.square(), True)
    torch.testing.assert_close(update.weight, taken.weight)
    assert bool(update.weight.any())


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage", "sign"])
def test_frozen_hidden_layers_stay_as_they_are(family: str) -> None:
    """Bit for bit up to the gauge's factor of the biases, which are zero; encoder and output learn nevertheless."""
    p = make(family, layers=4)
    _, fresh = start(p, step="sweep", freeze_hidden=True)
    _, state, _ = run(p, 8, step="sweep", freeze_hidden=True)
    last = f"block{len(p.model.blocks) - 1}."
    for name, w in state.weights.items():
        frozen = not name.startswith(("block0.", last))
        assert torch.equal(w, fresh.weights[name]) == frozen, name
    assert held_out(p, state) > 0.75


@pytest.mark.parametrize("family", DEEP)
def test_the_encoder_makes_up_for_what_is_lost_on_the_way(family: str) -> None:
    """Its update is the ridge step for the shift divided by the response."""
    p = make(family, layers=5)
    _, state, _ = run(p, 2, step="sweep")
    fixed = state.fixed
    assert fixed.gain == pytest.approx(1.0 / response(p))
    r = fixed.masses[0][:, None] * randn_like(refresh(p, state, unit_spread=False).top())
    update = SweepStep().encoder(state, 0, p.model.blocks[0], r.clone())
    t, c = p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64)), fixed.masses[0]
    m = (c @ t) / c.sum()
    gram = (t - m).t() @ (c[:, None] * (t - m)) + torch.diag(fixed.encoder.damping)
    rhs = (t - m).t() @ (r / response(p)) - fixed.encoder.ridge[:, None] * state.weights["block0.weight"]
    torch.testing.assert_close(update.weight, torch.linalg.solve(gram, rhs))


def test_passing_down_is_exact_at_the_identity() -> None:
    _, state = start(make("gcn"), step="sweep", rho=0.7)
    eye = torch.eye(12, dtype=torch.float64)
    torch.testing.assert_close(SweepStep().inverse(state, eye, 5 * eye), eye)
    w = eye + 0.1 * randn_like(eye)
    torch.testing.assert_close(SweepStep().inverse(state, w, eye), 1.7 * pass_down(w, 0.7, relative=False))


@pytest.mark.parametrize(("activation", "slope"), [("relu", 0.0), ("leaky_relu", 0.01), ("identity", 1.0)])
@pytest.mark.parametrize("skip", [None, 0.5])
def test_the_gate(activation: str, slope: float, skip: float | None) -> None:
    """The slope of the activation at Z."""
    block = Block(propagate="graph", in_channels=4, out_channels=4, activation=activation, skip=skip)
    z, message = (randn_like(torch.zeros(9, 4), seed=s) for s in range(2))
    gate = None if activation == "identity" else Gate.of(z)
    expected = torch.where(z > 0, message, slope * message) * (1.0 if skip is None else skip)
    torch.testing.assert_close(_through_activation(block, message, gate, in_place=False), expected)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sign"])
def test_scales_do_not_run_away(family: str) -> None:
    """Forty iterations: the encoder's weights stay within a factor of those after ten."""
    p = make(family, dtype=torch.float32)
    early, late = (run(p, iters, step="sweep")[1].weights["block0.weight"].norm() for iters in (10, 40))
    assert float(late) < 3 * float(early)
