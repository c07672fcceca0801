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
    cases = {"two": (data, "gcn", 2, 5, admm.DEEP, 1), "coupled": (data, "gcnii", 2, 5, admm.COUPLED, 2)}
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
