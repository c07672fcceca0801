"""What the block solver may keep less of, or take less often: the results say whether it is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from networks import branched
from problems import DEEP, FAMILIES, directed_weighted, held_out, make, run, start, synthetic
from torch import Tensor

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig, TargetConfig, TrainConfig
from gfgnn.ops import arena as arenas
from gfgnn.ops.arena import Arena
from gfgnn.solver import target as module
from gfgnn.solver.refresh import checkpoints, refresh
from gfgnn.train import train

steps = pytest.mark.parametrize("step", ["sweep", "polar"])


def weights(family: str, **settings: Any) -> dict[str, Tensor]:
    """After eight iterations on a directed, weighted graph."""
    return run(make(family, directed_weighted(), layers=6), 8, **settings)[1].weights


def test_only_the_top_activations_are_kept() -> None:
    p = make("gcn", layers=5)
    acts = refresh(p, start(p, step="sweep")[1], unit_spread=False)
    assert list(acts.outputs) == [3]
    assert set(acts.gates) == {0, 1, 2, 3}
    assert set(acts.inputs) == {1, 2, 3}


@steps
@pytest.mark.parametrize("family", [*DEEP, "sign"])
def test_recomputing_changes_nothing(family: str, step: str) -> None:
    plain = weights(family, step=step)
    for name, value in weights(family, step=step, recompute=True).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-9, atol=1e-11)


def test_recomputing_with_sampled_dropout_draws_the_same_masks() -> None:
    plain = weights("gcn", step="polar", sampled_dropout=0.2)
    for name, value in weights("gcn", step="polar", sampled_dropout=0.2, recompute=True).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("parts", "stages", "staleness"), [(2, 1, 0), (1, 2, 0), (2, 2, 1)])
@pytest.mark.parametrize("family", ["gcn", "gcnii"])
def test_recomputing_on_grids(family: str, parts: int, stages: int, staleness: int) -> None:
    config = TrainConfig(
        iters=6,
        dtype="float64",
        parts=parts,
        stages=stages,
        staleness=staleness,
        backend="thread",
        partitioner="ldg",
    )
    model = ModelConfig(family=family, layers=7, hidden=6)
    plain = train(model, directed_weighted(), config)
    again = train(model, directed_weighted(), replace(config, target=TargetConfig(recompute=True)))
    for name, value in plain.last_weights.items():
        torch.testing.assert_close(again.last_weights[name], value, rtol=1e-9, atol=1e-11)


def test_few_inputs_are_kept() -> None:
    p = make("gcn", layers=17)
    assert list(checkpoints(p)) == [1, 5, 9, 13]
    acts = refresh(p, start(p, step="sweep", recompute=True)[1], unit_spread=False)
    assert not acts.inputs
    assert set(acts.checkpoints) == {1, 5, 9, 13}


def test_recomputing_needs_a_chain() -> None:
    graph = synthetic()
    with pytest.raises(InputError, match="recompute is written for chains"):
        train(branched(graph), graph, TrainConfig(target=TargetConfig(recompute=True)))


@steps
@pytest.mark.parametrize(("storage", "close"), [("bf16", 0.1), ("fp16", 0.05), ("float32", 1e-3)])
def test_storage_rounds_what_is_kept(step: str, storage: str, close: float) -> None:
    """The same problem in float64, with T kept in fewer bits: the loss is close, and the graph still learnt."""
    p = make("gcn", layers=4)
    plain, fewer = run(p, 10, step=step)[2], run(p, 10, step=step, storage=storage)[2]
    assert fewer != plain
    assert fewer[-1] == pytest.approx(plain[-1], rel=close)
    acts = refresh(p, start(p, step=step, storage=storage)[1], unit_spread=False)
    expected = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}[storage]
    assert {t.dtype for t in acts.inputs.values()} == {expected}


@steps
def test_gram_matrices_that_serve_longer(step: str) -> None:
    p = make("gcn", layers=4)
    plain, rarely = run(p, 20, step=step), run(p, 20, step=step, gram_every=4)
    assert rarely[2][:2] == plain[2][:2]  # losses before the first step and after it
    assert rarely[2] != plain[2]
    assert held_out(p, rarely[1]) > held_out(p, plain[1]) - 0.05  # type: ignore[operator]


@steps
@pytest.mark.parametrize("family", DEEP)
def test_rows_far_from_labels_are_skipped(family: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They weigh nothing, so that nothing changes."""
    graph = synthetic()
    few = torch.zeros(graph.num_nodes, dtype=torch.bool)
    few[graph.train_mask.nonzero()[:6, 0]] = True
    p = make(family, graph.replace(train_mask=few), layers=2)
    _, state, losses = run(p, 6, step=step)
    if family != "gcn":  # the others' only hidden block hears of more
        monkeypatch.setattr(module, "_rows_that_count", lambda mass: mass.nonzero().squeeze(1))
        _, state, losses = run(p, 6, step=step)
    monkeypatch.setattr(module, "_rows_that_count", lambda mass: None)
    _, full, expected = run(p, 6, step=step)
    assert losses == pytest.approx(expected, rel=1e-9)
    for name, value in full.weights.items():
        torch.testing.assert_close(state.weights[name], value, rtol=1e-7, atol=1e-10)
    assert state.fixed.rows != full.fixed.rows


@steps
@pytest.mark.parametrize("settings", [{}, {"recompute": True}, {"storage": "bf16"}, {"sampled_dropout": 0.2}])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_array_is_used_after_it_was_recycled(
    family: str, settings: dict[str, Any], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every recycled array is filled with NaN; the same bits come out as with no arena. None piles up."""
    monkeypatch.setattr(arenas, "is_lean", lambda: False)
    p = make(family, directed_weighted(), layers=5)
    results, held = [], []
    for arena in (Arena(poison=True), None):
        solver, state = start(p, step=step, **settings)
        if arena is None:
            state.arena.take = lambda *_: None  # type: ignore[assignment, method-assign, return-value]
        else:
            state.arena = arena
        for _ in range(6):
            state, info = solver.step(p, state)
            held.append(state.arena.nbytes)
        results.append((info.loss, state.weights))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(w, results[1][1][n]) for n, w in results[0][1].items())
    assert held[5] == held[3]
    assert held[3] > 0 or family == "sgc"
    assert held[6:] == [0] * 6


@pytest.mark.parametrize("wrong", [{"gram_every": 0}, {"storage": "int8"}, {"recompute": 1}])
def test_settings_check_themselves(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        TargetConfig(**wrong)
