"""Every setting of ADMM does what the documentation says, against its formula written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from problems import make, synthetic
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import AdmmConfig, CommunityConfig, PdadmmConfig
from gfgnn.model.blocks import activate
from gfgnn.problem import Problem
from gfgnn.solver.admm import AdmmSolver, blocks
from gfgnn.solver.admm.fit import activated, dual, fitted
from gfgnn.solver.admm.penalties import bound
from gfgnn.solver.admm.state import AdmmState

PLAIN = AdmmConfig(
    nu=0.7, rho=0.4, prox=0.0, ridge_encoder=0.0, ridge_hidden=0.0, ridge_output=0.0, dropout_encoder=0.0,
    dropout_output=0.0,
)  # fmt: skip


def started(p: Problem, config: AdmmConfig, sweeps: int = 8) -> tuple[AdmmSolver, AdmmState]:
    solver = AdmmSolver(config)
    state = solver.init(p, torch.Generator().manual_seed(0))
    for _ in range(sweeps):
        state, _ = solver.step(p, state)
    return solver, state


@pytest.mark.parametrize(
    ("name", "strength", "index"),
    [(name, x, i) for name, x in (("none", 0.0), ("ridge", 0.5), ("prox", 2.0)) for i in range(3)]
    + [("dropout", 0.6, 0), ("dropout", 0.6, 2)],  # hidden blocks have none
)
def test_what_weights_are_charged(name: str, strength: float, index: int) -> None:
    """After its update ``T'C(z - T W - b) = (R (W - W_ref) + prox kappa (W - W_before))``, R of ridge and dropout."""
    place = ("encoder", "hidden", "output")[index]
    p = make(layers=3, hidden=6)
    setting = {"prox": strength} if name == "prox" else {f"{name}_{place}": strength} if strength else {}
    config = replace(PLAIN, **setting)
    _, state = started(p, config)
    before = dict(state.weights)
    if index == 2:
        z = state.scores
        assert z is not None
        blocks.update_output(p, state, config)
        rows = p.train_index
        c = torch.full((rows.numel(),), 0.5 / p.facts.num_train, dtype=torch.float64)
    else:
        z, rows, c = state.z[index], torch.arange(p.y.size(0)), state.fixed.masses[index]
        blocks.update_hidden(p, state, index, config)
    eye = torch.eye(p.inputs.fan_in, dtype=torch.float64)
    t = (p.inputs.matmul(eye) if index == 0 else p.propagation.apply(state.p[index - 1]))[rows]
    weight, bias = state.layer(index)
    assert bias is not None
    centred = t - (c @ t) / c.sum()
    kappa = float((c @ centred.square()).mean())
    charge = strength * kappa if name == "ridge" else 0.0
    if name == "dropout":
        charge = strength / (1 - strength) * (c @ t.square())[:, None]
    wanted = charge * state.offset(index)
    if name == "prox":
        wanted = strength * kappa * (weight - before[f"block{index}.weight"])
    left = t.t() @ (c[:, None] * (z - t @ weight - bias))
    torch.testing.assert_close(left, wanted + torch.zeros_like(left), rtol=1e-6, atol=1e-9)
    assert float((c[:, None] * (z - t @ weight - bias)).sum(0).abs().max()) < 1e-9
    assert name == "none" or float(left.abs().max()) > 1e-6


@pytest.mark.parametrize("penalties", ["fixed", "convergent"])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "identity"])
def test_z_is_the_best_there_is(penalties: str, activation: str) -> None:
    """With the proximal term that the theorem asks for, and without; against a fine table of values."""
    p = make(layers=3, hidden=4, activation=activation)
    config = replace(PLAIN, penalties=penalties)
    _, state = started(p, config)
    old, q = state.z[1], state.q[1]
    blocks.update_hidden(p, state, 1, config)
    a, near = fitted(p, 1, *state.layer(1), state.p), float(penalties == "convergent")

    def value(z: Tensor) -> Tensor:
        f = activate(z, p.model.blocks[1].activation)
        return (z - a) ** 2 + (q - f) ** 2 + near * (z - old) ** 2

    reach = float(torch.stack([a, q, old]).abs().max()) + 0.1
    best = torch.stack(
        [value(torch.full_like(a, x)) for x in torch.linspace(-reach, reach, 801).tolist()]
    ).amin(0)
    assert bool((value(state.z[1]) <= best + 1e-12).all())


@pytest.mark.parametrize("relaxation", [0.5, 1.0, 1.7])
def test_over_relaxation_moves_q_towards_a_mixture(relaxation: float) -> None:
    """q takes ``a p + (1 - a) q_before`` in place of p (Boyd et al. 2011, section 3.4.3)."""
    p, config = make(layers=3, hidden=6), replace(PLAIN, over_relaxation=relaxation)
    _, state = started(p, config)
    u, q = dual(p, state, 1), state.q[1].clone()
    blocks.update_hidden(p, state, 1, config)
    mixture = relaxation * state.p[1] + (1 - relaxation) * q
    f = activated(p, 1, state.z[1])
    torch.testing.assert_close(state.q[1], (0.7 * f + 0.4 * mixture + u) / (0.7 + 0.4))


@pytest.mark.parametrize(("sweep", "times"), [("backward", 4.0), ("backward-forward", 8.0)])
@pytest.mark.parametrize(("slope", "steepest"), [(0.3, 1.0), (-2.0, 2.0)])
def test_the_bound_of_the_theorem(sweep: str, times: float, slope: float, steepest: float) -> None:
    p = make(layers=3, activation="leaky_relu")
    steep = [replace(block, slope=slope) for block in p.model.blocks]
    config = replace(PLAIN, sweep=sweep)
    assert bound(config, steep) == pytest.approx(times * config.nu * steepest**2)


def test_the_output_starts_at_zero_and_hidden_blocks_at_the_identity() -> None:
    _, state = started(make(graph=synthetic(), layers=3, hidden=6), PLAIN, sweeps=0)
    assert not bool(state.weights["block2.weight"].any())
    assert torch.equal(state.weights["block1.weight"], torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["nu", "rho"])
@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan"), "1", True])
def test_penalties_are_finite_numbers(name: str, value: Any) -> None:
    for config in (AdmmConfig, PdadmmConfig, CommunityConfig):
        with pytest.raises(InputError, match=f"{name} must be a .*number.*; got"):
            config(**{name: value})
