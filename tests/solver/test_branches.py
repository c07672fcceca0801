"""The block solver on networks that are no chains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from networks import branched, with_terms
from problems import directed_weighted, held_out, make, multilabel, run, start, synthetic

from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.forward import forward
from gfgnn.graph.graph import Graph
from gfgnn.model.blocks import FEATURES
from gfgnn.model.build import build_model
from gfgnn.problem import Problem, prepare
from gfgnn.solver.refresh import refresh
from gfgnn.solver.setup import node_weights, reference_weights, response
from gfgnn.solver.sweep import SweepStep
from gfgnn.train import train

both = pytest.mark.parametrize("step", ["sweep", "polar"])


def branched_problem(graph: Graph | None = None) -> Problem:
    graph = synthetic() if graph is None else graph
    return prepare(branched(graph, 12), graph, dtype=torch.float64)


@both
@pytest.mark.parametrize("family", ["gcn", "gcnii", "sage", "sgc", "sign"])
@pytest.mark.parametrize("graph", [synthetic, directed_weighted])
def test_naming_the_sources_changes_nothing(step: str, family: str, graph) -> None:  # type: ignore[no-untyped-def]
    chain = make(family, graph())
    named = prepare(with_terms(chain.model), graph(), dtype=torch.float64)
    for a, b in zip(node_weights(chain, "mass"), node_weights(named, "mass"), strict=True):
        torch.testing.assert_close(a, b)
    assert response(chain) == pytest.approx(response(named))
    weights, others = (run(p, 6, step=step)[1].weights for p in (chain, named))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=1e-8, atol=1e-9)


@both
def test_a_branched_network_learns(step: str) -> None:
    p = branched_problem()
    _, state, losses = run(p, 20, step=step)
    assert losses[-1] < 0.6 * losses[0]
    assert held_out(p, state) > 0.75
    assert all(bool(torch.isfinite(w).all()) for w in state.weights.values())


@both
def test_branched_networks_take_other_targets(step: str) -> None:
    p = branched_problem(multilabel())
    assert held_out(p, run(p, 12, step=step)[1]) > 0.75


def test_node_weights_keep_their_total_on_every_cut() -> None:
    """What reaches the input blocks, and what other blocks take from the features, is the labels' weight."""
    p = branched_problem()
    weights = node_weights(p, "mass")
    assert all(bool((w >= 0).all()) for w in weights)
    head, inputs = p.model.blocks[-1], (weights[0].sum() + weights[1].sum())
    # one of the output's three terms takes the features; its share is spread over the other two
    assert any(term.source == FEATURES for term in head.terms)
    assert float(inputs) == pytest.approx(float(weights[-1].sum()), rel=0.01)


def test_references() -> None:
    p = branched_problem()
    _, state = start(p, step="sweep")
    eye = torch.eye(12, dtype=torch.float64) / 2
    torch.testing.assert_close(reference_weights(p)["block2.weight"], torch.cat([eye, eye]))
    narrowing = state.weights["block4.weight"]
    torch.testing.assert_close(narrowing.t() @ narrowing, torch.eye(6, dtype=torch.float64))
    assert torch.equal(state.fixed.references["block4.weight"], narrowing)
    assert "block3.weight" not in state.weights


def test_scales_of_the_returned_weights_are_those_of_these_weights() -> None:
    p = branched_problem()
    solver, state, _ = run(p, 3, step="sweep")
    weights = solver.weights(p, state)
    fitted: dict[str, torch.Tensor] = {}
    forward(p, state.weights, fitted)
    assert set(weights) == set(state.weights) | set(fitted)
    torch.testing.assert_close(weights["block3.scale"], fitted["block3.scale"])


def test_refresh_and_forward_agree() -> None:
    p = branched_problem()
    _, state, _ = run(p, 2, step="sweep")
    acts = refresh(p, state, unit_spread=False)
    torch.testing.assert_close(acts.scores, forward(p, state.weights)[p.train_index])


class Recording(SweepStep):
    """Keeps what every block is told."""

    def __init__(self) -> None:
        self.told: dict[str, torch.Tensor] = {}

    def encoder(self, state, index, block, r):  # type: ignore[no-untyped-def]
        self.told[f"block{index}"] = r
        return super().encoder(state, index, block, r)


def test_both_input_blocks_are_told() -> None:
    p = branched_problem()
    solver, state, _ = run(p, 2, step="sweep")
    acts, rule = refresh(p, state, unit_spread=False), Recording()
    messages = solver._from_above(p, state, acts, rule)
    assert set(messages) == {4, 5}
    solver._hidden(p, state, acts, messages, rule)
    assert set(rule.told) == {"block0", "block1"}
    assert not messages
    assert all(bool(r.any()) for r in rule.told.values())


def test_train_and_predict_and_store(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import gfgnn

    graph = synthetic()
    result = train(branched(graph, 12), graph, TrainConfig(iters=8))
    assert "block3.scale" in result.weights
    gfgnn.save_model(tmp_path / "model.safetensors", result.model, result.weights)
    again = gfgnn.predict(tmp_path, graph)
    torch.testing.assert_close(again.probability, gfgnn.predict(result, graph).probability)
    right = (again.prediction == graph.y)[graph.test_mask].float().mean()
    assert float(right) == pytest.approx(result.test_accuracy)


@pytest.mark.parametrize("changes", [{"parts": 2}, {"stages": 2}])
def test_branches_are_not_split(changes: dict[str, int]) -> None:
    graph = synthetic()
    with pytest.raises(gfgnn_error(), match="branches"):
        train(branched(graph), graph, TrainConfig(**changes))
    with pytest.raises(gfgnn_error(), match="chains"):
        train(branched(graph), graph, TrainConfig(solver="adam"))


def gfgnn_error() -> type[Exception]:
    from gfgnn.checks import InputError

    return InputError


def test_relations_are_told_apart() -> None:
    """Neighbours by relation 0 share the class, those by relation 1 do not: one weight for both cannot tell."""
    graph = synthetic(3.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(graph.num_nodes, (2, graph.num_edges), generator=generator)
    edges = torch.cat([graph.edge_index, noise], dim=1)
    kinds = torch.arange(2).repeat_interleave(graph.num_edges)
    same = {key: getattr(graph, key) for key in ("x", "y", "train_mask", "val_mask", "test_mask")}
    typed = Graph.from_edges(edges, graph.num_nodes, edge_type=kinds, **same)
    assert typed.num_relations == 2
    config = ModelConfig(family="rgcn", layers=3, hidden=12)
    model = build_model(config, typed)
    assert model.blocks[1].fan_in == 36
    scores = []
    for g in (typed, typed.replace(raw=None)):
        found = [train(config, g, TrainConfig(iters=20, seed=seed)).test_accuracy for seed in range(3)]
        scores.append(sum(found) / 3)
    assert scores[0] > scores[1] + 0.05


def test_a_missing_relation_is_named() -> None:
    graph = synthetic()
    model = build_model(ModelConfig(family="rgcn", layers=2, hidden=4), graph)
    other = replace(model, operators=(replace(model.operators[0], relation=3),))
    with pytest.raises(gfgnn_error(), match=r"relation 3.*relations 0 to 0"):
        prepare(other, graph)
