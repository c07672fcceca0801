"""Training on grids of real processes: the same network as on one device, and a complete result."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from grid_processes import MODEL, START, check_same, popen, small, trained

import gfgnn
from gfgnn.config import TrainConfig
from gfgnn.launch.failure import RankFailure
from gfgnn.result import Result


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where runs put temporary files; a run that ends well leaves none."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@cache
def reference(dtype: str) -> Result:
    """The run on one device."""
    return trained(dtype=dtype)


@pytest.mark.parametrize(
    ("parts", "stages", "dtype", "tolerance"),
    # float32: at most 5e-5 measured, relative to the largest entry
    [(2, 2, "float64", 1e-10), (4, 1, "float64", 1e-10), (2, 2, "float32", 1e-3)],
)
def test_processes_train_the_network_of_one_device(
    parts: int, stages: int, dtype: str, tolerance: float
) -> None:
    result = trained(parts=parts, stages=stages, dtype=dtype)
    check_same(result, reference(dtype), tolerance)
    assert {weight.dtype for weight in result.weights.values()} == {getattr(torch, dtype)}
    check_complete(result, parts, stages)


def check_complete(result: Result, parts: int, stages: int) -> None:
    """Everything a result says of a grid is there and fits together."""
    alone = reference(result.config.dtype)
    assert result.settings == alone.settings
    assert result.summary().keys() == alone.summary().keys()
    assert (result.summary()["parts"], result.summary()["stages"]) == (parts, stages)
    assert 0 < result.setup_seconds < result.seconds_to_best <= result.seconds
    assert result.seconds == result.history[-1]["seconds"]
    assert not result.interrupted
    assert not result.diverged
    assert result.plan is not None
    assert result.plan.partition is not None
    assert len(result.plan.stages.bounds) == stages + 1
    nodes = result.plan.partition.assignment.bincount().tolist()
    bounds = result.plan.stages.bounds
    for number, rank in enumerate(result.ranks):
        stage, part = divmod(number, parts)
        assert (rank["rank"], rank["part"], rank["stage"]) == (number, part, stage)
        assert (rank["nodes"], rank["blocks"]) == (nodes[part], list(bounds[stage : stage + 2]))
        assert rank["halo"] == result.plan.partition.report.halo[part]
        assert rank["threads"] == 1
        assert 0 < rank["step_seconds"] <= result.seconds
        assert rank["traffic"]["halo"]["bytes"] > 0
        assert (rank["traffic"]["stage"]["bytes"] > 0) == (stages > 1)
    assert len(result.ranks) == parts * stages
    assert result.peak_rss_bytes == max(rank["peak_rss_bytes"] for rank in result.ranks)


def test_stages_that_do_not_wait_repeat_bit_for_bit() -> None:
    first, second = (trained(stages=2, staleness=1, iters=12) for _ in range(2))
    for name, weight in first.last_weights.items():
        assert torch.equal(weight, second.last_weights[name]), name
    assert [line["step_loss"] for line in first.history] == [line["step_loss"] for line in second.history]
    assert first.best_iteration == second.best_iteration
    assert first.history[-1]["step_loss"] < 0.5 * first.history[0]["step_loss"]


def test_evaluation_and_patience_are_those_of_one_device() -> None:
    """Iterations without evaluation do not end a run: ranks agree only where they evaluate."""
    settings: dict[str, Any] = {"iters": 60, "eval_every": 3}
    result = trained(parts=2, stages=2, patience=4, **settings)
    assert [line["iteration"] for line in result.history if line["loss"] is not None][:3] == [3, 6, 9]
    assert 4 < result.iterations < 60
    assert result.iterations % 3 == 0
    check_same(result, trained(patience=6, **settings), 1e-9)


def test_all_ranks_stop_at_the_time_limit_and_the_last_iterate_is_taken_without_validation() -> None:
    graph = small().replace(val_mask=torch.zeros(90, dtype=torch.bool))
    result = trained(graph, parts=2, stages=2, iters=100_000, max_seconds=0.3, timeline=True)
    assert 1 <= result.iterations < 100_000
    assert result.seconds >= 0.3
    assert [len(rank["step_spans"]) for rank in result.ranks] == [result.iterations] * 4
    assert result.best_iteration == result.iterations
    assert result.val_accuracy is None
    assert result.notes == ("No validation node is labelled: the last iterate was taken.",)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_callback_may_end_training_as_on_one_device(backend: str) -> None:
    def on_iteration(line: dict[str, Any]) -> None:
        if line["iteration"] >= 2:
            raise KeyboardInterrupt

    config = TrainConfig(parts=2, iters=100_000, threads=1, timeout=30, backend=backend)
    result = gfgnn.train(MODEL, small(), config, on_iteration=on_iteration)
    assert result.interrupted
    assert 2 <= result.iterations < 100_000
    assert len(result.history) == result.iterations
    assert result.ranks[0]["traffic"]["halo"]["messages"] > 0


def test_only_the_logs_are_kept_when_a_rank_fails(temporary: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gfgnn.launch.grid.save_json", lambda folder, name, value: None)  # ranks find no task
        with pytest.raises(RankFailure) as caught:
            trained(parts=2)
    log = caught.value.log
    assert "FileNotFoundError" in log.read_text()
    assert [path.name for path in log.parent.iterdir() if path.suffix == ".json"] == []
    for path in log.parent.iterdir():
        path.unlink()
    log.parent.rmdir()


SCRIPT = """
import gfgnn

graph = gfgnn.load({data!r})
model = gfgnn.ModelConfig(family="gcnii", layers=4, hidden=8)
result = gfgnn.train(model, graph, gfgnn.TrainConfig(parts=2, stages=2, iters=2))
print(result.iterations, len(result.ranks))
"""


def test_a_script_needs_no_guard_and_may_lie_anywhere(tmp_path: Path) -> None:
    """Ranks do not run the script again; its folder has a name with letters of many alphabets."""
    from grid_processes import DATA

    folder = tmp_path / "später κατά 後"
    folder.mkdir()
    (folder / "mine.py").write_text(SCRIPT.format(data=DATA))
    process = popen([sys.executable, "mine.py"], cwd=folder)
    output, errors = finish(process)
    assert process.returncode == 0, errors
    assert output == "2 4\n"


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    return process.communicate(timeout=START)
