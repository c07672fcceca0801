"""Profiles of real runs: every solver, grids, and that nothing changes by being watched."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from gfgnn.cli import app
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model
from gfgnn.profiling.labels import KINDS
from gfgnn.profiling.trace import profile_trace
from gfgnn.result import Result
from gfgnn.train import train

GRAPH = "synthetic:nodes=90,classes=3,features=6"
GCNII = ModelConfig(family="gcnii", layers=4, hidden=8)


def run(model: ModelConfig = GCNII, **settings: Any) -> Result:
    return train(model, load(GRAPH), TrainConfig(threads=1, **settings))


def check(profile: dict[str, Any], wanted: set[str]) -> None:
    """Its kinds add up, those wanted have calls and time, and no other has calls."""
    kinds = profile["kinds"]
    assert list(kinds) == list(KINDS)
    assert sum(tally["seconds"] for tally in kinds.values()) == pytest.approx(profile["seconds"])
    assert {kind for kind, tally in kinds.items() if tally["calls"]} == wanted
    assert all(kinds[kind]["seconds"] > 0 for kind in wanted)
    assert kinds["other"]["seconds"] > 0


ALONE = {"sparse product", "dense product", "Gram", "solve", "elementwise"}


@pytest.mark.parametrize(
    ("model", "settings", "wanted"),
    [
        (GCNII, {"solver": "target"}, ALONE),
        (GCNII, {"solver": "adam"}, ALONE - {"Gram", "solve"}),
        (ModelConfig(family="gcn", layers=2, hidden=8), {"solver": "admm"}, ALONE),
        (ModelConfig(family="sign", layers=2, hidden=8), {"solver": "pdadmm-g"}, {"dense product", "elementwise"}),
    ],
)  # fmt: skip
def test_kinds_of_every_solver(model: ModelConfig, settings: dict[str, Any], wanted: set[str]) -> None:
    plain, result = run(model, iters=5, **settings), run(model, iters=5, profile=True, **settings)
    assert result.profile is not None
    (profile,) = result.profile["ranks"]
    check(profile, wanted)
    assert (profile["rank"], profile["iterations"]) == (0, 2)
    assert profile["plain_seconds"] > 0
    assert json.loads(json.dumps(result.profile)) == result.summary()["profile"]
    # being watched changes no bit
    assert all(torch.equal(weight, plain.weights[name]) for name, weight in result.weights.items())
    assert [line["step_loss"] for line in result.history] == [line["step_loss"] for line in plain.history]
    assert (plain.profile, plain.profile_spans) == (None, ())


def test_bytes_and_flops_of_an_iteration() -> None:
    """SGC is one product with the table of features each way, and one solve."""
    result = run(ModelConfig(family="sgc", layers=2), iters=2, profile=True)
    assert result.profile is not None
    tallies = result.profile["ranks"][0]["kinds"]
    solve = {name: tallies["solve"][name] for name in ("calls", "bytes", "flops")}
    # scores of 90 nodes from 6 features for 3 classes, its transpose, and what the bias takes back: 6 numbers by 3
    assert tallies["dense product"]["flops"] == 2 * (2 * 90 * 6 * 3) + 2 * 6 * 3
    assert solve == {"calls": 1, "bytes": 4 * (36 + 18 + 18), "flops": 2 * 6 * 6 * 3}


def test_a_grid_of_threads() -> None:
    config: dict[str, Any] = {"parts": 2, "stages": 2, "stage_bounds": "1", "iters": 4}
    plain, result = run(backend="thread", **config), run(backend="thread", profile=True, **config)
    assert all(torch.equal(weight, plain.weights[name]) for name, weight in result.weights.items())
    assert result.profile is not None
    ranks = result.profile["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
    for rank, report in zip(ranks, result.ranks, strict=True):
        encoder = ALONE - {"Gram", "sparse product"}  # whose features have been propagated in the set-up
        check(rank, (ALONE if report["stage"] else encoder) | {"exchange", "waiting"})
        assert rank["kinds"]["exchange"]["bytes"] > 0
    assert all("profile" not in rank for rank in result.ranks)
    events = profile_trace(result.profile_spans)["traceEvents"]
    assert {event["pid"] for event in events if event.get("cat") == "waiting"} == {0, 1, 2, 3}


def test_a_grid_of_processes() -> None:
    result = run(parts=2, iters=2, profile=True)
    assert result.profile is not None
    for number, rank in enumerate(result.profile["ranks"]):
        assert rank["rank"] == number
        check(rank, ALONE | {"exchange", "waiting"})
    starts = [spans[0][2] for spans in result.profile_spans]
    assert abs(starts[0] - starts[1]) < 60e9, "all spans are on one clock"


def test_a_single_iteration_has_a_profile() -> None:
    profile = run(iters=1, profile=True).profile
    assert profile is not None
    check(profile["ranks"][0], ALONE)


def test_trials_of_a_search_are_not_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    tune, profiled = importlib.import_module("gfgnn.tune"), []

    def noted(model: Model, graph: Graph, config: TrainConfig) -> Result:
        profiled.append(config.profile)
        return train(model, graph, config)

    monkeypatch.setattr(tune, "train", noted)
    assert tune.tune(
        ModelConfig(family="sgc"), load(GRAPH), TrainConfig(threads=1, iters=2, profile=True)
    ).profile
    assert not any(profiled)
    assert len(profiled) > 1


def command(*arguments: str) -> Any:
    options = f"--data {GRAPH} --model gcnii --layers 2 --hidden 8 --iters 4 --threads 1 --profile".split()
    return CliRunner().invoke(app, ["train", *options, *arguments])


def test_the_command_prints_a_table_and_writes_a_trace(tmp_path: Path) -> None:
    done = command("--out", str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    first = next(
        number for number, line in enumerate(lines) if line.startswith("Profile: means of 2 iterations")
    )
    assert lines[first + 3].split()[:3] == ["kind", "ms", "share"]
    shown = [line.split("  ")[0] for line in lines[first + 4 : first + 11]]
    assert shown == ["sparse product", "dense product", "Gram", "solve", "elementwise", "other", "iteration"]
    assert "of an iteration is" in lines[first + 12]
    trace = json.loads((tmp_path / "profile_trace.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"spmm", "moment_sums", "iteration 2", "aten::linalg_cholesky_ex"} <= {e["name"] for e in spans}
    assert {e["cat"] for e in spans} >= {"sparse product", "Gram", "solve", "elementwise"}
    assert all(event["dur"] >= 0 for event in spans)
    stored = json.loads((tmp_path / "result.json").read_text())["profile"]
    assert stored["ranks"][0]["kinds"]["Gram"]["flops"] > 0


def test_without_a_folder_there_is_a_table_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "For a trace that Chrome and Perfetto show, add --out DIR" in command().stdout
    assert list(tmp_path.iterdir()) == []
    assert "Profile" not in command("--json").stdout


def test_a_profile_is_not_compared() -> None:
    done = command("--compare-adam")
    assert done.exit_code == 2
    assert "--profile makes iterations longer" in done.stderr
