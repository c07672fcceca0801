"""The quickstart runs, is as short as it says, and uses public names only."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import gfgnn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quickstart.py"


def test_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = runpy.run_path(str(EXAMPLE))["main"](iterations=6, adam_seconds=0.3)
    printed = capsys.readouterr().out
    assert accuracy > 0.6
    shown = [float(value) for value in re.findall(r"test accuracy (\d\.\d+)", printed)]
    assert len(shown) == 2
    assert shown[0] == pytest.approx(accuracy, abs=6e-4)


def test_is_short_and_uses_public_names_only() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert re.findall(r"^(?:import|from) (\S+)", text, re.MULTILINE) == ["__future__", "gfgnn"]
    assert set(re.findall(r"gfgnn\.(\w+)", text)) <= set(gfgnn.__all__)
