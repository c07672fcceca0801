"""gfgnn partition: what it prints, what it writes, and how it ends when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import gfgnn
from gfgnn.cli import app
from gfgnn.data.partition_file import load_partition

DATA = "synthetic:nodes=300,classes=3,features=0"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["partition", "--data", DATA, *arguments])


def test_partition_is_written_and_described(tmp_path: Path) -> None:
    out = tmp_path / "p.npz"
    done = run("--parts", "4", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    partition = load_partition(out, gfgnn.load(DATA))
    assert done.stdout == f"synthetic: {partition.describe()}\nWritten to {out}\n"
    assert (partition.num_parts, partition.method, partition.seed) == (4, "pymetis", 0)


def test_options_and_json(tmp_path: Path) -> None:
    out = tmp_path / "p.npz"
    options = "--parts 3 --method ldg --balance nodes,edges --shares 1,1,2 --imbalance 0.2 --seed 7 --json"
    done = run(*options.split(), "--out", str(out), "--split", "per_class=20,val_per_class=5")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    partition = load_partition(out, gfgnn.load(DATA))
    assert (partition.method, partition.seed, partition.balance) == ("ldg", 7, ("nodes", "edges"))
    assert summary["target_shares"] == [0.25, 0.25, 0.5]
    assert summary["balanced"] == ["nodes", "edges"]
    assert summary["fingerprint"] == partition.fingerprint
    assert summary["halo"] == list(partition.report.halo)
    assert sum(summary["labelled"]) == 60
    assert 1.03 < summary["balance"]["nodes"] <= 1.2


def test_an_existing_file_is_kept_unless_told(tmp_path: Path) -> None:
    out = tmp_path / "p.npz"
    out.write_text("mine")
    done = run("--parts", "2", "--out", str(out))
    assert done.exit_code == 2
    assert done.stderr == f"error: {out} exists; choose another file, or add --overwrite to replace it.\n"
    assert out.read_text() == "mine"
    assert run("--parts", "2", "--out", str(out), "--overwrite").exit_code == 0
    assert load_partition(out, gfgnn.load(DATA)).num_parts == 2


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--parts", "0"], 2, "num_parts must be at least 1; got 0"),
        (["--parts", "301"], 2, "num_parts must be at most 300"),
        (["--parts", "2", "--method", "kahip"], 2, "method must be one of auto"),
        (["--parts", "2", "--balance", "nodes,rows"], 2, "balance must be one of nodes, edges, labelled"),
        (["--parts", "2", "--shares", "1,x"], 2, "--shares must be numbers separated by commas"),
        (["--parts", "2", "--shares", "1,1,1"], 2, "one number for each of 2 parts"),
        (["--parts", "2", "--data", "nowhere"], 2, "nowhere"),
        (["--parts", "2", "--overwrite", "--out", "."], 2, ". is a folder"),
        (["--parts", "2", "--out", "nowhere/p.npz"], 1, "cannot write nowhere"),
    ],
)
def test_errors_are_one_line(
    options: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--out", "p.npz", *options)
    assert done.exit_code == status, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not Path("p.npz").exists()
