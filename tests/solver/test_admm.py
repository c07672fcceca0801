"""ADMM: every update against the augmented Lagrangian it is to minimise, and the solver as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import directed_weighted, held_out, make, multilabel, regression, synthetic
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import AdmmConfig, ModelConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.metrics import score
from gfgnn.model.blocks import activate
from gfgnn.problem import Problem
from gfgnn.solver.admm import AdmmSolver
from gfgnn.solver.admm.fit import activated, dual, fitted, weighted_square
from gfgnn.solver.admm.measures import auxiliary_scores
from gfgnn.solver.admm.penalties import balanced, bound
from gfgnn.solver.admm.state import AdmmState
from gfgnn.solver.head import CURVATURE, loss_prox, loss_sum
from gfgnn.train import train

EXACT = AdmmConfig(
    nu=0.7, rho=0.4, prox=0.0, ridge_encoder=0.0, ridge_hidden=0.0, ridge_output=0.0, dropout_encoder=0.0,
    dropout_output=0.0,
)  # fmt: skip


def started(
    p: Problem, config: AdmmConfig = EXACT, sweeps: int = 2, seed: int = 0
) -> tuple[AdmmSolver, AdmmState]:
    """A solver and a state in which nothing is at rest."""
    solver = AdmmSolver(config)
    state = solver.init(p, torch.Generator().manual_seed(seed))
    for _ in range(sweeps):
        state, _ = solver.step(p, state)
    return solver, state


def lagrangian(p: Problem, state: AdmmState) -> float:
    """The augmented Lagrangian, without the ridges, written out."""
    c, last, nu = CURVATURE[p.model.task] / p.facts.num_train, len(p.model.blocks) - 1, state.nu
    misfit = state.scores - fitted(p, last, *state.layer(last), state.p)[p.train_index]
    value = loss_sum(p.model.task, state.scores, p.targets) / p.facts.num_train
    value += nu / 2 * c * float(misfit.square().sum())
    for index, z in state.z.items():
        c, apart = state.fixed.masses[index], state.p[index] - state.q[index]
        value += nu / 2 * weighted_square(z - fitted(p, index, *state.layer(index), state.p), c)
        value += nu / 2 * weighted_square(state.q[index] - activated(p, index, z), c)
        value += state.rho / 2 * weighted_square(apart, c)
        value += float((c[:, None] * dual(p, state, index) * apart).sum())
    return value


def held(p: Problem, state: AdmmState, duals: list[Tensor]) -> float:
    """The augmented Lagrangian with given duals, in place of those that q and z imply."""
    value = lagrangian(p, state)
    for index, u in enumerate(duals):
        c, apart = state.fixed.masses[index], state.p[index] - state.q[index]
        value += float((c[:, None] * (u - dual(p, state, index)) * apart).sum())
    return value


def copied(state: AdmmState) -> AdmmState:
    return replace(
        state,
        weights=dict(state.weights),
        z=dict(state.z),
        q={i: q.clone() for i, q in state.q.items()},
        p=dict(state.p),
    )


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["gcn", "sign"]), st.booleans(), st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from(["relu", "leaky_relu", "identity"]),
)  # fmt: skip
def test_no_update_raises_the_lagrangian(
    seed: int, family: str, directed: bool, nu: float, rho: float, activation: str
) -> None:
    """p, W with b, z and q of every block in turn, with the dual as it was."""
    p = make(
        family, directed_weighted() if directed else synthetic(), layers=3, hidden=6, activation=activation
    )
    solver, state = started(p, replace(EXACT, nu=nu, rho=rho), sweeps=1 + seed % 3, seed=seed)
    duals = [dual(p, state, index).clone() for index in range(len(state.q))]
    values = [held(p, state, duals)]
    _, after = swept(solver, p, copied(state))
    for name, change in changes(state, after):
        change(state)
        values.append(held(p, state, duals))
        limit = values[-2] + 1e-9 * max(1.0, abs(values[-2]))
        assert values[-1] <= limit, (name, values[-2:])
    assert values[-1] < values[0]


def swept(solver: AdmmSolver, p: Problem, state: AdmmState) -> tuple[list[float], AdmmState]:
    state, info = solver.step(p, state)
    return [info.loss], state


def changes(before: AdmmState, after: AdmmState) -> list[tuple[str, Callable[[AdmmState], None]]]:
    """The updates of one sweep, in its order, each as something to do to the old state."""
    last = len(before.q)
    found: list[tuple[str, Callable[[AdmmState], None]]] = []

    def put(kind: str, index: int) -> tuple[str, Callable[[AdmmState], None]]:
        def change(state: AdmmState) -> None:
            if kind == "weights":
                names = [name for name in after.weights if name.startswith(f"block{index}.")]
                state.weights |= {name: after.weights[name] for name in names}
            elif kind == "scores":
                state.scores = after.scores
            else:
                getattr(state, kind)[index] = getattr(after, kind)[index]

        return f"{kind} {index}", change

    found += [put("p", last - 1), put("weights", last), put("scores", last)]
    for index in range(last - 1, -1, -1):
        found += [put("p", index - 1)] if index > 0 else []
        found += [put("weights", index), put("z", index), put("q", index)]
    return found


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_exact_updates_are_optimal(activation: str) -> None:
    """Autograd as the oracle: after its update the gradient in q is zero, and so is that in W and b."""
    p = make("gcn", layers=3, hidden=6, activation=activation)
    solver, state = started(p)
    duals = [dual(p, state, index).clone() for index in range(2)]
    old = copied(state)
    _, after = swept(solver, p, copied(state))
    for name, change in changes(old, after):
        change(old)
        if name in ("q 0", "q 1", "weights 1", "weights 2"):
            gradient = slope(p, old, duals, name)
            assert float(gradient.abs().max()) < 1e-7, name


def slope(p: Problem, state: AdmmState, duals: list[Tensor], name: str) -> Tensor:
    """The gradient of the augmented Lagrangian in one variable, written out once more."""
    kind, index = name.split()[0], int(name.split()[1])
    with torch.inference_mode(False), torch.enable_grad():
        s = p.propagation.matrix.to_dense()  # type: ignore[attr-defined]
        x = p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64))
        z, q, ps = ([values[level].clone() for level in range(2)] for values in (state.z, state.q, state.p))
        w = {n: v.clone() for n, v in state.weights.items()}
        variables = [q[index]] if kind == "q" else [w[f"block{index}.weight"], w[f"block{index}.bias"]]
        for variable in variables:
            variable.requires_grad_()
        nu, rho, k = state.nu, state.rho, p.facts.num_train
        total = torch.zeros((), dtype=torch.float64)
        for level in range(2):
            c = state.fixed.masses[level][:, None]
            t = x if level == 0 else s @ ps[level - 1]
            a = t @ w[f"block{level}.weight"] + w[f"block{level}.bias"]
            f = activate(z[level], p.model.blocks[level].activation)
            total = total + (c * (nu / 2 * (z[level] - a) ** 2 + nu / 2 * (q[level] - f) ** 2)).sum()
            apart = ps[level] - q[level]
            total = total + (c * (duals[level] * apart + rho / 2 * apart**2)).sum()
        o = (s @ ps[1])[p.train_index] @ w["block2.weight"] + w["block2.bias"]
        total = total + nu / 2 * CURVATURE["multiclass"] / k * ((state.scores - o) ** 2).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(total, variables)])


def test_the_slope_below_zero_is_the_blocks_own() -> None:
    """PyG's leaky ReLUs have slopes of all sizes."""
    p = make("gcn", layers=3, hidden=6, activation="leaky_relu")
    blocks = tuple(replace(block, slope=0.4) for block in p.model.blocks)
    p = replace(p, model=replace(p.model, blocks=blocks))
    _, state = started(p, sweeps=0)
    torch.testing.assert_close(auxiliary_scores(p, state), forward(p, state.weights))
    values = [state.z[0].clone(), state.q[0].clone()]
    torch.testing.assert_close(values[1], torch.where(values[0] > 0, values[0], 0.4 * values[0]))


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_the_loss_step_is_a_proximal_step(task: str) -> None:
    generator = torch.Generator().manual_seed(0)
    a, start = (torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    y = torch.nn.functional.one_hot(torch.arange(9) % 4, 4).double()

    def value(z: Tensor) -> float:
        return loss_sum(task, z, y) + 0.3 / 2 * float((z - a).square().sum())

    values = [value(loss_prox(task, a, y, 0.3, start, steps)) for steps in range(1, 60)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    z = loss_prox(task, a, y, 0.3, start, 400)
    for seed in range(5):
        nearby = z + 1e-3 * torch.randn(9, 4, generator=generator.manual_seed(seed), dtype=torch.float64)
        assert value(z) <= value(nearby)


def test_the_dual_is_what_ascent_makes_it() -> None:
    """``u + rho (p - q)`` is ``nu (q - f(z))``, so it need not be stored."""
    p = make("gcn", layers=3, hidden=6)
    solver, state = started(p)
    before = [dual(p, state, index).clone() for index in range(2)]
    _, after = swept(solver, p, copied(state))
    for index in range(2):
        ascended = before[index] + after.rho * (after.p[index] - after.q[index])
        torch.testing.assert_close(dual(p, after, index), ascended)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["gcn", "sign"]), st.booleans(), st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from(["relu", "leaky_relu"]), st.sampled_from(["backward", "backward-forward"]),
)  # fmt: skip
def test_convergent_penalties_let_the_lagrangian_fall(
    seed: int, family: str, directed: bool, nu: float, activation: str, sweep: str
) -> None:
    """In every iteration as a whole, the dual's ascent and the ridges included."""
    p = make(
        family, directed_weighted() if directed else synthetic(), layers=3, hidden=6, activation=activation
    )
    config = AdmmConfig(nu=nu, penalties="convergent", sweep=sweep, dropout_output=0.3, ridge_hidden=0.1)
    solver, state = started(p, config, sweeps=0, seed=seed)
    assert state.rho > bound(config, p.model.blocks) >= 4 * nu
    values = []
    for _ in range(12):
        state, info = solver.step(p, state)
        values.append(info.extra["lagrangian"])
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(values))
    assert values[-1] < values[0]


@pytest.mark.parametrize("sweep", ["backward", "backward-forward"])
@pytest.mark.parametrize("penalties", ["fixed", "convergent"])
def test_the_reported_lagrangian_is_the_one_written_out(sweep: str, penalties: str) -> None:
    p = make("gcn", directed_weighted(), layers=3, hidden=6)
    config = replace(EXACT, sweep=sweep, penalties=penalties)
    solver, state = started(p, config)
    for _ in range(3):
        state, info = solver.step(p, state)
        assert info.extra["lagrangian"] == pytest.approx(lagrangian(p, state), rel=1e-9)


def test_ridges_are_part_of_the_reported_lagrangian() -> None:
    p = make("gcn", layers=2, hidden=6)
    solver, state = started(p, replace(EXACT, ridge_encoder=0.3, ridge_output=0.2, penalties="convergent"))
    state, info = solver.step(p, state)
    encoder = float((state.fixed.system.ridge @ state.weights["block0.weight"].square()).sum())
    output = float((state.charges[1] @ state.weights["block1.weight"].double().square()).sum())
    expected = lagrangian(p, state) + state.nu / 2 * (encoder + output)
    assert info.extra["lagrangian"] == pytest.approx(expected, rel=1e-9)


def test_a_second_pass_works_with_the_dual_of_the_first() -> None:
    """Backward-forward updates q twice and lets the dual ascend once: u after is u before + rho (p - q)."""
    p = make("gcn", layers=2, hidden=6)
    solver, state = started(p, replace(EXACT, sweep="backward-forward"))
    before, old = dual(p, state, 0), copied(state)
    solver._down(p, old)
    passed = {0: old.p[0].clone()}
    solver._up(p, old)
    torch.testing.assert_close(dual(p, old, 0), before + old.rho * (passed[0] - old.q[0]))
    assert not torch.allclose(passed[0], old.p[0])  # the output block has moved it once more


def test_balanced_penalties_follow_the_residuals() -> None:
    assert balanced(1.0, primal=20.0, dual=1.0, iteration=5) == 2.0
    assert balanced(1.0, primal=1.0, dual=20.0, iteration=5) == 0.5
    assert balanced(1.0, primal=1.0, dual=2.0, iteration=5) == 1.0
    assert balanced(1.0, primal=20.0, dual=1.0, iteration=6) == 1.0  # looked at every so often
    assert balanced(1.0, primal=20.0, dual=1.0, iteration=1000) == 1.0  # and not for ever
    p = make("gcn", layers=3)
    _, state = started(p, AdmmConfig(rho=1e-3, penalties="balanced"), sweeps=30)
    assert state.rho > 1e-3


@pytest.mark.parametrize("family", ["gcn", "sign"])
def test_it_starts_at_the_network_and_comes_back_to_it(family: str) -> None:
    p = make(family, layers=3, hidden=6)
    _, state = started(p, sweeps=0)
    loss = loss_sum("multiclass", state.scores, p.targets) / p.facts.num_train
    assert lagrangian(p, state) == pytest.approx(loss)  # everything else fits
    torch.testing.assert_close(auxiliary_scores(p, state), forward(p, state.weights))
    state, _ = AdmmSolver(replace(EXACT, resync=1)).step(p, started(p, sweeps=2)[1])
    torch.testing.assert_close(auxiliary_scores(p, state), forward(p, state.weights))


def test_residuals_fall() -> None:
    p = make("gcn", layers=3)
    solver = AdmmSolver()
    state = solver.init(p, torch.Generator().manual_seed(0))
    primal, duals = [], []
    for _ in range(80):
        state, info = solver.step(p, state)
        primal.append(info.extra["primal"])
        duals.append(info.extra["dual"])
    assert primal[-1] < 0.1 * max(primal)
    assert duals[-1] < 0.3 * max(duals)


@pytest.mark.parametrize(
    ("family", "graph"),
    [("gcn", synthetic), ("gcn", directed_weighted), ("sign", synthetic), ("gcn", multilabel)],
)
def test_it_learns(family: str, graph: Callable[[], Any]) -> None:
    p = make(family, graph())
    _, state = started(p, AdmmConfig(), sweeps=60)
    assert held_out(p, state) > 0.8  # type: ignore[arg-type]
    embeddings = score(p.model.task, auxiliary_scores(p, state), p.y, p.test_index)
    assert embeddings > 0.75


def test_it_fits_values() -> None:
    p = make("gcn", regression())
    assert held_out(p, started(p, AdmmConfig(), sweeps=100)[1]) > 0.5  # type: ignore[arg-type]


def test_train_reports_both_accuracies() -> None:
    config = TrainConfig(solver="admm", iters=30, admm=AdmmConfig(over_relaxation=1.5))
    result = train(ModelConfig(family="gcn", layers=2, hidden=12), synthetic(), config)
    assert result.test_accuracy > 0.8
    assert result.settings["over_relaxation"] == 1.5
    for line in result.history:
        assert {"primal", "dual", "lagrangian", "auxiliary_val", "auxiliary_test"} <= set(line["extra"])
    again = train(ModelConfig(family="gcn", layers=2, hidden=12), synthetic(), config)
    assert all(torch.equal(w, again.weights[n]) for n, w in result.weights.items())


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ({"family": "sage"}, {}, "families gcn and sign"),
        ({"family": "resgcn"}, {}, "families gcn and sign"),
        ({"family": "sgc"}, {}, "single block"),
    ],
)
def test_what_it_cannot_do(model: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(ModelConfig(layers=2, **model), synthetic(), TrainConfig(solver="admm", **changes))


@pytest.mark.parametrize("setting", [{"penalties": "convergent"}, {"sweep": "backward-forward"}])
def test_some_settings_need_stages_that_wait(setting: dict[str, str]) -> None:
    config = TrainConfig(solver="admm", stages=2, staleness=1, admm=AdmmConfig(**setting))
    with pytest.raises(InputError, match=f"{next(iter(setting.values()))} needs stages that wait"):
        train(ModelConfig(family="gcn", layers=3), synthetic(), config)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"inside": "target"}, {"resync": 2}),
        ({"inside": "target"}, {"over_relaxation": 1.5}),
        ({"inside": "target"}, {"sweep": "backward-forward"}),
        ({"penalties": "convergent"}, {"over_relaxation": 1.5}),
        ({"sweep": "backward-forward"}, {"over_relaxation": 1.5}),
    ],
)
def test_no_setting_is_passed_over(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(second))} must be .* with {next(iter(first))}"):
        AdmmConfig(**first, **second)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nu": 0.0},
        {"rho": -1.0},
        {"over_relaxation": 2.5},
        {"dropout_output": 1.0},
        {"penalties": "none"},
        {"sweep": "up"},
    ],
)
def test_settings_check_themselves(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        AdmmConfig(**wrong)


@pytest.mark.parametrize(("parts", "stages"), [(2, 1), (3, 1), (1, 2), (1, 3), (2, 2), (2, 4)])
@pytest.mark.parametrize(
    ("family", "graph"), [("gcn", synthetic), ("gcn", directed_weighted), ("sign", synthetic)]
)
def test_grids_are_one_device(parts: int, stages: int, family: str, graph: Callable[[], Any]) -> None:
    """The same weights, embeddings' scores and residuals, to rounding, in ten iterations."""
    if family == "sign" and stages > 3:
        pytest.skip("three blocks")
    model = ModelConfig(family=family, layers=4, hidden=8)
    config = TrainConfig(
        solver="admm", iters=10, dtype="float64", admm=AdmmConfig(over_relaxation=1.5, resync=4)
    )
    alone = train(model, graph(), config)
    split = train(
        model, graph(), replace(config, parts=parts, stages=stages, backend="thread", partitioner="ldg")
    )
    assert len(split.ranks) == parts * stages
    for name, weight in alone.last_weights.items():
        assert float((split.last_weights[name] - weight).abs().max()) <= 1e-10 * float(weight.abs().max()), (
            name
        )
    for one, many in zip(alone.history, split.history, strict=True):
        assert many["extra"] == pytest.approx(one["extra"], rel=1e-8, abs=1e-12)
        assert many["step_loss"] == pytest.approx(one["step_loss"], rel=1e-8)


@pytest.mark.parametrize(
    "settings",
    [
        AdmmConfig(sweep="backward-forward", penalties="convergent"),
        AdmmConfig(sweep="backward-forward", penalties="balanced", rho=0.01, resync=4),
    ],
)
def test_two_passes_on_grids_are_one_device(settings: AdmmConfig) -> None:
    model = ModelConfig(family="gcn", layers=4, hidden=8)
    config = TrainConfig(solver="admm", iters=10, dtype="float64", admm=settings)
    alone = train(model, directed_weighted(), config)
    grid = {"parts": 2, "stages": 2, "backend": "thread", "partitioner": "ldg"}
    split = train(model, directed_weighted(), replace(config, **grid))
    for name, weight in alone.last_weights.items():
        torch.testing.assert_close(split.last_weights[name], weight, rtol=1e-10, atol=1e-12)
    for one, many in zip(alone.history, split.history, strict=True):
        assert many["extra"] == pytest.approx(one["extra"], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("stages", [2, 4])
def test_stages_at_once_come_to_the_same(stages: int) -> None:
    """Jacobi: every stage works on what the others had an iteration ago."""
    model = ModelConfig(family="gcn", layers=4, hidden=12)
    config = TrainConfig(solver="admm", iters=120)
    waiting = train(model, synthetic(), config)
    at_once = train(model, synthetic(), replace(config, stages=stages, staleness=1, backend="thread"))
    assert at_once.test_accuracy >= waiting.test_accuracy - 0.03
    extra = [line["extra"]["primal"] for line in at_once.history]
    assert extra[-1] < 0.2 * max(extra)
