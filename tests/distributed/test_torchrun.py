"""Ranks that torchrun starts: the same network, several runs in one program, and an end when a rank is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from grid_processes import DATA, OPTIONS, START, popen, processes, trained
from typer.testing import CliRunner
from waiting import wait_until

from gfgnn.checkpoint import load_model
from gfgnn.cli import app

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
GRID = ["--parts", "2", "--stages", "2"]


def test_the_command_under_torchrun_trains_the_same_network(tmp_path: Path) -> None:
    options = "--iters 5 --dtype float64 --threads 1 --json --out run"
    process = popen(
        [*TORCHRUN, "4", "-m", "gfgnn.cli", "train", *OPTIONS, *GRID, *options.split()], cwd=tmp_path
    )
    output, errors = process.communicate(timeout=START)
    assert process.returncode == 0, errors
    assert output.count("\n") == 1, "only rank 0 speaks"
    _, weights = load_model(tmp_path / "run")
    local = trained(parts=2, stages=2, backend="thread")
    assert set(weights) == set(local.weights)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, local.weights[name], rtol=1e-10, atol=1e-10)


PROGRAM = """
import os, sys, time
from pathlib import Path
import gfgnn

model = gfgnn.ModelConfig(family="gcnii", layers=4, hidden=8)
graph = gfgnn.load({data!r})
mine = Path(os.environ["RANK"])
config = dict(parts=2, threads=1, timeout=30)

def stop(line):
    if line["iteration"] >= 2:
        raise KeyboardInterrupt

for seed in (0, 1):
    result = gfgnn.train(model, graph, gfgnn.TrainConfig(iters=10**6, seed=seed, **config), on_iteration=stop)
    assert result.interrupted and len(result.ranks) == 2, result
    Path(f"{{mine}}-{{seed}}").write_text(str(result.iterations))
mine.write_text(str(os.getpid()))
gfgnn.train(model, graph, gfgnn.TrainConfig(iters=10**6, **config))
"""


def test_several_runs_in_one_program_and_a_rank_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(data=DATA))
    process = popen([*TORCHRUN, "2", str(tmp_path / "program.py")], cwd=tmp_path)
    ranks = [tmp_path / "0", tmp_path / "1"]
    begun = wait_until(lambda: all(r.exists() for r in ranks) or process.poll() is not None, START)
    assert begun, "it hangs"
    assert process.poll() is None, process.communicate()[1]
    for seed in (0, 1):
        assert (tmp_path / f"0-{seed}").read_text() == (tmp_path / f"1-{seed}").read_text()
    os.kill(int((tmp_path / "1").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    _, errors = process.communicate(timeout=START)
    assert time.monotonic() - killed < 15
    assert process.returncode == 1
    assert "Signal 9 (SIGKILL)" in errors
    assert wait_until(lambda: not processes(tmp_path), 5.0)


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        (
            3,
            "--parts 2 --stages 2",
            "torchrun has started 3 processes, but 2 parts x 2 stages are 4; start 4, or",
        ),
        (3, "", "torchrun has started 3 processes, but 1 parts x 1 stages are 1; start 1, or"),
        (2, "--parts 2 --tune", "--tune trains more than once"),
    ],
)
def test_what_does_not_fit_torchrun_is_one_line(
    size: int, options: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for rank in range(size):
        for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": rank, "WORLD_SIZE": size}.items():
            monkeypatch.setenv(name, str(value))
        done = CliRunner().invoke(app, ["train", *OPTIONS, *options.split(), "--out", str(tmp_path / "run")])
        assert done.exit_code == 2
        assert done.stderr.startswith(f"error: {message}")
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "run").exists()
