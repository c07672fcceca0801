"""pdADMM-G: every step against the augmented Lagrangian it is to lower, and the solver as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import held_out, make, multilabel, randn_like, synthetic
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, PdadmmConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.model.blocks import activate
from gfgnn.problem import Problem
from gfgnn.solver.head import loss_sum
from gfgnn.solver.pdadmm import PdadmmSolver, phases
from gfgnn.solver.pdadmm import state as pdadmm_state
from gfgnn.solver.pdadmm.measures import lagrangian
from gfgnn.solver.pdadmm.state import PdadmmState
from gfgnn.solver.pdadmm.updates import Grid, backtracked, copy_step, hidden_step, square, weight_step
from gfgnn.train import train

CONFIG = PdadmmConfig(nu=0.3, rho=0.2, nodes="all")
FINE = {"grid_low": -1.0, "grid_high": 2.0, "grid_points": 301}


def started(
    p: Problem, config: PdadmmConfig = CONFIG, steps: int = 2, seed: int = 0
) -> tuple[PdadmmSolver, PdadmmState]:
    solver = PdadmmSolver(config)
    state = solver.init(p, torch.Generator().manual_seed(seed))
    for _ in range(steps):
        state, _ = solver.step(p, state)
    return solver, state


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([1e-3, 0.1, 3.0]), st.sampled_from([1e-3, 0.1, 3.0]),
    st.sampled_from([0.0, 0.05]), st.sampled_from(["relu", "leaky_relu", "identity"]),
    st.sampled_from(["all", "train"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_no_phase_raises_the_lagrangian(
    seed: int,
    mlp: int,
    nu: float,
    rho: float,
    ridge: float,
    activation: str,
    nodes: str,
    quantise: bool,
    q: bool,
) -> None:
    """Each phase updates all layers from what the phase before left; the duals stay as they were."""
    p = make("sign", layers=2, hidden=6, mlp_layers=mlp, activation=activation)
    config = PdadmmConfig(
        nu=nu, rho=rho, ridge=ridge, nodes=nodes, quantise=quantise, quantise_q=q, init_std=0.4, **FINE
    )
    _, state = started(p, config, steps=seed % 4, seed=seed)
    for index in state.u:
        state.u[index] = state.u[index] + 0.1 * rho * randn_like(state.u[index], seed)
    values = [lagrangian(p, state, config)]
    for name, phase in (
        ("p", lambda: phases.update_p(state, config)),
        ("W", lambda: phases.update_weights(state, config)),
        ("b", lambda: phases.update_biases(state)),
        ("z", lambda: phases.update_z(p, state, config)),
        ("q", lambda: phases.update_q(p, state, config)),
    ):
        phase()
        values.append(lagrangian(p, state, config))
        assert values[-1] <= values[-2] + 1e-9 * max(1.0, abs(values[-2])), (name, values)
    assert values[-1] < values[0]


def gradient(p: Problem, state: PdadmmState, config: PdadmmConfig, kind: str, index: int) -> Tensor:
    """Of the augmented Lagrangian in q or b, written out once more with autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        tables = {name: [v.clone() for v in getattr(state, name).values()] for name in ("z", "q", "p", "u")}
        w = {name: v.clone() for name, v in state.weights.items()}
        variable = tables["q"][index] if kind == "q" else w[f"block{index}.bias"]
        variable.requires_grad_()
        below = [p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64)), *tables["p"]]
        total = torch.zeros((), dtype=torch.float64)
        for level, z in enumerate(tables["z"]):
            fit = below[level] @ w[f"block{level}.weight"] + w[f"block{level}.bias"]
            total = total + config.nu / 2 * (z - fit).square().sum()
        for level, q in enumerate(tables["q"]):
            f, apart = activate(tables["z"][level], p.model.blocks[level].activation), tables["p"][level] - q
            total = total + config.nu / 2 * (q - f).square().sum()
            total = total + (tables["u"][level] * apart + config.rho / 2 * apart.square()).sum()
        return torch.autograd.grad(total, variable)[0]


def test_q_and_b_are_optimal() -> None:
    p = make("sign", layers=2, hidden=6, mlp_layers=4)
    _, state = started(p, steps=3)
    phases.update_q(p, state, CONFIG)
    for index in range(3):
        assert float(gradient(p, state, CONFIG, "q", index).abs().max()) < 1e-12
    phases.update_p(state, CONFIG)
    phases.update_weights(state, CONFIG)
    phases.update_biases(state)
    for index in range(4):
        assert float(gradient(p, state, CONFIG, "b", index).abs().max()) < 1e-11


@settings(max_examples=25, deadline=None)
@given(*[st.floats(-4, 4)] * 3, st.sampled_from([0.0, 0.01, 1.0]))
def test_hidden_z_is_optimal(a: float, q: float, old: float, slope: float) -> None:
    """Against a fine table of values."""

    def value(z: Tensor) -> Tensor:
        f = torch.where(z > 0, z, slope * z)
        return (z - a) ** 2 + (q - f) ** 2 + (z - old) ** 2

    z = hidden_step(*(torch.tensor([x], dtype=torch.float64) for x in (a, q, old)), slope)
    assert float(value(z)) <= float(value(torch.linspace(-6, 6, 4001, dtype=torch.float64)).min()) + 1e-12


def test_the_output_z_is_optimal() -> None:
    p = make("sign", layers=2, hidden=6)
    config = replace(CONFIG, scores_steps=400)
    _, state = started(p, config)
    phases.update_z(p, state, config)
    last, rows = state.active[-1], state.labelled
    z, fit = state.z[last][rows], state.fit[last][rows]

    def value(z: Tensor) -> float:
        return loss_sum("multiclass", z, p.targets) + config.nu / 2 * square(z - fit)

    assert all(value(z) <= value(z + 1e-3 * randn_like(z, seed)) for seed in range(5))
    others = torch.ones(p.y.numel(), dtype=torch.bool).index_fill_(0, rows, False)
    assert torch.equal(state.z[last][others], state.fit[last][others])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-4, 1e-2, 10.0]),
    st.sampled_from([1.5, 2.0, 7.0]),
    st.booleans(),
)
def test_backtracking_ends_below_the_majoriser(
    seed: int, start: float, factor: float, quantise: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q, u = (torch.randn(7, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    weight, z = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (4, 7))
    grid = Grid(-1.0, 2.0, 31) if quantise else None
    p = p if grid is None else grid.nearest(p)

    def phi(p: Tensor) -> float:
        apart = p - q
        return 0.35 * square(p @ weight - z) + float((u * apart).sum()) + 0.05 * square(apart)

    new = copy_step(p, q, u, p @ weight - z, weight, nu=0.7, rho=0.1, start=start, factor=factor, grid=grid)
    assert phi(new) <= phi(p) + 1e-12
    if grid is not None:
        assert torch.equal(grid.nearest(new), new)
        return
    slope = 0.7 * (p @ weight - z) @ weight.t() + u + 0.1 * (p - q)
    tau = backtracked(0.7 * square(slope @ weight) + 0.1 * square(slope), square(slope), start, factor)
    torch.testing.assert_close(new, p - slope / tau)
    assert phi(new) <= phi(p) - square(slope) / (2 * tau) + 1e-12
    if tau > start:  # the trial before was above it
        before = p - slope / (tau / factor)
        assert phi(before) > phi(p) - square(slope) / (2 * tau / factor) - 1e-12


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_backtracking_ends_whatever_comes(value: float) -> None:
    zeros = torch.zeros(3, 2, dtype=torch.float64)
    assert backtracked(value, value, 1e-6, 2.0) > 0
    assert weight_step(zeros, zeros, nu=1.0, ridge=0.0, start=1.0, factor=2.0) == 1.0


@pytest.mark.parametrize("q", [False, True])
def test_quantised_copies_lie_on_the_grid(q: bool) -> None:
    p = make("sign", layers=2, hidden=8)
    _, state = started(p, replace(CONFIG, quantise=True, quantise_q=q), steps=5)
    for found in (state.p, *([state.q] if q else [])):
        values = torch.cat([v.flatten() for v in found.values()])
        assert set(values.unique().tolist()) <= set(range(-1, 21))
    fine = replace(CONFIG, quantise=True, quantise_q=q, **FINE)  # type: ignore[arg-type]
    assert held_out(p, started(p, fine, steps=60)[1]) > 0.7  # type: ignore[arg-type]


def test_the_dual_is_what_q_leaves() -> None:
    """Lemma of the paper: after an iteration ``u = nu (q - f(z))``; and what the first layer fits is kept exactly."""
    p = make("sign", layers=2, hidden=6, mlp_layers=4)
    _, state = started(p, steps=20)
    for index, u in state.u.items():
        torch.testing.assert_close(u, CONFIG.nu * (state.q[index] - torch.relu(state.z[index])))
    weight, bias = state.layer(0)
    assert bias is not None
    torch.testing.assert_close(state.fit[0], p.inputs.matmul(weight) + bias)
    scores = forward(p, state.weights)
    torch.testing.assert_close(phases.network_scores(p, state), scores[p.train_index])


@pytest.mark.parametrize("nodes", ["all", "train"])
@pytest.mark.parametrize(("mlp", "grow"), [(2, None), (4, None), (6, "2,4@40,6@45")])
def test_it_learns(nodes: str, mlp: int, grow: str | None) -> None:
    config = PdadmmConfig(nodes=nodes, grow=grow)
    result = train(
        ModelConfig(family="sign", layers=2, hidden=16, mlp_layers=mlp), synthetic(),
        TrainConfig(solver="pdadmm-g", iters=80, eval_every=10, pdadmm=config),
    )  # fmt: skip
    assert result.test_accuracy > 0.7
    last = result.history[-1]["extra"]
    assert {"primal", "dual", "lagrangian"} <= set(last)
    assert ("auxiliary_test" in last) == (nodes == "all")
    assert last["layers"] == mlp
    assert last["primal"] < 0.5 * max(line["extra"]["primal"] for line in result.history)


def test_growth_does_not_change_the_network() -> None:
    p = make("sign", layers=2, hidden=8, mlp_layers=5)
    config = replace(CONFIG, grow="2,5@4")
    solver, state = started(p, config, steps=3)
    scores = forward(p, state.weights)
    assert state.active == (0, 4)
    state.active = tuple(range(5))
    phases.embed(p, state, config)
    torch.testing.assert_close(state.fit[4], scores)
    assert all(float(u.abs().max()) == 0 for u in state.u.values())
    state, info = solver.step(p, state)
    assert info.extra["layers"] == 5


def test_penalties_rise_when_the_loss_stalls() -> None:
    p = make("sign", multilabel(), layers=2, hidden=6)
    _, state = started(
        p, replace(CONFIG, nu=1e-5, rho=1e-5, first_curvature=20.0, raise_penalties=True), steps=6
    )
    assert state.nu == state.rho == pytest.approx(1e-3)
    for _ in range(8):
        state, _ = PdadmmSolver(replace(CONFIG, raise_penalties=True)).step(p, state)
    assert state.nu <= 1.0


def test_the_multilayer_perceptron_of_sign() -> None:
    assert len(make("sign").model.blocks) == 3
    blocks = make("sign", layers=2, mlp_layers=7).model.blocks
    assert [block.propagate for block in blocks] == ["hops", *["none"] * 6]
    with pytest.raises(InputError, match="mlp_layers"):
        ModelConfig(family="sign", mlp_layers=1)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ({"family": "gcn"}, {}, "family sign"),
        ({"family": "sgc"}, {}, "family sign"),
        ({"family": "sign"}, {"parts": 2}, "one device"),
        ({"family": "sign"}, {"stages": 2}, "one device"),
        ({"family": "sign"}, {"pdadmm": PdadmmConfig(grow="2,5@10")}, "grow must end"),
        (
            {"family": "sign", "activation": "leaky_relu"},
            {"pdadmm": PdadmmConfig(grow="2,3@10")},
            "leaky_relu",
        ),
    ],
)
def test_what_it_cannot_do(model: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(ModelConfig(layers=2, **model), synthetic(), TrainConfig(solver="pdadmm-g", **changes))


@pytest.mark.parametrize(
    "wrong",
    [
        {"nu": 0.0}, {"rho": -1.0}, {"first_curvature": 0.0}, {"backtrack": 1.0}, {"nodes": "some"}, {"ridge": -1.0},
        {"quantise": 1}, {"grid_points": 1}, {"grid_high": -1.0}, {"grow": "5,2@10"}, {"grow": "2@5"}, {"grow": "x"},
        {"grow": ""}, {"grow": "2,5"},
    ],
)  # fmt: skip
def test_settings_check_themselves(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        PdadmmConfig(**wrong)


def test_a_ridge_is_part_of_the_step_of_the_weights() -> None:
    """The step goes along the gradient of the Lagrangian, from the formula; and starting weights have the spread
    that was asked for."""
    p, config = make("sign", layers=2, hidden=6), replace(CONFIG, ridge=3.0, init_std=2.0)
    _, state = started(p, config, steps=0)
    weight, bias = state.layer(2)
    assert float(state.weights["block0.weight"].std()) == pytest.approx(2.0, rel=0.2)
    state.z[2] = state.z[2] + randn_like(state.z[2])
    slope = config.nu * state.p[1].t() @ (state.p[1] @ weight + bias - state.z[2]) + 3.0 * weight
    phases.update_weights(state, config)
    step = weight - state.weights["block2.weight"]
    torch.testing.assert_close(step / step.norm(), slope / slope.norm())


def test_reported_residuals() -> None:
    p = make("sign", layers=2, hidden=6)
    solver, state = started(p, CONFIG)
    before = dict(state.q)
    state, info = solver.step(p, state)
    moved = sum(square(state.q[index] - old) for index, old in before.items())
    apart = sum(square(state.p[index] - q) for index, q in state.q.items())
    assert info.extra["dual"] == pytest.approx(CONFIG.rho * moved**0.5)
    assert info.extra["primal"] == pytest.approx(apart**0.5)


def test_the_loss_takes_as_many_steps_as_asked() -> None:
    p = make("sign", layers=2, hidden=6)
    found = []
    for steps in (1, 400):
        _, state = started(p, replace(CONFIG, scores_steps=steps), steps=0)
        phases.update_z(p, state, replace(CONFIG, scores_steps=steps))
        found.append(state.z[2][state.labelled])
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def test_growth_sets_penalties_back() -> None:
    p, config = make("sign", layers=2, hidden=6, mlp_layers=4), replace(CONFIG, grow="2,4@4")
    solver, state = started(p, config, steps=3)
    state.nu = state.rho = 1.0
    state, info = solver.step(p, state)
    assert (info.extra["nu"], info.extra["rho"]) == (CONFIG.nu, CONFIG.rho)
    assert len(state.losses) == 1


def test_penalties_wait_for_a_second_stalled_loss() -> None:
    p, config = make("sign", layers=2, hidden=6), replace(CONFIG, raise_penalties=True)
    for losses, factor in (
        ([5.0, 4.0, 3.0, 2.0], 1.0),
        ([5.0, 4.0, 3.0, None], 1.0),
        ([5.0, 4.0, None, None], 2.0),
    ):
        solver, state = started(p, config, steps=0)
        now = loss_sum("multiclass", phases.network_scores(p, state), p.targets) / p.facts.num_train
        state.losses = [now if x is None else now + x for x in losses]
        solver.step(p, state)
        assert (state.nu > CONFIG.nu) == (factor > 1), losses


def test_rows_of_propagated_features_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit vector for every labelled node at once would be an array of nodes times labels."""
    p, widths = make("sign", layers=2), []
    adjoint = type(p.inputs).adjoint

    def watched(self: Any, r: Tensor) -> Tensor:
        widths.append(r.size(1))
        return adjoint(self, r)

    monkeypatch.setattr(type(p.inputs), "adjoint", watched)
    monkeypatch.setattr(pdadmm_state, "ROWS", 50)
    index = torch.arange(p.y.size(0)).flip(0)[:120]
    found = pdadmm_state.rows_of(p.inputs, index, p.y.size(0), p.dtype)
    assert widths == [50, 50, 20]
    table = p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=p.dtype))
    torch.testing.assert_close(found.values, table[index])
