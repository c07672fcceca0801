"""The ADMM benchmark end to end, on a small graph."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_run_and_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    admm = importlib.import_module("admm")
    data = "synthetic:nodes=200,classes=3,features=8"
    cases = {
        "two": admm.Case(data=data, layers=2, settings=admm.DEEP),
        "coupled": admm.Case(data=data, family="gcnii", layers=2, settings=admm.COUPLED, stages=2),
    }
    monkeypatch.setattr(admm, "CASES", cases)
    small = ["--results", str(tmp_path / "lines.jsonl"), "--seeds", "2", "--iters", "4"]
    admm.main(["run", "--cases", "two", "coupled", *small])
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["solver"] for line in lines] == ["admm", "target"] * 4
    assert [line["stages"] for line in lines] == [1] * 4 + [2, 1] * 2
    capsys.readouterr()
    admm.main(["report", *small])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 4


def test_the_published_variant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    pdadmm = importlib.import_module("pdadmm")
    data = "synthetic:nodes=150,classes=3,features=6"
    small = ["--results", str(tmp_path / "lines.jsonl"), "--seeds", "2", "--neurons", "8"]
    pdadmm.main(["run", "--cases", data, "--iters", "4", *small])
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["10 layers", "2 layers"] * 2
    capsys.readouterr()
    pdadmm.main(["report", *small])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 2


def test_the_solvers_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    solvers = importlib.import_module("solvers")
    monkeypatch.setattr(solvers, "LAYERS", (2,))
    monkeypatch.setattr(solvers, "NEURONS", 8)
    data = "synthetic:nodes=150,classes=3,features=6"
    small = ["--results", str(tmp_path / "lines.jsonl"), "--seeds", "1"]
    solvers.main(["run", "--cases", data, "--iters", "2", *small])
    capsys.readouterr()
    solvers.main(["report", *small])
    rows = [line.split("|")[2:4] for line in capsys.readouterr().out.splitlines()[2:]]
    expected = [
        ("target", "1 x 1"),
        ("target", "2 x 2"),
        ("admm", "1 x 1"),
        ("admm", "2 x 2"),
        ("pdadmm-g", "1 x 1"),
    ]
    assert [tuple(cell.strip() for cell in row) for row in rows] == expected
    held = {
        line["label"]: line["bytes"] / 150 / 8 / 4
        for line in map(json.loads, (tmp_path / "lines.jsonl").read_text().splitlines())
        if line["label"].endswith("memory")
    }
    assert held["admm memory"] >= 3.0  # z, q and p of every layer


def test_communities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    community = importlib.import_module("community")
    split = "per_class=10,val=30,test=60"
    monkeypatch.setattr(
        community, "CASES", {"drawn": ("synthetic:nodes=150,classes=3,features=6", split, "rows", 0.1)}
    )
    small = ["--results", str(tmp_path / "lines.jsonl"), "--seeds", "2", "--hidden", "8", "--iters", "4"]
    community.main(["run", "--cases", "drawn", "--layers", "sweep", *small])
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["communities 1, sweep", "communities 3, sweep"] * 2
    assert [line["parts"] for line in lines] == [1, 3] * 2
    assert all(line["settings"]["ridge"] == 0.1 for line in lines)
    capsys.readouterr()
    community.main(["report", *small])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 2
