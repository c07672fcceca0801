"""The benchmark of orders end to end, on a small graph."""

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
    order = importlib.import_module("order")
    cases = {"small": "synthetic:nodes=300,classes=3,features=0", "cells": (9, 11, 4)}
    monkeypatch.setattr(order, "CASES", cases)
    small = ["--results", str(tmp_path / "lines.jsonl"), "--rounds", "2"]
    order.main(["run", "--cases", "small", "cells", *small])
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    for line in lines:
        assert line["auto"] == "given"
        assert list(line["orders"]) == ["given", "random", "rcm", "metis"]
        assert all(len(times) == 20 for o in line["orders"].values() for times in o["products"].values())
    monkeypatch.setattr(order.orders_module, "PART_NODES", 2048)  # restored afterwards
    monkeypatch.setattr(order, "PARTS", (2, 7))
    order.main(["parts", "--cases", "small", *small])
    capsys.readouterr()
    order.main(["report", *small])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 4 + 2 * 4 + 3 + 1
    assert "| metis, 7 parts |" in table[-2]
