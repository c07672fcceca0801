"""ADMM between stages with the block solver inside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from grids import run_open
from problems import directed_weighted, synthetic

from gfgnn.checks import InputError
from gfgnn.comm.base import Communicator
from gfgnn.comm.grid import make_grid
from gfgnn.config import AdmmConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import build_model
from gfgnn.result import Result
from gfgnn.shards import make_shards, shard_problem
from gfgnn.solver.admm.coupled import CoupledSolver
from gfgnn.train import train

COUPLED = TrainConfig(
    solver="admm", iters=10, dtype="float64", backend="thread", partitioner="ldg",
    admm=AdmmConfig(inside="target", nu=1.0, rho=0.3),
)  # fmt: skip


def trained(family: str, graph: Graph, layers: int = 4, **changes: object) -> Result:
    model = ModelConfig(family=family, layers=layers, hidden=8)
    return train(model, graph, replace(COUPLED, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage"])
def test_one_stage_is_the_block_solver(family: str) -> None:
    coupled = trained(family, synthetic())
    plain = trained(family, synthetic(), solver="target", target=TargetConfig(step="sweep"))
    for name, weight in plain.last_weights.items():
        assert torch.equal(coupled.last_weights[name], weight), name


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn"])
@pytest.mark.parametrize("stages", [2, 3])
def test_parts_change_nothing(family: str, stages: int) -> None:
    graph = directed_weighted()
    one, two = (trained(family, graph, parts=parts, stages=stages) for parts in (1, 2))
    for name, weight in one.last_weights.items():
        assert float((two.last_weights[name] - weight).abs().max()) <= 1e-10 * float(weight.abs().max()), name
    for a, b in zip(one.history, two.history, strict=True):
        assert b["extra"] == pytest.approx(a["extra"], rel=1e-8)


@pytest.mark.parametrize(("family", "layers"), [("gcn", 4), ("gcnii", 8)])
@pytest.mark.parametrize("stages", [2, 4])
def test_deep_networks_learn(family: str, layers: int, stages: int) -> None:
    result = trained(family, synthetic(), layers, stages=stages, iters=40, dtype="float32")
    assert result.test_accuracy > 0.85
    assert result.settings["inside"] == "target"


def test_copies_and_what_they_copy_are_not_the_same_at_first() -> None:
    primal = [line["extra"]["primal"] for line in trained("gcn", synthetic(), stages=2, iters=5).history]
    assert all(value > 0 for value in primal)


def test_stages_wait() -> None:
    with pytest.raises(InputError, match="staleness 1"):
        trained("gcn", synthetic(), stages=2, staleness=1)
    with pytest.raises(InputError, match="inside"):
        AdmmConfig(inside="adam")


class Watched(CoupledSolver):
    """Keeps what the boundary was before and after each of its updates."""

    def __init__(self, config: AdmmConfig, iters: int) -> None:
        super().__init__(config, iters)
        self.found: list[dict[str, Any]] = []

    def _from_below(self, state):  # type: ignore[no-untyped-def]
        rows = super()._from_below(state)
        assert not rows or torch.equal(rows[0], state.boundary.p)  # works on its own copy
        return rows

    def _from_above(self, problem, state, acts, rule):  # type: ignore[no-untyped-def]
        old = replace(state.boundary)
        messages = super()._from_above(problem, state, acts, rule)
        if not problem.is_last:
            c = state.fixed.masses[problem.span.stop - 1]
            top = acts.top().clone()
            self.found.append({"old": old, "new": replace(state.boundary), "top": top, "c": c})
        return messages

    def _send_down(self, problem, state, messages):  # type: ignore[no-untyped-def]
        old = replace(state.boundary)
        super()._send_down(problem, state, messages)
        if not problem.is_first:
            wanted = messages[problem.span.start - 1].clone()
            self.found.append({"old": old, "new": replace(state.boundary), "wanted": wanted})


def test_boundary_variables_are_those_of_the_formulas() -> None:
    """``q = (nu F(p) + rho p_above + u) / (nu + rho)``, ``u += rho (p_above - q)``, and
    ``nu (p - p_before - D) + rho (p - q) + u = 0`` in the stage above."""
    graph = directed_weighted()
    model = build_model(ModelConfig(family="gcn", layers=4, hidden=8), graph)
    shards = make_shards(
        model, graph, torch.zeros(graph.num_nodes, dtype=torch.int64), 1, dtype=torch.float64
    )
    nu, rho = 0.8, 0.3

    def job(world: Communicator) -> tuple[list[dict[str, Any]], list[float]]:
        with torch.inference_mode():
            problem = shard_problem(model, shards[0], make_grid(world, 1, 2), (0, 2, 4), dtype=torch.float64)
            solver = Watched(AdmmConfig(inside="target", nu=nu, rho=rho), 5)
            state, primal = solver.init(problem, torch.Generator().manual_seed(0)), []
            for _ in range(5):
                state, info = solver.step(problem, state)
                primal.append(info.extra["primal"])
            solver.finish(problem, state)
            return solver.found, primal

    ((below, primal), (above, _)), left = run_open(2, job)
    assert left == 0
    assert len(below) == len(above) == 5
    for one, two, apart in zip(below, above, primal, strict=True):
        old, new, p = one["old"], one["new"], two["new"].p
        u = torch.zeros_like(new.u) if old.u is None else old.u
        torch.testing.assert_close(new.q, (nu * one["top"] + rho * p + u) / (nu + rho))
        torch.testing.assert_close(new.u, u + rho * (p - new.q))
        assert apart == pytest.approx(float((one["c"][:, None] * (p - new.q) ** 2).sum()) ** 0.5)
        before, c = two["old"], two["old"].below
        shift = torch.where(c > 0, 1 / c, 0.0)[:, None] * two["wanted"]
        slope = nu * (p - before.p - shift) + rho * (p - before.q_below) + before.u_below
        assert float(slope.abs().max()) < 1e-9 * float(p.abs().max())


def test_boundaries_start_again_where_the_safeguard_goes_back() -> None:
    """From the activations of the network that it has gone back to."""
    graph = directed_weighted()
    model = build_model(ModelConfig(family="gcn", layers=4, hidden=8), graph)
    shards = make_shards(
        model, graph, torch.zeros(graph.num_nodes, dtype=torch.int64), 1, dtype=torch.float64
    )

    def job(world: Communicator) -> list[bool]:
        with torch.inference_mode():
            problem = shard_problem(model, shards[0], make_grid(world, 1, 2), (0, 2, 4), dtype=torch.float64)
            solver = CoupledSolver(AdmmConfig(inside="target", rho=0.3), 8)
            state, known = solver.init(problem, torch.Generator().manual_seed(0)), []
            for iteration in range(8):
                if iteration == 5:
                    state.weights = {name: -40 * w for name, w in state.weights.items()}
                state, _ = solver.step(problem, state)
                known.append((state.boundary.q if problem.is_first else state.boundary.p) is not None)
            solver.finish(problem, state)
            return known

    (below, above), left = run_open(2, job)
    assert left == 0
    assert below == above == [*[True] * 5, False, True, True]
