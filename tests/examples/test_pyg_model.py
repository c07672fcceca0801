"""The PyG example trains both ways, and knows nothing of gfgnn but its public names."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import gfgnn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pyg_model.py"


def test_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    by_adam, without = runpy.run_path(str(EXAMPLE))["main"](epochs=2, iterations=12)
    printed = capsys.readouterr().out
    assert without > 0.65
    shown = [float(value) for value in re.findall(r"test accuracy (\d\.\d+)", printed)]
    assert shown == pytest.approx([by_adam, without], abs=6e-4)


def test_uses_public_names_only() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert set(re.findall(r"gfgnn\.(\w+)", text)) <= set(gfgnn.__all__)
    assert "gfgnn" not in text.split("class GCN")[1].split("def accuracies")[0]
