"""The arxiv example runs on raw files of OGB's layout, prints what it returns, and says what is missing."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from ogb_raw import write_ogb

import gfgnn

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ogbn_arxiv.py"


def test_runs_and_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ogb(tmp_path, "ogbn-arxiv")
    main = runpy.run_path(str(EXAMPLE))["main"]
    scores = main(["--root", str(tmp_path), "--iters", "8", "--epochs", "30", "--hidden", "16"])
    assert set(scores) == {"without backprop", "Adam"}
    assert min(scores.values()) > 0.6
    printed = capsys.readouterr().out
    shown = [float(value) for value in re.findall(r"official test (\d\.\d+)", printed)]
    assert shown == pytest.approx(list(scores.values()), abs=1e-4)


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(gfgnn.InputError, match=r"missing are raw/edge\.csv\.gz"):
        runpy.run_path(str(EXAMPLE))["main"](["--root", str(tmp_path)])
