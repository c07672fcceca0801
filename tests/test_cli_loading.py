"""What the commands say while they load, what they download, and how features are kept."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from ogb_raw import write_ogb
from typer.testing import CliRunner

from gfgnn.checkpoint import load_model
from gfgnn.cli import app
from gfgnn.cli.progress import LoadingProgress, duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def reports(clock: Clock, shown: LoadingProgress, seconds: int) -> None:
    """Two phases at once, a report every second, and then a third one."""
    for second in range(seconds):
        clock.now += 1
        for phase in ("reading a", "reading b"):
            shown.report(phase, second / seconds)
    shown.report("sorting", 0.0)


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LoadingProgress(clock) as shown:
        reports(clock, shown, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading a: 2%, 2 min left",
        "reading b: 2%, 2 min left",
        "reading a: 32%, 68 s left",
        "reading a: 62%, 38 s left",
        "reading a: 92%, 8 s left",
        "sorting: 0%",
    ]


def test_nothing_where_all_is_over_soon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        clock = Clock()
        with LoadingProgress(clock) as shown:
            reports(clock, shown, 2)
        assert stream.getvalue() == ""


def test_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    with LoadingProgress(clock) as shown:
        reports(clock, shown, 50)
    assert "reading a: 4%, 48 s left" in terminal.getvalue()
    assert "sorting: 0%" in terminal.getvalue()
    assert terminal.getvalue().count("\n") <= 2


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 89, 91, 5399, 9000)] == ["0 s", "89 s", "2 min", "90 min", "2.5 h"]


def test_storage_follows_the_model_and_download_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GFGNN_DATA", raising=False)
    write_ogb(tmp_path, "ogbn-arxiv")
    run, data = str(tmp_path / "run"), ["--data", "ogbn-arxiv", "--root", str(tmp_path)]
    small = ["--model", "gcn", "--layers", "2", "--hidden", "8", "--iters", "3", "--download"]
    done = CliRunner().invoke(app, ["train", *data, *small, "--feature-storage", "fp16", "--out", run])
    assert done.exit_code == 0, done.output
    settings = (tmp_path / "run" / "config.toml").read_text()
    assert 'feature_storage = "fp16"' in settings
    assert "download" not in settings
    assert load_model(run)[0].num_features == 5

    kept: list[str] = []
    from gfgnn.data import load

    def seen(name: str, **options: object) -> object:
        graph = load(name, **options)
        kept.append(f"{graph.x.dtype} {options.get('download')}")
        return graph

    monkeypatch.setattr("gfgnn.data.load", seen)
    out = ["--out", str(tmp_path / "p.npz")]
    for options in ([], data, [*data, "--feature-storage", "float32"], [*data, "--download"]):
        done = CliRunner().invoke(app, ["predict", "--model", run, *options, *out])
        assert done.exit_code == 0, done.output
    assert kept == ["torch.float16 False", "torch.float16 False", "torch.float32 False", "torch.float16 True"]

    info = ["data", "info", "ogbn-arxiv", "--root", str(tmp_path), "--feature-storage", "fp16"]
    assert "dense, fp16" in CliRunner().invoke(app, info).output
    missing = CliRunner().invoke(app, ["data", "info", "ogbn-mag", "--root", str(tmp_path)])
    assert missing.exit_code == 2
    assert "gfgnn downloads nothing unless told to: --download" in missing.output
