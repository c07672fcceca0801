"""The command line: exit statuses, what is printed where, and Ctrl-C in a real process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gfgnn._version import __version__
from gfgnn.cli import app
from gfgnn.cli.progress import TrainingProgress
from gfgnn.config import FAMILIES

DATA = "synthetic:nodes=120,classes=3,features=6"
SMALL = ["--data", DATA, "--model", "gcn", "--layers", "2", "--hidden", "8", "--threads", "1"]
ADAM = [*SMALL, "--solver", "adam", "--iters", "4"]


def gfgnn(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_version_and_help() -> None:
    first, second = gfgnn("--version").stdout.splitlines()
    assert first == f"gfgnn {__version__}"
    assert re.fullmatch(
        r"sparse product: (native \(\w+\), \d+ threads?|torch \(no compiled kernel: .+\))", second
    )
    said = gfgnn("train", "--help").stdout
    assert "--layers" in said
    assert all(family in said for family in FAMILIES)


@pytest.mark.parametrize("solver", ["adam", "target"])
def test_json_is_the_last_line_and_nothing_else_is_said(solver: str) -> None:
    done = gfgnn("train", *SMALL, "--solver", solver, "--iters", "3", "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["solver"] == solver
    assert summary["iterations"] == 3
    wanted = (
        "dataset num_nodes num_edges model layers hidden solver seed threads iterations best_iteration train_accuracy "
        "val_accuracy test_accuracy last_test_accuracy loss seconds seconds_to_best seconds_per_iteration "
        "peak_rss_bytes parts stages version"
    )
    assert set(wanted.split()) <= set(summary)
    assert done.stderr == ""


def test_another_order_of_nodes_is_told_and_changes_nothing(tmp_path: Path) -> None:
    scores = {}
    for order in ("none", "rcm"):
        done = gfgnn(
            "train", *SMALL, "--iters", "3", "--order", order, "--json", "--out", str(tmp_path / order)
        )
        assert done.exit_code == 0, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        scores[order] = summary["test_accuracy"]
        assert len(summary["notes"]) == (order == "rcm")
        assert f'order = "{order}"' in (tmp_path / order / "config.toml").read_text()
    assert scores["none"] == scores["rcm"]
    assert "stored in the order of rcm" in gfgnn("train", *SMALL, "--iters", "1", "--order", "rcm").stderr


def test_comparison_trains_both_on_the_same_blocks(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = gfgnn("train", *SMALL, "--iters", "3", "--compare-adam", "--adam-seconds", "0", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert "gfgnn (no backprop)" in done.stdout
    assert "Adam (backprop)" in done.stdout
    summary = json.loads((out / "result.json").read_text())
    assert summary["adam"]["solver"] == "adam"
    assert (out / "metrics_adam.jsonl").exists()


def test_train_then_predict(tmp_path: Path) -> None:
    out, file = tmp_path / "run", tmp_path / "p.npz"
    assert gfgnn("train", *ADAM, "--normalise", "rows", "--out", str(out)).exit_code == 0
    done = gfgnn("predict", "--model", str(out), "--out", str(file))
    assert done.exit_code == 0, done.stderr
    assert np.load(file)["prediction"].shape == (120,)
    other = gfgnn("predict", "--model", str(out), "--data", DATA.replace("=6", "=5"), "--out", str(file))
    assert other.exit_code == 2
    assert "6 features" in other.stderr


def test_config_file_and_options_over_it(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nname = "{DATA}"\n[model]\nfamily = "sgc"\nlayers = 2\n[train]\nsolver = "adam"\niters = 2\n'
    )
    summary = json.loads(gfgnn("train", "--config", str(file), "--iters", "3", "--json").stdout)
    assert (summary["model"], summary["iterations"]) == ("sgc", 3)


def test_other_configuration_in_the_folder(tmp_path: Path) -> None:
    assert gfgnn("train", *ADAM, "--out", str(tmp_path)).exit_code == 0
    before = (tmp_path / "result.json").read_text()
    done = gfgnn("train", *ADAM, "--seed", "1", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "train.seed (0 there, 1 now)" in done.stderr
    assert (tmp_path / "result.json").read_text() == before
    assert gfgnn("train", *ADAM, "--seed", "1", "--out", str(tmp_path), "--overwrite").exit_code == 0


def test_full_disk_still_prints_the_outcome(tmp_path: Path) -> None:
    (tmp_path / f".result.json.{os.getpid()}.tmp").symlink_to("/dev/full")
    done = gfgnn("train", *ADAM, "--out", str(tmp_path), "--json")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: cannot write")
    assert "No space left" in done.stderr
    assert "test_accuracy" in json.loads(done.stdout.splitlines()[-1])
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "--data is missing"),
        (["train", "--data", "nowhere"], "nowhere"),
        (["train", "--data", DATA, "--layers", "1"], "layers must be at least 2"),
        (["train", "--data", DATA, "--hidden", "0"], "hidden must be at least 1"),
        (["train", "--data", DATA, "--model", "gat"], "model must be one of"),
        (["train", "--data", DATA, "--momentum", "much"], "--momentum must be a number or auto"),
        (["train", "--data", DATA, "--tensorboard"], "--out"),
        (["train", "--data", DATA, "--device", "abacus"], "device must be"),
        (["train", "--data", "synthetic:nodes=50,features=0"], "structure"),
        (["train", "--config", "nowhere.toml"], "cannot be read"),
        (["train", "--data", DATA, "--device", "meta"], "device must be cpu or cuda; got 'meta'"),
        (["train", "--data", DATA, "--threads", "0"], "threads must be at least 1; got 0"),
        (["train", "--data", DATA, "--threads", "100000"], "threads must be at most 1024; got 100000"),
        (["train", "--data", DATA, "--seed", "99999999999999999999"], "seed must be at most"),
        (["train", "--data", DATA, "--split", "per_class=5", "--split-seed", "-1"], "split_seed must be at"),
        (["train", "--data", DATA, "--split-index", "1"], "split_index must be 0"),
        (
            ["train", "--data", DATA, "--compare-adam", "--adam-seconds", "-1"],
            "adam_seconds must be at least",
        ),
        (
            ["train", "--data", DATA, "--solver", "admm", "--momentum", "0.5"],
            "--momentum is an option of solver target",
        ),
        (
            ["train", "--data", DATA, "--nu", "0.5"],
            "--nu is an option of solver admm, pdadmm-g, community-admm",
        ),
        (
            ["train", "--data", DATA, "--solver", "pdadmm-g", "--resync", "3"],
            "--resync is an option of solver admm",
        ),
        (
            ["train", "--data", DATA, "--solver", "admm", "--nu", "inf"],
            "nu must be a finite number above 0; got inf",
        ),
        (["predict", "--model", "nowhere", "--data", DATA], "does not exist"),
        (["predict", "--model", "nowhere"], "does not exist"),
        (["predict", "--model", "nowhere", "--device", "abacus"], "device must be"),
        (["data", "info", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    done = gfgnn(*arguments)
    assert done.exit_code == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_comparison_that_fails_does_not_cost_the_outcome(tmp_path: Path) -> None:
    done = gfgnn("train", *SMALL, "--iters", "3", "--compare-adam", "--lr", "1e38", "--out", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert "warning: Adam could not be trained for comparison" in done.stderr
    assert "adam" not in json.loads((tmp_path / "result.json").read_text())


def test_memory_that_is_not_there_is_one_line() -> None:
    done = gfgnn("data", "info", "synthetic:nodes=1e13,features=0")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: not enough memory: ")
    assert done.stderr.count("\n") == 1


def test_an_interrupt_that_a_library_turned_into_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(data: object, **_: object) -> None:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise RecursionError

    monkeypatch.setattr("gfgnn.cli.options.load_graph", load)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = gfgnn("data", "info", DATA)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, done.stderr) == (130, "error: interrupted before there was anything to keep.\n")


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    train = f"{sys.executable} -m gfgnn.cli train {' '.join(ADAM)} --out {tmp_path}/run"
    command = f"{train} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (141, "")
    assert (tmp_path / "run" / "result.json").exists()


def test_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "gfgnn.cli", "data", "info", DATA]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_only_files_of_the_run_are_said_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = gfgnn("train", *ADAM, "--out", str(tmp_path))
    written = done.stdout.splitlines()[-1].partition(f"{tmp_path}: ")[2]
    assert written == "config.toml, curves.png, metrics.jsonl, model.safetensors, result.json"


def test_data_info() -> None:
    done = gfgnn("data", "info", DATA)
    assert "num nodes         120" in done.stdout
    assert "ready to be trained on" in done.stdout
    assert json.loads(gfgnn("data", "info", DATA, "--json").stdout)["num_classes"] == 3


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"iteration": 1, "seconds": 0.5, "loss": 1.25, "train": 0.5, "val": None}
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda value=terminal: value)
        with TrainingProgress("adam", 2) as progress:
            progress.on_iteration(line)
        assert ("loss 1.2500  train 0.500" in capsys.readouterr().err) is terminal


def test_ctrl_c_leaves_a_usable_result(tmp_path: Path) -> None:
    # The handler is set by hand: a test run in the background inherits a SIGINT that is ignored.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gfgnn.cli import main; main()"
    command = [sys.executable, "-c", code, "train", *SMALL, "--solver", "adam", "--iters", "1000000"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    part, deadline = tmp_path / "metrics.jsonl.part", time.monotonic() + 60
    while not (part.exists() and part.read_text().count("\n") > 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"best iterate" in output
    assert b"Traceback" not in errors
    summary = json.loads((tmp_path / "result.json").read_text())
    assert summary["interrupted"]
    assert summary["iterations"] > 2
    assert {p.name for p in tmp_path.iterdir()} == {
        "config.toml", "curves.png", "metrics.jsonl", "model.safetensors", "result.json",
    }  # fmt: skip
    assert gfgnn("predict", "--model", str(tmp_path), "--out", str(tmp_path / "p.npz")).exit_code == 0
