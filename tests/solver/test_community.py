"""Community-based ADMM: every step against the augmented Lagrangian it is to lower, communities against one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from grids import distance, random_parts, run_open, small, small_directed, with_values
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import directed_weighted, held_out, make, multilabel, randn_like, regression, synthetic
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.config import CommunityConfig, ModelConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.metrics import score
from gfgnn.model.blocks import activate
from gfgnn.model.build import Model, build_model
from gfgnn.problem import Problem, prepare
from gfgnn.shards import make_shards, shard_problem
from gfgnn.solver.community import CommunitySolver, phases
from gfgnn.solver.community.measures import lagrangian
from gfgnn.solver.community.state import CommunityState
from gfgnn.solver.community.updates import Link, backtracked
from gfgnn.toml import dumps, loads_run
from gfgnn.train import train

CONFIG = CommunityConfig(nu=0.3, rho=0.2)
SAFE = replace(CONFIG, steps="joint", layers="sweep")


def started(
    p: Problem, config: CommunityConfig = CONFIG, steps: int = 2, seed: int = 0
) -> tuple[CommunitySolver, CommunityState]:
    solver = CommunitySolver(config)
    state = solver.init(p, torch.Generator().manual_seed(seed))
    for _ in range(steps):
        state, _ = solver.step(p, state)
    return solver, state


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([1e-3, 0.1, 3.0]), st.sampled_from([1e-3, 0.1, 3.0]),
    st.sampled_from([0.0, 0.05]), st.sampled_from(["relu", "leaky_relu", "identity"]),
    st.sampled_from(["all", "train"]), st.booleans(),
)  # fmt: skip
def test_no_phase_raises_the_lagrangian(
    seed: int, layers: int, nu: float, rho: float, ridge: float, activation: str, nodes: str, bias: bool
) -> None:
    """All weights at once, then one Z after the other; the dual stays as it was."""
    p = make(layers=layers, hidden=6, activation=activation, bias=bias)
    config = replace(SAFE, nu=nu, rho=rho, ridge=ridge, nodes=nodes)
    _, state = started(p, config, steps=seed % 4, seed=seed)
    shift = 0.1 * rho * randn_like(state.u, seed)
    state.u = state.u + (shift if state.counted is None else shift * state.counted)
    values = [lagrangian(p, state, config)]
    phases.update_weights(p, state, config)
    values.append(lagrangian(p, state, config))
    for index in range(layers):
        phases.update_embeddings(p, state, config, [index])
        values.append(lagrangian(p, state, config))
    for before, after in pairwise(values):
        assert after <= before + 1e-9 * max(1.0, abs(before)), values
    assert values[-1] < values[0]


def written_out(p: Problem, state: CommunityState, config: CommunityConfig, kind: str, index: int) -> Tensor:
    """The gradient of the augmented Lagrangian in one Z, W or b, from the formula, by autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        z = {i: v.clone() for i, v in state.z.items()}
        w = {name: v.clone() for name, v in state.weights.items()}
        variable = z[index] if kind == "z" else w[f"block{index}.{kind}"]
        variable.requires_grad_()
        s = torch.eye(p.y.size(0), dtype=torch.float64)
        s, x = (
            p.propagation.apply(s).clone(),
            p.inputs.matmul(torch.eye(p.inputs.fan_in, dtype=torch.float64)).clone(),
        )
        last, total = state.last, torch.zeros((), dtype=torch.float64)
        for i, block in enumerate(p.model.blocks):
            a = (x if i == 0 else s @ z[i - 1]) @ w[f"block{i}.weight"] + w[f"block{i}.bias"]
            if i < last:
                total = total + config.nu / 2 * (z[i] - activate(a, block.activation)).square().sum()
                continue
            rows = p.train_index if config.nodes == "train" else torch.arange(a.size(0))
            off = (z[i] - a)[rows]
            total = total + (state.u[rows] * off + config.rho / 2 * off.square()).sum()
        scores = torch.log_softmax(z[last][p.train_index], dim=1)
        total = total - (scores * p.targets).sum()
        total = total + config.ridge / 2 * sum(w[f"block{i}.weight"].square().sum() for i in range(last + 1))
        return torch.autograd.grad(total, variable)[0]


@pytest.mark.parametrize("nodes", ["all", "train"])
@pytest.mark.parametrize("steps", ["community", "joint"])
def test_steps_go_along_the_gradient(nodes: str, steps: str) -> None:
    p = make(layers=3, hidden=6)
    config = replace(CONFIG, nodes=nodes, steps=steps, ridge=0.02)
    _, state = started(p, config, steps=3)
    for index in range(3):
        expected = {kind: written_out(p, state, config, kind, index) for kind in ("weight", "bias")}
        before = dict(state.weights)
        phases.update_weight(p, state, config, index)
        tau = state.curvature[f"W{index}"]
        for kind, slope in expected.items():
            name = f"block{index}.{kind}"
            torch.testing.assert_close((before[name] - state.weights[name]) * tau, slope)
    for index in range(2):
        slope, z = written_out(p, state, config, "z", index), state.z[index]
        phases.update_embeddings(p, state, config, [index])
        torch.testing.assert_close((z - state.z[index]) * state.curvature[f"Z{index}"], slope)


def test_the_scores_are_optimal() -> None:
    for nodes in ("all", "train"):
        p, config = make(layers=2, hidden=6), replace(CONFIG, nodes=nodes, scores_steps=400)
        _, state = started(p, config)
        phases.update_embeddings(p, state, config, [1])
        assert float(written_out(p, state, config, "z", 1).abs().max()) < 1e-8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 1.0]), st.sampled_from([1.5, 2.0, 7.0]), st.booleans())
def test_backtracking_ends_below_the_majoriser(seed: int, start: float, factor: float, dual: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    t, w, z, u = (
        torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((9, 4), (4, 3), (9, 3), (9, 3))
    )
    terms = Link(0.7, z, 0.0, u if dual else None)
    slope = t.t() @ terms.slope(t @ w)

    def value(step: float) -> float:
        return terms.value(t @ (w - step * slope))

    squared = float(slope.square().sum())
    tau = backtracked(value, squared, start, factor)
    assert tau is not None
    assert value(1 / tau) <= value(0.0) - squared / (2 * tau)
    if tau > start:
        assert value(factor / tau) > value(0.0) - squared / (2 * tau / factor)


@pytest.mark.parametrize("after", [2.0, float("inf"), float("nan")])
@pytest.mark.parametrize("slope", [1.0, 0.0, float("inf"), float("nan")])
def test_a_search_ends_whatever_comes(after: float, slope: float) -> None:
    assert backtracked(lambda step: after if step else 1.0, slope, 1e-6, 2.0) is None


Found = tuple[CommunityState, Problem, list[dict[str, float]]]


def on_communities(
    model: Model,
    graph: Graph,
    parts: int,
    config: CommunityConfig,
    iters: int,
    assignment: Tensor | None = None,
) -> list[Found]:
    """State, problem and reports of every community after a run."""
    nodes = random_parts(graph.num_nodes, parts) if assignment is None else assignment
    shards = make_shards(model, graph, nodes, parts, dtype=torch.float64)

    def job(world: Communicator) -> Found:
        with torch.inference_mode():
            grid = make_grid(world, parts, 1)
            problem = shard_problem(
                model, shards[grid.part], grid, (0, len(model.blocks)), dtype=torch.float64
            )
            return trained(problem, config, iters)

    found, left = run_open(parts, job)
    assert left == 0
    return found


def trained(problem: Problem, config: CommunityConfig, iters: int) -> Found:
    solver, reports = CommunitySolver(config), []
    state = solver.init(problem, torch.Generator().manual_seed(0))
    for _ in range(iters):
        state, info = solver.step(problem, state)
        reports.append({"loss": info.loss, **info.extra})
    return state, problem, reports


@pytest.mark.parametrize(
    ("graph", "parts", "changes"),
    [
        (small, 2, {}),
        (small, 3, {"layers": "sweep", "nodes": "all", "ridge": 0.01}),
        (small_directed, 4, {"nodes": "all"}),
        (lambda: with_values("regression"), 2, {"layers": "sweep"}),
        (lambda: with_values("multilabel"), 3, {}),
    ],
)
def test_joint_steps_are_those_of_one_device(
    graph: Callable[[], Graph], parts: int, changes: dict[str, Any]
) -> None:
    g, config = graph(), replace(CONFIG, steps="joint", **changes)
    model = build_model(ModelConfig(family="gcn", layers=3, hidden=8), g)
    with torch.inference_mode():
        alone, _, expected = trained(prepare(model, g, dtype=torch.float64), config, 10)
    for state, problem, reports in on_communities(model, g, parts, config, 10):
        for name, weight in alone.weights.items():
            assert distance(state.weights[name], weight) < 1e-10, name
        for index, z in alone.z.items():
            torch.testing.assert_close(state.z[index], z[problem.node_ids], rtol=1e-9, atol=1e-9)
        for found, report in zip(reports, expected, strict=True):
            assert found == pytest.approx(report, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("graph", [small, small_directed], ids=["undirected", "directed"])
@pytest.mark.parametrize("nodes", ["all", "train"])
def test_each_community_lowers_the_lagrangian_if_the_others_stand_still(
    graph: Callable[[], Graph], nodes: str
) -> None:
    """The step that a community finds from its neighbours' messages, made by it alone on one device."""
    g, config, parts = graph(), replace(CONFIG, nodes=nodes, backtrack=1.1), 3
    model = build_model(ModelConfig(family="gcn", layers=3, hidden=6), g)
    state, problem, _ = trained(prepare(model, g, dtype=torch.float64), config, 3)
    before = lagrangian(problem, state, config)
    nodes_of = random_parts(g.num_nodes, parts)
    shards = make_shards(model, g, nodes_of, parts, dtype=torch.float64)

    def job(world: Communicator) -> list[tuple[Tensor, Tensor, float]]:
        p = shard_problem(model, shards[world.rank], make_grid(world, parts, 1), (0, 3), dtype=torch.float64)
        own = CommunitySolver(config).init(p, torch.Generator().manual_seed(0))
        own.weights, own.u = dict(state.weights), state.u[p.node_ids]
        own.fit, own.z = ({i: v[p.node_ids] for i, v in table.items()} for table in (state.fit, state.z))
        moved = [phases.moved(p, own, config, index) for index in (0, 1)]
        return [(p.node_ids, z, own.curvature[f"Z{index}"]) for index, z in enumerate(moved)]

    found, left = run_open(parts, job)
    assert left == 0
    for index in (0, 1):
        slope = written_out(problem, state, config, "z", index)
        assert len({of_one[index][2] for of_one in found}) > 1, "communities have found the same step"
        for of_one in found:
            ids, z, tau = of_one[index]
            torch.testing.assert_close((state.z[index][ids] - z) * tau, slope[ids])
            alone = replace(
                state, z={**state.z, index: state.z[index].index_copy(0, ids, z)}, fit=dict(state.fit)
            )
            phases.refit(problem, alone, index + 1)
            gain = float(slope[ids].square().sum()) / (2 * tau)
            assert lagrangian(problem, alone, config) <= before - gain + 1e-9 * before


def test_one_community_takes_the_joint_step() -> None:
    p = make(layers=3, hidden=8)
    for layers in ("parallel", "sweep"):
        config = replace(CONFIG, layers=layers)
        first, second = (trained(p, replace(config, steps=s), 6) for s in ("community", "joint"))
        assert all(torch.equal(w, second[0].weights[name]) for name, w in first[0].weights.items())
        assert first[2] == second[2]


@pytest.mark.parametrize("parts", [1, 3])
def test_the_lagrangian_falls(parts: int) -> None:
    """On the whole, with the paper's steps: communities and layers at once, the dual ascending."""
    g = small()
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=8), g)
    reports = on_communities(model, g, parts, CommunityConfig(), 60)[0][2]
    values = [report["lagrangian"] for report in reports]
    assert values[-1] < 0.05 * values[0]
    assert reports[-1]["primal"] < 0.2 * max(report["primal"] for report in reports)


@pytest.mark.parametrize("steps", ["community", "joint"])
def test_only_steps_of_their_own_may_raise_it(steps: str) -> None:
    """The Z phase, in communities whose neighbours are nearly all others'."""
    g, parts, config = synthetic(), 8, CommunityConfig(steps=steps)
    model = build_model(ModelConfig(family="gcn", layers=4, hidden=12, bias=False), g)
    shards = make_shards(model, g, random_parts(g.num_nodes, parts), parts, dtype=torch.float64)

    def job(world: Communicator) -> list[float]:
        with torch.inference_mode():
            p = shard_problem(
                model, shards[world.rank], make_grid(world, parts, 1), (0, 4), dtype=torch.float64
            )
            state, changes = CommunitySolver(config).init(p, torch.Generator().manual_seed(0)), []
            for _ in range(20):
                phases.update_weights(p, state, config)
                before = lagrangian(p, state, config)
                phases.update_embeddings(p, state, config, list(state.fit))
                changes.append(lagrangian(p, state, config) / before)
                phases.update_dual(p, state, config)
            return changes

    worst = max(run_open(parts, job)[0][0])
    assert worst > 1.5 if steps == "community" else worst < 1 + 1e-9


@pytest.mark.parametrize("nodes", ["all", "train"])
@pytest.mark.parametrize("graph", [synthetic, directed_weighted])
def test_it_learns(graph: Callable[[], Graph], nodes: str) -> None:
    config = TrainConfig(solver="community-admm", iters=60, community=CommunityConfig(nodes=nodes))
    result = train(ModelConfig(family="gcn", layers=2, hidden=16), graph(), config)
    assert result.test_accuracy > 0.7
    assert {"primal", "dual", "lagrangian", "auxiliary_val", "auxiliary_test"} == set(
        result.history[-1]["extra"]
    )
    assert result.embedding_scores is not None
    assert (
        score(
            "multiclass", result.embedding_scores, result.graph.y, result.graph.test_mask.nonzero().squeeze(1)
        )
        > 0.6
    )


@pytest.mark.parametrize("graph", [regression, multilabel])
def test_other_tasks(graph: Callable[[], Graph]) -> None:
    p = make(graph=graph(), layers=2, hidden=12)
    _, state = started(p, replace(CONFIG, nodes="train"), steps=80)
    assert held_out(p, state) > 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("ridge", [0.0, 3000.0])
def test_the_search_for_weights_judges_bias_and_ridge_too(ridge: float, index: int) -> None:
    """tau is the first of its trials that lowers the whole Lagrangian by what the majoriser promises."""
    p, config = make(layers=2, hidden=6), replace(CONFIG, ridge=ridge, first_curvature=1e-3)
    _, state = started(p, config, steps=3)
    state.z[index] = state.z[index] + 2.0 + randn_like(state.z[index])
    state.curvature.clear()
    before, old = lagrangian(p, state, config), dict(state.weights)
    phases.update_weight(p, state, config, index)
    tau = state.curvature[f"W{index}"]

    def excess(times: float) -> float:
        """How far a step of ``times / tau`` falls short of the majoriser; 0 or less where it does not."""
        moved = {name: w + times * (state.weights[name] - w) for name, w in old.items()}
        squares = sum(float((moved[name] - w).square().sum()) for name, w in old.items())
        trial = replace(state, weights=moved, fit=dict(state.fit))
        phases.refit(p, trial, index)
        return lagrangian(p, trial, config) - before + squares * tau / times / 2

    assert excess(1.0) <= 1e-9 * before
    assert tau == config.first_curvature or excess(config.backtrack) > 0


def test_the_dual_residual_is_over_the_rows_that_count() -> None:
    p = make(layers=2, hidden=6)
    for nodes in ("all", "train"):
        solver, state = started(p, replace(CONFIG, nodes=nodes))
        before = state.z[1]
        state, info = solver.step(p, state)
        rows = p.train_index if nodes == "train" else slice(None)
        moved = float((state.z[1] - before)[rows].square().sum())
        assert info.extra["dual"] == pytest.approx(CONFIG.rho * moved**0.5)


def test_what_layers_fit_is_kept_exactly() -> None:
    p = make(layers=3, hidden=6)
    _, state = started(p, steps=15)
    kept = dict(state.fit)
    for index in range(3):
        phases.refit(p, state, index)
        torch.testing.assert_close(kept[index], state.fit[index])


def test_it_starts_at_the_network() -> None:
    p = make(layers=3, hidden=6)
    _, state = started(p, steps=0)
    torch.testing.assert_close(state.z[2], forward(p, state.weights))
    assert float(state.u.abs().max()) == 0
    assert lagrangian(p, state, CONFIG) == pytest.approx(
        float(
            torch.nn.functional.cross_entropy(state.z[2][p.train_index], p.y[p.train_index], reduction="sum")
        )
    )


@pytest.mark.parametrize("parts", [2, 3])
def test_training_on_parts(parts: int) -> None:
    """Through ``train``: parts of a partition, whatever their steps, give one network and one report."""
    config = TrainConfig(
        solver="community-admm", iters=30, parts=parts, backend="thread", partitioner="ldg", dtype="float64"
    )
    model = ModelConfig(family="gcn", layers=2, hidden=12)
    result = train(model, synthetic(), config)
    assert result.test_accuracy > 0.6
    joint = replace(config, community=CommunityConfig(steps="joint"))
    alone = train(model, synthetic(), replace(joint, parts=1))
    for name, weight in train(model, synthetic(), joint).last_weights.items():
        assert distance(weight, alone.last_weights[name]) < 1e-8


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ({"family": "gcnii"}, {}, "family gcn"),
        ({"family": "sage"}, {}, "family gcn"),
        ({"family": "sgc"}, {}, "family gcn"),
        ({"family": "resgcn"}, {}, "family gcn"),
        ({"family": "gcn"}, {"stages": 2}, "no stages"),
    ],
)
def test_what_it_cannot_do(model: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(ModelConfig(layers=2, **model), synthetic(), TrainConfig(solver="community-admm", **changes))


def test_a_table_of_its_own_in_configuration_files() -> None:
    text = '[train]\nsolver = "community-admm"\n[train.community]\nsteps = "joint"\nridge = 0.5\n'
    run = loads_run(text)
    assert run.train.community == CommunityConfig(steps="joint", ridge=0.5)
    assert loads_run(dumps(run.to_dict())) == run
    with pytest.raises(InputError, match=r"train\.community"):
        loads_run(text + "relax = 1\n")


@pytest.mark.parametrize(
    "wrong",
    [
        {"nu": 0.0}, {"rho": -1.0}, {"first_curvature": 0.0}, {"backtrack": 1.0}, {"nodes": "some"}, {"ridge": -1.0},
        {"steps": "own"}, {"layers": "down"}, {"scores_steps": 0},
    ],
)  # fmt: skip
def test_settings_check_themselves(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        CommunityConfig(**wrong)
