"""gfgnn train on a grid, without processes: what is refused before anything starts, and what is printed."""

from __future__ import annotations

import json
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import gfgnn
from gfgnn.cli import app
from gfgnn.cli.table import ranks_table
from gfgnn.comm.base import CommError
from gfgnn.config import ModelConfig, TrainConfig

DATA = "synthetic:nodes=90,classes=3,features=6"
SMALL = f"--data {DATA} --model gcnii --layers 4 --hidden 8 --iters 3 --threads 1".split()
GRID = ["--parts", "2", "--stages", "2", "--backend", "thread"]


def train(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", *SMALL, *arguments])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--parts 91", "parts must be at most 90, the number of nodes of synthetic; got 91"),
        ("--parts 0", "parts must be at least 1; got 0"),
        ("--stages 7", "stages > layers: 7 stages need a block each, and the network has 6"),
        ("--stages 2 --model sgc", "use 1 to 1 stages"),
        ("--stages 2 --stage-bounds 9", "stage bounds must ascend within 1 and 5"),
        ("--stages 2 --stage-bounds x", "stage bounds must be whole numbers"),
        ("--stages 3 --stage-bounds 2", "3 stages need 2 stage bounds"),
        ("--stage-bounds 2", "stage_bounds is '2', but there is one stage"),
        ("--staleness 1", "staleness is 1, but there is one stage"),
        ("--solver adam --parts 2", "solver adam runs on one device; got 2 parts x 1 stages"),
        ("--parts 2 --partition nowhere.npz", "nowhere.npz does not exist"),
        ("--partition nowhere.npz", "partition is 'nowhere.npz', but there is one part"),
        ("--parts 2 --partition other.npz", "another graph"),
        ("--parts 3 --partition own.npz", "parts"),
        ("--parts 2 --partitioner kahip", "partitioner must be one of auto"),
        ("--parts 2 --backend fork", "backend must be one of process, thread"),
        ("--parts 2 --timeout 0", "timeout must be at least 1"),
        ("--parts 2 --port TAKEN", "port must be free, or 0 for any that is"),
        ("--timeline", "--timeline draws the ranks of a grid"),
        ("--parts 2 --device meta", "device must be cpu or cuda"),
    ],
)
def test_a_bad_grid_is_one_line_and_costs_nothing(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of an earlier run are still there, even if they were to be replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gfgnn.launch.grid.train_on_grid", None)
    for name, data in (("own", DATA), ("other", f"{DATA},seed=1")):
        made = CliRunner().invoke(app, ["partition", "--data", data, "--parts", "2", "--out", f"{name}.npz"])
        assert made.exit_code == 0
    Path("run").mkdir()
    Path("run/result.json").write_text("earlier")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = train(*options.replace("TAKEN", port).split(), "--overwrite", "--out", "run")
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert [path.name for path in Path("run").iterdir()] == ["result.json"]


def test_the_ranks_are_printed_below_the_outcome(tmp_path: Path) -> None:
    done = train(*GRID, "--stage-bounds", "1", "--out", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert "90 nodes in 2 parts" in done.stderr
    assert "6 blocks in 2 stages" in done.stderr
    shown = done.stdout.splitlines()
    first = shown.index("Ranks; MB sent and seconds waited per iteration:") + 2
    assert shown[first].split("  ")[0] == "rank"
    ranks = json.loads((tmp_path / "result.json").read_text())["ranks"]
    for line, rank in zip(shown[first + 1 : first + 5], ranks, strict=True):
        words = line.split()
        blocks = "0" if rank["stage"] == 0 else "1-5"
        expected = [str(rank[key]) for key in ("rank", "part", "stage", "nodes", "halo")]
        assert words[:6] == [*expected, blocks]
    assert "Ranks;" not in train("--json", *GRID).stdout


def test_numbers_of_the_table_are_means_per_iteration_without_set_up_and_evaluation() -> None:
    graph, model = gfgnn.load(DATA), ModelConfig(family="gcnii", layers=4, hidden=8)
    result = gfgnn.train(model, graph, TrainConfig(parts=2, iters=4, backend="thread", threads=1))
    books = {
        name: {"messages": 1, "bytes": size, "seconds": seconds}
        for name, size, seconds in (
            ("halo", 8_000_000, 1.0), ("stage", 4_000_000, 2.0), ("gram", 40_000, 4.0), ("control", 7, 1.0),
            ("setup", 9e9, 9e9), ("evaluate", 9e9, 9e9),
        )
    }  # fmt: skip
    rank = {**result.ranks[0], "nodes": 1234, "halo": 5, "peak_rss_bytes": 321_400_000, "traffic": books}
    table = ranks_table(replace(result, ranks=(rank,)))
    header, row = table.splitlines()[2:]
    assert len(header) == len(row)
    assert header.split("  ")[-4:] == ["halo MB", "stage MB", "gram MB", "waits s"]
    assert row.split() == ["0", "0", "0", "1,234", "5", "0-5", "321", "2.000", "1.000", "0.010", "2.0000"]


def test_tuning_and_the_comparison_go_with_a_grid(tmp_path: Path) -> None:
    """Trials are made on the grid; Adam is trained on one device."""
    options = ["--tune", "--compare-adam", "--adam-seconds", "0", "--json"]
    done = train(*GRID, *options, "--out", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["parts"], len(summary["ranks"])) == (2, 4)
    assert (summary["adam"]["solver"], summary["adam"]["parts"]) == ("adam", 1)
    assert summary["adam"]["ranks"] == []


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_places_that_cannot_be_written_are_one_line(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    done = train("--parts", "2", "--backend", backend, "--out", str(tmp_path / "file" / "run"))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "Not a directory" in done.stderr
    if backend == "process":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
        done = train("--parts", "2", "--out", str(tmp_path / "run"))
        assert done.exit_code == 1
        assert "Not a directory" in done.stderr.splitlines()[-1]
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.toml"]


def test_threads_that_fail_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise CommError("halo: nothing from rank 1 for 5 s", timed_out=True)

    monkeypatch.setattr("gfgnn.launch.grid._on_threads", fail)
    done = train(*GRID)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "error: halo: nothing from rank 1 for 5 s"
