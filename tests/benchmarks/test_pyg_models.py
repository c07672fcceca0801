"""The benchmarks of PyG modules end to end, on small graphs made for them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("pyg_models")
    data = "synthetic:nodes=200,classes=3,features=8"
    monkeypatch.setattr(module, "CASES", {"small-2": (data, 2), "small-4": (data, 4)})
    monkeypatch.setattr(module, "SUMS", {"gin-2": module.SUMS["gin-2"]})
    return module


def test_run_steps_and_report(models: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--results", str(tmp_path / "lines.jsonl"), "--seeds", "2", "--epochs", "3", "--iters", "4"]
    models.main(["run", *small])
    models.main(["steps", *small, "--data", "synthetic:nodes=200,classes=3,features=8"])
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["solver"] for line in lines] == ["fit", "adam"] * 4 + ["sweep"] * 2 + ["polar"] * 2
    for line in lines:
        if line["solver"] == "fit":
            assert line["test"] == pytest.approx(line["reported_test"], abs=0.011)
    capsys.readouterr()
    models.main(["report", *small])
    table = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in table[2:]] == ["small-2"] * 2 + ["small-4"] * 2 + [
        "gin-2"
    ] * 2


def test_layers_are_compared(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = importlib.import_module("nn_layers")
    layers.main(["--nodes", "50", "--edges", "200", "--width", "4", "--rounds", "2"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(layers.LAYERS)
