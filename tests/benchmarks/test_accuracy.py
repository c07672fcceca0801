"""The accuracy benchmark end to end, on a small graph made for it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("accuracy")
    data = "synthetic:nodes=300,classes=3,features=8"
    cases = {
        "deep": module.Case(data=data, layers=3, asked=0.1, reach=0.5),
        "drawn": module.Case(
            data=data, family="gcn", layers=2, split="per_class=9,val_per_class=9", tuned=True
        ),
    }
    monkeypatch.setattr(module, "CASES", cases)
    monkeypatch.setattr(module, "GRID", {"normalise": ("rows",), "lr": (0.01, 0.003), "dropout": (0.5,)})
    return module


def test_tune_run_and_report(
    accuracy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "new folder" / "accuracy.jsonl"
    small = ["--results", str(results), "--adam-iters", "4", "--iters", "3", "--seeds", "2"]
    with pytest.raises(SystemExit, match="tune"):
        accuracy.main(["run", *small])
    accuracy.main(["tune", *small])
    accuracy.main(["run", *small])
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    runs = [(line["case"], line["label"], line["seed"]) for line in lines[2:]]
    assert runs == [
        (case, label, seed) for case in ("deep", "drawn") for seed in (0, 1) for label in ("target", "adam")
    ]
    for line in lines:
        assert line["commit"]
        assert line["machine"]["torch"]
        assert line["threads"] == 1
        assert len(line["curve"]) == line["iterations"] <= 4
        assert all(len(record) == len(line["columns"]) for record in line["curve"])
    best = max(lines[:2], key=lambda line: line["val_accuracy"])["chosen"]
    assert all(
        line["settings"]["lr"] == best["lr"]
        for line in lines[2:]
        if line["case"] == "drawn" and line["label"] == "adam"
    )
    capsys.readouterr()
    accuracy.main(["report", "--results", str(results)])
    printed = capsys.readouterr().out
    assert "| deep | gcnii-3 | target | 2 |" in printed
    assert "10.0: yes" in printed
    assert "| deep | test 0.5 |" in printed
    assert "Threads [1]" in printed


def test_who_never_gets_there_counts_with_all_its_time(accuracy: ModuleType) -> None:
    row = accuracy.time_row("x", "test .8", [(1.0, 10.0), (2.0, 40.0)], [(1.0, None), (2.0, None)])
    assert row == ["x", "test .8", "1.50", "25.00", "2/2", "0/2", ">= 15.0"]
    row = accuracy.time_row("x", "test .8", [(1.0, 10.0)], [(None, 10.0)])
    assert row[-1] == "0.0"
