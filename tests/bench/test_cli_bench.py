"""``gfgnn bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lines import benchmark
from typer.testing import CliRunner

from gfgnn.bench.outcome import Outcome
from gfgnn.bench.records import append_line, read_lines
from gfgnn.cli import app

CASE = """
title = "Small"
seeds = 2
model = { layers = 2 }
data = { name = "citeseer" }
[[contender]]
name = "target"
[[contender]]
name = "adam"
"""


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A case file, and outcomes in place of processes."""

    def run(job: Any, root: str | None) -> dict[str, Any]:
        line = {"iteration": 1, "seconds": 0.1, "loss": 1.0, "train": 1.0, "val": 0.5, "test": 0.5}
        return Outcome(contender=job.label, history=[line], settings={"root": root}).to_dict()

    monkeypatch.setattr("gfgnn.bench.process.run", run)
    monkeypatch.setattr("gfgnn.bench.process.look", lambda job, root: {})
    file = tmp_path / "small.toml"
    file.write_text(CASE)
    return file


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_run_resume_and_report(case: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(case, "--out", out, "--seeds", 1, "--data-root", "there")
    assert done.exit_code == 0, done.output
    assert "[small citeseer 1/2] target, 2 layers, seed 0: last test 0.5000" in done.stderr
    assert "report.html" in done.stdout
    again = invoke("run", case, "--out", out)
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    assert invoke(case, "--out", out, "--resume").exit_code == 0
    runs = [line for line in read_lines(out) if line["kind"] == "run"]
    assert [(line["label"], line["seed"]) for line in runs] == [
        ("target", 0), ("adam", 0), ("target", 1), ("adam", 1),
    ]  # fmt: skip
    assert runs[0]["outcome"]["settings"] == {"root": "there"}
    (out / "table.md").unlink()
    assert invoke("report", out).exit_code == 0
    assert "50.0 ± 0.0" in (out / "table.md").read_text()


def test_ctrl_c_leaves_a_report(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfgnn.bench import process

    run = process.run

    def pressed(job: Any, root: str | None) -> dict[str, Any]:
        if job.seed:
            raise KeyboardInterrupt
        return run(job, root)

    monkeypatch.setattr("gfgnn.bench.process.run", pressed)
    done = invoke(case, "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "--resume goes on" in done.stderr
    assert "| citeseer | 2 | adam | 1 | 50.0 |" in (tmp_path / "out" / "table.md").read_text()


def test_what_is_asked_for_must_be_clear(case: Path) -> None:
    for arguments, said in (
        ([], "Usage"),
        ([case, "--suite", "quick"], "one of the two"),
        (["--suite", "fast"], "no suite 'fast'"),
        (["none.toml"], "cannot be read"),
        ([case, case], "names of their own"),
        ([case, "--seeds", 0], "seeds must be at least 1"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 2, arguments
        assert said in done.output


def test_compare(tmp_path: Path) -> None:
    for name, lines in (("old", benchmark()), ("new", benchmark(ours=0.8)), ("none", benchmark()[:1])):
        for line in lines:
            append_line(tmp_path / name / "runs.jsonl", line)
    same = invoke("compare", tmp_path / "old", tmp_path / "old")
    assert same.exit_code == 0
    assert "0 of 4 figures are worse" in same.stdout
    worse = invoke("compare", tmp_path / "old", tmp_path / "new" / "runs.jsonl")
    assert worse.exit_code == 1
    assert worse.stdout.count("WORSE") == 1
    assert invoke("compare", tmp_path / "old", tmp_path / "none").exit_code == 2
