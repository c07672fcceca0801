"""The polar step's own parts: sizes, running means, whitening, decay, frozen layers, spread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import DEEP, directed_weighted, held_out, make, randn_like, run, start
from torch import Tensor

from gfgnn.ops.ridge import moments
from gfgnn.problem import Problem
from gfgnn.solver.polar import PolarStep
from gfgnn.solver.refresh import refresh
from gfgnn.solver.state import TargetState, Update
from gfgnn.solver.updates import head_update, pass_down

#: Nothing but the whitened step: no ridge, no damping, no averaging.
BARE: dict[str, Any] = {
    "step": "polar", "ridge_hidden": 0.0, "ridge_encoder": 0.0, "prox": 1e-9, "momentum": 0.0,
}  # fmt: skip


def bare(p: Problem, **settings: Any) -> TargetState:
    """A state after two iterations of 10, about to update in the third."""
    _, state, _ = run(p, 2, **{**BARE, **settings})
    object.__setattr__(state.fixed, "horizon", 10)
    object.__setattr__(state.fixed.settings, "floor", 1e-9)
    state.averages, state.averaged, state.iteration = {}, 1, 3
    return state


def weighted_second_moment(change: Tensor, c: Tensor) -> Tensor:
    return change.t() @ (c[:, None] * change) / c.sum()


def effect(t: Tensor, update: Update) -> Tensor:
    return t @ update.weight + (0.0 if update.bias is None else update.bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", ["hidden", "encoder"])
def test_every_direction_moves_by_the_planned_size(bias: bool, layer: str) -> None:
    """The change of Z over the weighted nodes is white with rms step * (1 - t/T), bias or not."""
    p = make("gcn", directed_weighted(), layers=4, hidden=5, bias=bias)
    state, rule = bare(p, step_size=0.2), PolarStep()
    acts = refresh(p, state, unit_spread=True)
    index = 1 if layer == "hidden" else 0
    c, block = state.fixed.masses[index], p.model.blocks[index]
    r = c[:, None] * randn_like(acts.top())
    if layer == "hidden":
        t = acts.inputs[1]
        update = rule.hidden(state, "block1", block, moments(t, c, r, centred=bias))
    else:
        t = p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64))
        update = rule.encoder(state, 0, block, r)
    size = 0.2 * (1 - 3 / 10)
    second = weighted_second_moment(effect(t, update), c)
    torch.testing.assert_close(second, size**2 * torch.eye(5, dtype=torch.float64), rtol=1e-4, atol=1e-6)
    assert (update.bias is None) == (not bias)
    assert float((r * effect(t, update)).sum()) > 0


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_size_of_the_message_does_not_matter(scale: float) -> None:
    p = make("gcn", layers=4, hidden=5)
    updates = []
    for factor in (1.0, scale):
        state = bare(p)
        acts = refresh(p, state, unit_spread=True)
        c = state.fixed.masses[1]
        r = factor * c[:, None] * randn_like(acts.top())
        data = moments(acts.inputs[1], c, r, centred=True)
        updates.append(PolarStep().hidden(state, "block1", p.model.blocks[1], data))
    torch.testing.assert_close(updates[0].weight, updates[1].weight)


def test_sizes_fall_linearly_to_zero() -> None:
    _, state = start(make("gcn"), iters=8, step="polar", step_size=0.4)
    sizes = []
    for state.iteration in range(1, 11):
        sizes.append(PolarStep()._size(state))
    assert sizes == pytest.approx([0.4 * (1 - t / 8) for t in range(1, 9)] + [0.0, 0.0])


def test_the_last_iteration_only_rescales_hidden_layers() -> None:
    p = make("gcn", layers=4)
    solver, state, _ = run(p, 7, step="polar")
    object.__setattr__(state.fixed, "horizon", 8)
    before = {name: w.clone() for name, w in state.weights.items()}
    solver.step(p, state)
    for name in ("block0.weight", "block1.weight", "block2.weight"):
        assert_columns_parallel(state.weights[name], before[name])
    assert not torch.allclose(state.weights["block3.weight"], before["block3.weight"])


def assert_columns_parallel(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a / a.norm(dim=0), b / b.norm(dim=0))


@pytest.mark.parametrize("family", [*DEEP, "sign"])
def test_frozen_hidden_layers_are_only_rescaled(family: str) -> None:
    p = make(family, layers=4)
    _, fresh = start(p, step="polar", freeze_hidden=True)
    _, state, _ = run(p, 8, step="polar", freeze_hidden=True)
    for index, block in enumerate(p.model.blocks[1:-1], start=1):
        assert_columns_parallel(state.weights[f"block{index}.weight"], fresh.weights[f"block{index}.weight"])
        if block.bias:
            assert not bool(state.weights[f"block{index}.bias"].any())
    assert not torch.allclose(state.weights["block0.weight"], fresh.weights["block0.weight"])
    assert held_out(p, state) > 0.75


def test_running_means_are_without_bias_from_the_start() -> None:
    """A constant is its own mean from the first iteration on; later values count p times less for each iteration."""
    _, state = start(make("gcn"), step="polar", momentum=0.6)
    rule, value = PolarStep(), torch.tensor([2.0, -3.0], dtype=torch.float64)
    for _ in range(3):
        rule.start(state)
        torch.testing.assert_close(rule._average(state, "x", value), value)
    rule.start(state)
    expected = (0.4 * 5.0 + value * 0.4 * (0.6 + 0.6**2 + 0.6**3)) / (1 - 0.6**4)
    torch.testing.assert_close(rule._average(state, "x", torch.full_like(value, 5.0)), expected)


def test_without_a_message_weights_decay_to_their_reference() -> None:
    p = make("gcn", layers=4)
    _, state, _ = run(p, 4, step="polar", ridge_hidden=0.5, step_size=0.3)
    state.averages, state.averaged, state.iteration = {}, 1, 0
    acts = refresh(p, state, unit_spread=True)
    c = state.fixed.masses[1]
    data = moments(acts.inputs[1], c, torch.zeros_like(acts.top()), centred=True)
    update = PolarStep().hidden(state, "block1", p.model.blocks[1], data)
    offset = state.weights["block1.weight"] - torch.eye(12, dtype=torch.float64)
    assert float(offset.norm()) > 0.1
    damped = data.gram + (0.5 + state.fixed.settings.prox) * data.scale * torch.eye(12, dtype=torch.float64)
    expected = -0.3 * 0.5 * data.scale * torch.linalg.solve(damped, offset)
    torch.testing.assert_close(update.weight, expected)
    assert float((offset + update.weight).norm()) < float(offset.norm())


def test_the_head_moves_in_heavy_ball_momentum() -> None:
    p = make("gcn")
    _, state, _ = run(p, 3, step="polar", momentum=0.3)
    t = refresh(p, state, unit_spread=True).head
    c = t.new_full((t.size(0),), 0.5 / t.size(0))
    data = moments(t, c, c[:, None] * randn_like(t[:, :3]), centred=True)
    settings, weight = state.fixed.settings, state.weights["block2.weight"]
    newton = head_update(
        data, c @ t.square(), weight, ridge=settings.ridge_output, dropout=0.0, prox=settings.prox,
        gain=settings.head_gain, bias=True,
    )  # fmt: skip
    update, taken = PolarStep().head(state, "block2", data, c @ t.square(), True)
    torch.testing.assert_close(update.weight, 0.7 * newton.weight + 0.3 * state.velocity["block2.weight"])
    assert newton.bias is not None
    torch.testing.assert_close(update.bias, 0.7 * newton.bias + 0.3 * state.velocity["block2.bias"])
    assert torch.equal(taken.weight, update.weight)


def test_passing_down_uses_the_new_weights_and_their_scale() -> None:
    _, state = start(make("gcn"), step="polar", rho=2.0)
    new = randn_like(torch.zeros(12, 12))
    inverse = PolarStep().inverse(state, torch.zeros_like(new), new)
    torch.testing.assert_close(inverse, pass_down(new, 2.0, relative=True))
    torch.testing.assert_close(PolarStep().inverse(state, new, 10 * new), inverse / 10)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage"])
def test_hidden_scales_do_not_drift(family: str) -> None:
    """Long steps for 40 iterations: unit spread keeps the hidden weights where they started."""
    p = make(family, layers=5, dtype=torch.float32)
    _, state, losses = run(p, 40, step="polar", step_size=0.3)
    refresh(p, state, unit_spread=True)
    _, fresh = start(p, step="polar")
    refresh(p, fresh, unit_spread=True)
    for index in range(1, len(p.model.blocks) - 1):
        name = f"block{index}.weight"
        assert float(state.weights[name].norm()) < 5 * float(fresh.weights[name].norm()), name
    assert losses[-1] < 0.3 * losses[0]


def test_trained_layers_fit_better_than_frozen_ones() -> None:
    p = make("gcn", layers=5)
    trained, frozen = (run(p, 20, step="polar", freeze_hidden=f)[2][-1] for f in (False, True))
    assert trained < 0.85 * frozen
