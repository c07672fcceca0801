"""The auto rule on problems made for it: what it chooses, what it measures, and that stated settings stand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import directed_weighted, make, multilabel, regression, start

from gfgnn.config import ModelConfig, TargetConfig
from gfgnn.graph.graph import Graph
from gfgnn.graph.homophily import PRIOR_EDGES
from gfgnn.model.build import build_model
from gfgnn.problem import Problem, prepare
from gfgnn.solver.auto import HOMOPHILOUS, LABEL_RICH, Settings, resolve


def ring(
    nodes: int, features: int, labelled: int, blocks: int = 2, layers: int = 4, family: str = "gcn"
) -> Problem:
    graph = ring_graph(nodes, features, labelled, blocks)
    return prepare(build_model(ModelConfig(family=family, layers=layers, hidden=4), graph), graph)


def ring_graph(nodes: int, features: int, labelled: int, blocks: int) -> Graph:
    """A ring of nodes whose classes come in ``blocks`` stretches, alternating between two classes."""
    index = torch.arange(nodes)
    return Graph.from_edges(
        torch.stack([index, (index + 1) % nodes]), nodes, x=torch.eye(nodes)[:, :1].repeat(1, features),
        y=(index * blocks // nodes) % 2, train_mask=index < labelled, num_classes=2, symmetrise=True,
    )  # fmt: skip


def chosen(problem: Problem, **settings: Any) -> Settings:
    return resolve(TargetConfig(**settings), problem.model, problem.facts)


def test_many_labels_for_each_feature_mean_the_polar_step() -> None:
    rich = int(LABEL_RICH * 10)
    assert chosen(ring(200, 10, rich)).step == "polar"
    assert chosen(ring(200, 10, rich - 1)).step == "sweep"
    assert chosen(ring(200, 10, rich), step="sweep").step == "sweep"
    assert chosen(ring(200, 10, rich - 1), step="polar").step == "polar"


@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_more_labels_mean_less_regularisation(step: str) -> None:
    """Down to a floor; the ridges never grow with the number of labels."""
    settings = [chosen(ring(400, 20, k), step=step) for k in (2, 5, 10, 40, 100, 400)]
    for name in ("ridge_encoder", "ridge_output"):
        values = [getattr(s, name) for s in settings]
        assert values == sorted(values, reverse=True)
        assert values[0] > 3 * values[-1] > 0


def test_closed_form_dropout_only_where_labels_are_few() -> None:
    few, many = chosen(ring(400, 20, 4)), chosen(ring(400, 20, 60))
    assert few.step == many.step == "sweep"
    assert few.dropout_encoder > 0
    assert few.dropout_output > 0
    assert many.dropout_encoder == many.dropout_output == 0
    polar = chosen(ring(400, 20, 4), step="polar")
    assert polar.dropout_encoder == polar.dropout_output == 0


@pytest.mark.parametrize(
    ("family", "layers", "hidden"), [("gcn", 2, 1), ("gcn", 6, 4), ("gcnii", 16, 16), ("sgc", 3, 1)]
)
def test_hidden_steps_of_the_sweep_share_one_step(family: str, layers: int, hidden: int) -> None:
    p = ring(40, 20, 10, family=family, layers=layers)
    assert chosen(p, step="sweep").step_size == pytest.approx(1 / hidden)


def test_neighbours_that_say_little_mean_more_regularisation() -> None:
    """Two rings with the same labels and features; in one of them neighbours differ as often as not."""
    told, untold = (chosen(ring(400, 20, 400, blocks), step="sweep") for blocks in (2, 200))
    assert untold.ridge_encoder > 2 * told.ridge_encoder
    assert untold.ridge_output > 2 * told.ridge_output


@pytest.mark.parametrize(("blocks", "agree"), [(2, 398), (4, 396), (200, 200), (400, 0)])
def test_homophily_by_hand(blocks: int, agree: int) -> None:
    """Both classes are half of all edge ends, so chance is one half; each edge of the ring is stored twice."""
    adjusted, count = 2 * agree / 400 - 1, 800
    expected = (count * adjusted + PRIOR_EDGES) / (count + PRIOR_EDGES)
    assert ring(400, 5, 400, blocks).facts.homophily == pytest.approx(expected)


def test_homophily_sees_training_labels_only() -> None:
    """The first 100 of 400 nodes are one stretch of a single class, whatever comes after."""
    assert ring(400, 5, 100, 4).facts.homophily == 1.0
    graph = ring_graph(400, 5, 150, 4)
    flipped = graph.y.clone()
    flipped[150:] = 1 - flipped[150:]
    p, other = make("gcn", graph), make("gcn", graph.replace(y=flipped))
    assert other.facts.homophily == p.facts.homophily < 1.0


def test_homophily_where_it_cannot_be_known() -> None:
    """No edge between labelled nodes, or targets that are not classes: neighbours are trusted."""
    assert ring(40, 5, 1).facts.homophily == 1.0
    for graph in (multilabel(), regression()):
        assert make("gcn", graph).facts.homophily == 1.0
    assert 0.5 < make("gcn", directed_weighted()).facts.homophily < 1.0
    assert 0 < HOMOPHILOUS <= 1


@pytest.mark.parametrize("step", ["sweep", "polar"])
def test_stated_settings_stand(step: str) -> None:
    stated = {
        "ridge_encoder": 0.11, "ridge_hidden": 0.12, "ridge_output": 0.13, "dropout_encoder": 0.14,
        "dropout_output": 0.15, "momentum": 0.16, "prox": 0.17, "rho": 0.18, "step_size": 0.19,
        "node_weights": "uniform", "sampled_dropout": 0.2, "freeze_hidden": True, "step": step,
    }  # fmt: skip
    settings = chosen(ring(40, 5, 10), **stated).to_dict()
    assert {name: settings[name] for name in stated} == stated
    one = chosen(ring(40, 5, 10), step=step, rho=0.18)
    rest = chosen(ring(40, 5, 10), step=step)
    differing = [name for name, value in one.to_dict().items() if value != rest.to_dict()[name]]
    assert differing == ["rho"]
    assert rest.node_weights == "mass"


def test_zero_is_a_setting_too() -> None:
    assert chosen(ring(40, 5, 10), momentum=0.0, ridge_hidden=0).momentum == 0.0


def test_the_solver_uses_what_the_rule_chose() -> None:
    p = make("gcn")
    _, state = start(p)
    assert state.fixed.settings == chosen(p)
    assert state.fixed.settings.step == "polar"  # 140 labels and six features
