"""ADMM between stages with the block solver inside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import directed_weighted, synthetic

from gfgnn.checks import InputError
from gfgnn.config import AdmmConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.graph.graph import Graph
from gfgnn.result import Result
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
