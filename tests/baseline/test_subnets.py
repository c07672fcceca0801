"""Independent subnets: taking apart and putting together, and that the rounds train the whole network."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

from gfgnn.baseline.network import Tensors, start
from gfgnn.baseline.settings import resolve
from gfgnn.baseline.subnets import draw_columns, join, run, split, subnetwork
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError
from gfgnn.config import AdamConfig, ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.problem import prepare

FAMILIES = ("gcn", "gcnii", "sage", "resgcn", "sign")


def network(family: str, hidden: int, graph: Graph, batch_norm: bool = True) -> tuple[Model, Tensors]:
    """A network and all its tensors, biases and statistics drawn so that no two numbers are alike."""
    model = build_model(ModelConfig(family=family, layers=3, hidden=hidden), graph)
    adam = resolve(AdamConfig(batch_norm=batch_norm), family, len(model.blocks))
    generator = torch.Generator().manual_seed(0)
    parameters, running = start(prepare(model, graph), adam, generator)
    tensors = parameters | running
    return model, {name: torch.rand(value.shape, generator=generator) for name, value in tensors.items()}


@settings(max_examples=20, deadline=None)
@given(hidden=st.integers(1, 40), data=st.data())
def test_columns_are_drawn_without_overlap(hidden: int, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, hidden))
    generator = torch.Generator().manual_seed(1)
    first, second = (draw_columns(hidden, ranks, generator) for _ in range(2))
    assert torch.equal(torch.cat(first).sort().values, torch.arange(hidden))
    assert [c.numel() for c in first] == [c.numel() for c in second], "ranks keep their sizes"
    assert max(c.numel() for c in first) - min(c.numel() for c in first) <= 1
    if ranks > 1 and hidden > 30:
        assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True)), "drawn anew"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_taking_apart_and_putting_together_changes_nothing(family: str, batch_norm: bool) -> None:
    graph = random_graph()
    model, tensors = network(family, 7, graph, batch_norm)
    columns = draw_columns(7, 3, torch.Generator().manual_seed(2))
    parts = [split(tensors, model, own) for own in columns]
    joined = join(tensors, parts, model, columns)
    assert joined.keys() == tensors.keys()
    for name, value in tensors.items():
        torch.testing.assert_close(
            joined[name], value, rtol=1e-6, atol=0
        )  # of the output's bias a mean is taken


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_have_the_shapes_of_the_subnetwork_and_change_their_own_entries_only(family: str) -> None:
    graph = random_graph()
    model, tensors = network(family, 7, graph)
    columns = draw_columns(7, 2, torch.Generator().manual_seed(2))
    parts = [split(tensors, model, own) for own in columns]
    for own, part in zip(columns, parts, strict=True):
        small = subnetwork(model, own.numel())
        for index, block in enumerate(small.blocks):
            assert part[f"block{index}.weight"].shape == (block.fan_in, block.out_channels)
    changed = [{name: value + 1 for name, value in part.items()} for part in parts]
    joined = join(tensors, changed, model, columns)
    last = len(model.blocks) - 1
    for name, value in tensors.items():
        moved = joined[name] - value
        index = int(name[5:].split(".")[0])
        if value.dim() == 1 or index in (0, last):  # every entry belongs to somebody
            torch.testing.assert_close(moved, torch.ones_like(moved))
            continue
        sides = value.size(0) // 7
        expected = torch.zeros(7, 7)
        for own in columns:
            expected[own[:, None], own[None]] = 1.0
        torch.testing.assert_close(moved, expected.repeat(sides, 1))


@pytest.mark.parametrize(("family", "layers"), [("gcn", 2), ("gcnii", 3)])
def test_rounds_train_the_network(family: str, layers: int) -> None:
    graph = random_graph(nodes=40, labelled=20)
    graph = graph.replace(x=torch.cat([graph.x, 4.0 * torch.eye(3)[graph.y]], 1))
    model = ModelConfig(family=family, layers=layers, hidden=12)
    budget = Budget(iterations=90)
    outcome = run(
        graph,
        model,
        budget=budget,
        seed=0,
        threads=1,
        backend="thread",
        local=10,
        dropout=0.0,
        batch_norm=True,
        lr=0.05,
    )
    assert (outcome.status, outcome.contender) == ("done", "ist")
    assert [line["iteration"] for line in outcome.history] == list(range(10, 91, 10))
    assert outcome.history[-1]["step_loss"] < 0.9 * outcome.history[0]["step_loss"]
    assert outcome.best["train"] > 0.8
    assert set(outcome.bytes_per_iteration) == {"weights"}
    assert len(outcome.idle_share) == 2


def test_one_rank_is_adam_with_a_fresh_optimiser_each_round() -> None:
    from gfgnn.baseline.parallel import run as run_parallel

    graph = random_graph(nodes=40, labelled=20)
    model = ModelConfig(family="gcn", layers=3, hidden=6)
    asked = {"budget": Budget(iterations=8), "seed": 0, "threads": 1, "ranks": 1, "backend": "thread"}
    whole = run(graph, model, **asked, dropout=0.0, local=8, dtype="float64")
    adam = run_parallel(graph, model, **asked, dropout=0.0, dtype="float64")
    assert whole.history[0]["step_loss"] == pytest.approx(adam.history[-1]["step_loss"], abs=1e-12)
    assert whole.bytes_per_iteration == {}


def test_too_few_columns() -> None:
    graph, asked = random_graph(), {"budget": Budget(iterations=1), "seed": 0, "threads": 1}
    with pytest.raises(InputError, match="hidden columns"):
        run(graph, ModelConfig(family="gcn", layers=2, hidden=1), **asked)
    with pytest.raises(InputError, match="local"):
        run(graph, ModelConfig(family="gcn", layers=2, hidden=4), **asked, local=0)
