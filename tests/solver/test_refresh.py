"""The forward refresh: it is the network, and where asked it brings every unit to unit spread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import DEEP, FAMILIES, directed_weighted, make, run, start, synthetic
from torch import Tensor

from gfgnn.forward import forward
from gfgnn.problem import Problem
from gfgnn.solver import refresh as module
from gfgnn.solver.refresh import refresh
from gfgnn.solver.state import Activations, TargetState
from gfgnn.solver.target import TargetSolver

both = pytest.mark.parametrize("unit_spread", [False, True])


def trained(family: str, **changes: Any) -> tuple[Problem, TargetSolver, TargetState]:
    """A network with weights that are neither identity nor zero anywhere."""
    p = make(family, directed_weighted(), layers=4, **changes)
    solver, state, _ = run(p, 4, step="sweep", ridge_hidden=0.1, step_size=1.0)
    return p, solver, state


def pre_activations(p: Problem, state: TargetState, acts: Activations) -> list[Tensor]:
    """Z of every block below the output, from the weights after the refresh."""
    found = [p.inputs.matmul(state.weights["block0.weight"])]
    found += [t @ state.weights[f"block{i}.weight"] for i, t in acts.inputs.items()]
    return [z + state.weights.get(f"block{i}.bias", 0.0) for i, z in enumerate(found)]


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_network(unit_spread: bool, family: str) -> None:
    p, _, state = trained(family)
    acts = refresh(p, state, unit_spread=unit_spread)
    torch.testing.assert_close(acts.scores, forward(p, state.weights)[p.train_index])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plain_refresh_changes_no_weight(family: str) -> None:
    p, _, state = trained(family)
    before = {name: w.clone() for name, w in state.weights.items()}
    refresh(p, state, unit_spread=False)
    assert all(torch.equal(w, before[name]) for name, w in state.weights.items())


@pytest.mark.parametrize("family", [*DEEP, "sign"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_unit_spread(family: str, bias: bool, sparse: bool) -> None:
    """Every pre-activation has variance 1 (second moment 1 without a bias); each unit's weight and bias are scaled by
    one and the same factor, and the output block is left alone."""
    graph = synthetic()
    if sparse:
        assert graph.x is not None
        graph = graph.replace(x=(graph.x * (graph.x.abs() > 0.5)).to_sparse_csr())
    p = make(family, graph, layers=4, bias=bias)
    _, state, _ = run(p, 4, step="sweep", ridge_hidden=0.1, step_size=1.0)
    before = {name: w.clone() for name, w in state.weights.items()}
    acts = refresh(p, state, unit_spread=True)
    for index, z in enumerate(pre_activations(p, state, acts)):
        centred = p.model.blocks[index].bias
        spread = z.var(0, correction=0) if centred else z.square().mean(0)
        torch.testing.assert_close(spread, torch.ones_like(spread))
        name = f"block{index}"
        factor = state.weights[f"{name}.weight"].norm(dim=0) / before[f"{name}.weight"].norm(dim=0)
        torch.testing.assert_close(state.weights[f"{name}.weight"], before[f"{name}.weight"] * factor)
        if centred:
            torch.testing.assert_close(state.weights[f"{name}.bias"], before[f"{name}.bias"] * factor)
    last = f"block{len(p.model.blocks) - 1}.weight"
    assert torch.equal(state.weights[last], before[last])


def test_spread_from_every_so_many_th_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPREAD_ROWS", 60)
    p, _, state = trained("gcn")
    acts = refresh(p, state, unit_spread=True)
    for z in pre_activations(p, state, acts):
        torch.testing.assert_close(z[::4].var(0, correction=0), torch.ones(12, dtype=torch.float64))
        assert not torch.allclose(z.var(0, correction=0), torch.ones(12, dtype=torch.float64), atol=1e-3)


def test_units_that_do_not_vary_are_left_alone() -> None:
    """Refreshing again and again neither blows a constant unit's bias up nor touches the others any more."""
    p, _, state = trained("gcn")
    state.weights["block1.weight"][:, 3] = 0.0
    state.weights["block1.bias"][3] = 0.7
    for _ in range(30):
        refresh(p, state, unit_spread=True)
    assert float(state.weights["block1.bias"][3]) == 0.7
    assert not bool(state.weights["block1.weight"][:, 3].any())
    before = {name: w.clone() for name, w in state.weights.items()}
    refresh(p, state, unit_spread=True)
    for name, w in state.weights.items():
        torch.testing.assert_close(w, before[name])


def test_a_faint_unit_is_raised_step_by_step() -> None:
    """No factor is above 100 for a layer of spread 1."""
    p, _, state = trained("gcn")
    refresh(p, state, unit_spread=True)
    state.weights["block1.weight"][:, 3] *= 1e-4
    norms = [float(state.weights["block1.weight"][:, 3].norm())]
    for _ in range(2):
        refresh(p, state, unit_spread=True)
        norms.append(float(state.weights["block1.weight"][:, 3].norm()))
    assert norms[1] / norms[0] == pytest.approx(100, rel=0.1)
    assert norms[2] / norms[0] == pytest.approx(1e4, rel=1e-6)


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sign"])
def test_sampled_dropout(family: str) -> None:
    """A share p of the hidden layers' inputs is zero, the others are scaled by 1/(1-p); each iteration has its own."""
    p = make(family, layers=4, activation="identity")
    _, state = start(p, step="sweep", sampled_dropout=0.3)
    plain = refresh(p, _without_dropout(p), unit_spread=False).inputs
    state.iteration = 5
    first = refresh(p, state, unit_spread=False)
    state.iteration = 6
    second = refresh(p, state, unit_spread=False)
    state.iteration = 5
    again = refresh(p, state, unit_spread=False)
    dropped = first.inputs[1] == 0
    assert float(dropped.double().mean()) == pytest.approx(0.3, abs=0.04)
    torch.testing.assert_close(first.inputs[1][~dropped], plain[1][~dropped] / 0.7)
    assert not torch.equal(first.inputs[1], second.inputs[1])
    assert first.inputs.keys() == again.inputs.keys()
    assert all(torch.equal(t, again.inputs[index]) for index, t in first.inputs.items())


def _without_dropout(p: Problem) -> TargetState:
    return start(p, step="sweep")[1]
