"""gfgnn train on a grid of processes: what it writes and prints, and how it ends when something happens to it."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from grid_processes import (
    OPTIONS,
    START,
    check_lines,
    processes,
    start,
    trained,
    wait_for_iterations,
)
from typer.testing import CliRunner
from waiting import wait_until

import gfgnn
from gfgnn.cli import app

#: seconds between a failure and the end of a run, beside the timeout: the machine may be busy
BUSY = 10.0
GRID = ["--parts", "2", "--stages", "2"]
ENDLESS = [*OPTIONS, *GRID, "--iters", "1000000", "--max-seconds", "100", "--threads", "1"]
LOGS = [f"rank{rank}.log" for rank in range(4)]


def test_everything_is_written_and_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    made = run.invoke(app, ["partition", *OPTIONS[:2], "--parts", "2", "--out", "parts.npz"])
    assert made.exit_code == 0, made.stderr
    settings = "--partition parts.npz --stage-bounds 2 --iters 5 --timeline --threads 1 --json --out"
    done = run.invoke(app, ["train", *OPTIONS, *GRID, *settings.split(), "später/1"])
    assert done.exit_code == 0, done.stderr
    assert "Traceback" not in done.stderr
    out = Path("später/1")
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml", "curves.png", "metrics.jsonl", "model.safetensors", "ranks", "result.json", "timeline.json",
        "timeline.png",
    ]  # fmt: skip
    assert sorted(path.name for path in (out / "ranks").iterdir()) == LOGS
    assert (out / "timeline.png").read_bytes()[:4] == b"\x89PNG"
    summary = json.loads((out / "result.json").read_text())
    assert summary == json.loads(done.stdout.splitlines()[-1])
    assert (summary["parts"], summary["stages"], summary["iterations"]) == (2, 2, 5)
    assert [rank["blocks"] for rank in summary["ranks"]] == [[0, 2], [0, 2], [2, 6], [2, 6]]
    assert not {"waits", "step_spans"} & set(summary["ranks"][0]), "long lists belong to the timeline"
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    assert sum(event.get("cat") == "step" for event in events) == 4 * 5
    alone = trained(dtype="float32")
    check_lines(lines(out), alone.history, 1e-3)
    prediction = gfgnn.predict(out, alone.graph).prediction
    assert prediction is not None
    assert prediction.tolist() == gfgnn.predict(alone, alone.graph).prediction.tolist()

    again = run.invoke(
        app, ["train", "--config", str(out / "config.toml"), "--backend", "thread", "--out", "2"]
    )
    assert again.exit_code == 0, again.stderr
    check_lines(lines(Path("2")), lines(out), 1e-3)
    assert Path("2/timeline.png").exists()


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_killed_ranks_and_killed_runs(tmp_path: Path) -> None:
    """Two runs at once: a rank of one is killed, and the other gets SIGTERM."""
    ended, temporary = tmp_path / "ended", tmp_path / "temporary"
    temporary.mkdir()
    other = start("train", *ENDLESS, "--out", str(ended), env={"TMPDIR": str(temporary)})
    fails_in_one_line(
        tmp_path / "killed", signal.SIGKILL, "was killed by signal 9 (SIGKILL)", timeout=30, within=BUSY
    )
    wait_for_iterations(ended)
    other.terminate()
    other.communicate(timeout=BUSY)
    assert other.returncode == 128 + signal.SIGTERM
    nothing_half_written(ended)
    assert list(temporary.iterdir()) == [], "shards of a large graph must not stay"


def test_stopped_ranks_and_ctrl_c(tmp_path: Path) -> None:
    """Two runs at once: a rank of one is stopped, and the other gets Ctrl-C."""
    out = tmp_path / "interrupted"
    other = start("train", *ENDLESS, "--out", str(out))
    fails_in_one_line(
        tmp_path / "stopped", signal.SIGSTOP, "did not answer for 4 s", timeout=5, within=5 + BUSY
    )
    wait_for_iterations(out)
    other.send_signal(signal.SIGINT)
    output, errors = other.communicate(timeout=START)
    assert other.returncode == 130, errors
    assert "Interrupted: this is the best iterate up to then." in output
    summary = json.loads((out / "result.json").read_text())
    assert summary["interrupted"]
    assert len(lines(out)) == summary["iterations"] >= 3
    assert (out / "model.safetensors").exists()
    assert not (out / "metrics.jsonl.part").exists()
    assert wait_until(lambda: not processes(out), BUSY), "orphans"


def fails_in_one_line(out: Path, number: int, what: str, *, timeout: int, within: float) -> None:
    """Sends rank 2 of a run a signal: the command names it, ends with status 1 in time and leaves nothing behind."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send_to_rank_2, out, number)
        done = CliRunner().invoke(app, ["train", *ENDLESS, "--timeout", str(timeout), "--out", str(out)])
        assert time.monotonic() - sent.result() < within
    assert done.exit_code == 1, done.stderr
    assert done.stdout == ""
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.stderr.endswith(f"{error}\n"), "the last word"
    assert error.startswith(f"error: rank 2 (part 0, stage 1) {what}")
    iteration = error.partition(" after iteration ")[2].partition(";")[0]
    assert int(iteration) >= 2, error
    assert error.endswith(f"; its log: {out / 'ranks' / 'rank2.log'}")
    assert "Traceback" not in done.stderr
    nothing_half_written(out)


def send_to_rank_2(out: Path, number: int) -> float:
    """Sends the signal when the run is under way; says when that was."""
    wait_for_iterations(out)
    (zygote,) = [process for process in processes(out) if process.ppid() == os.getpid()]
    ranks = sorted(zygote.children(), key=lambda rank: rank.pid)  # forked one after the other
    assert len(ranks) == 4
    ranks[2].send_signal(number)
    return time.monotonic()


def nothing_half_written(out: Path) -> None:
    assert sorted(os.listdir(out)) == ["config.toml", "ranks"]
    assert [name for name in sorted(os.listdir(out / "ranks")) if name != "launcher.log"] == LOGS
    assert wait_until(lambda: not processes(out), BUSY), "orphans"
