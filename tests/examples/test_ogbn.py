"""The OGB examples run on raw files of OGB's layout, print what they return, and say what is missing."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from ogb_raw import write_ogb

import gfgnn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Main = Callable[[list[str]], dict[str, float]]


@pytest.fixture
def main_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Main]:
    """The main function of an example, found beside its helper as Python finds it for a script."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name.replace('-', '_')}.py"))["main"]


@pytest.mark.parametrize(
    ("name", "more", "least"),
    [
        ("ogbn-arxiv", [], 0.6),
        ("ogbn-products", [], 0.6),
        ("ogbn-products", ["--sage"], 0.6),
        ("ogbn-proteins", [], 0.6),
        ("ogbn-proteins", ["--sage"], 0.6),
    ],
)
def test_runs_and_learns(
    name: str, more: list[str], least: float, main_of: Callable[[str], Main], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_ogb(tmp_path, name, tasks=112)
    arguments = [
        "--root",
        str(tmp_path),
        "--iters",
        "8",
        "--epochs",
        "60",
        "--hidden",
        "16",
        "--threads",
        "1",
    ]
    scores = main_of(name)([*arguments, *more])
    assert set(scores) == {"without backprop", "Adam"}
    assert min(scores.values()) > least
    printed = capsys.readouterr().out
    shown = [float(value) for value in re.findall(r"official test (\d\.\d+)", printed)]
    assert shown == pytest.approx(list(scores.values()), abs=1e-4)


def test_adam_may_be_left_out(main_of: Callable[[str], Main], tmp_path: Path) -> None:
    write_ogb(tmp_path, "ogbn-products")
    arguments = ["--root", str(tmp_path), "--iters", "3", "--epochs", "0", "--hidden", "8"]
    assert set(main_of("ogbn-products")(arguments)) == {"without backprop"}


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "ogbn-proteins"])
def test_missing_files_are_told(name: str, main_of: Callable[[str], Main], tmp_path: Path) -> None:
    with pytest.raises(gfgnn.InputError, match=r"missing are raw/edge\.csv\.gz"):
        main_of(name)(["--root", str(tmp_path)])
