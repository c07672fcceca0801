"""Atomic files, trained networks on disk, settings as TOML, and the folder of a run."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gfgnn.checkpoint import WriteError, atomic_write, jsonable, load_model, save_model
from gfgnn.checks import InputError
from gfgnn.config import AdamConfig, ModelConfig, TargetConfig, TrainConfig
from gfgnn.data import load
from gfgnn.output import RunFolder
from gfgnn.result import Result
from gfgnn.toml import RunConfig, dumps, loads_run
from gfgnn.train import train


@pytest.fixture(scope="module")
def result() -> Result:
    graph = load("synthetic:nodes=120,classes=3,features=6")
    return train(ModelConfig(family="gcnii", layers=2, hidden=4), graph, TrainConfig(solver="adam", iters=3))


def fill_disk(folder: Path, name: str) -> None:
    """Makes the next atomic write of ``name`` meet a full device."""
    (folder / f".{name}.{os.getpid()}.tmp").symlink_to("/dev/full")


def test_atomic_write_replaces_or_leaves_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    atomic_write(file, b"one")
    atomic_write(file, b"two")
    fill_disk(tmp_path, "a.json")
    with pytest.raises(WriteError, match=r"a\.json: No space left"):
        atomic_write(file, b"three")
    assert file.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_model_round_trip(tmp_path: Path, result: Result) -> None:
    save_model(tmp_path / "model.safetensors", result.model, result.weights)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        model, weights = load_model(path)
        assert model == result.model
        assert all(torch.equal(weights[name], value) for name, value in result.weights.items())


def test_damaged_models_are_refused(tmp_path: Path, result: Result) -> None:
    file = tmp_path / "model.safetensors"
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path)
    save_model(file, result.model, result.weights)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        load_model(file)
    save_model(file, result.model, {**result.weights, "block0.weight": torch.zeros(1, 1)})
    with pytest.raises(InputError, match=r"block0\.weight"):
        load_model(file)
    import safetensors.torch

    safetensors.torch.save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="not written by gfgnn"):
        load_model(file)


def test_toml_round_trip() -> None:
    run = RunConfig(
        data={"name": 'odd "name"\\ä', "split": "per_class=20", "symmetrise": True},
        model=ModelConfig(alpha=1e-05, bias=False),
        train=TrainConfig(seed=3, target=TargetConfig(momentum=0.5), adam=AdamConfig(lr=0.01)),
        compare_adam=True,
    )
    assert loads_run(dumps(run.to_dict())) == run
    assert tomllib.loads(dumps({"a": [1, 2.5, "x"], "b": {"c d": False}, "e": None})) == {
        "a": [1, 2.5, "x"], "b": {"c d": False},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 3", "model must be a table"),
        ("[model]\nlayer = 3", r"model\.layer.*Known"),
        ("[train]\nseed = 'x'", "seed must be a whole number; got 'x'"),
        ("[train]\niters = 2.5", "iters must be a whole number; got 2.5"),
        ("[train]\nthreads = true", "threads must be a whole number; got True"),
        ("[train]\nthreads = 100000", "threads must be at most 1024; got 100000"),
        ("[train]\nseed = 18446744073709551616", "seed must be at most 18446744073709551615"),
        ("[model]\nhidden = 8.5", "hidden must be a whole number; got 8.5"),
        ("[model]\nbias = 'no'", "bias must be true or false; got 'no'"),
        ("[model]\ntheta = -1", "theta must be at least 0.0; got -1"),
        ("[train.target]\nmomentum = 'much'", "momentum must be a number; got 'much'"),
        ("tune = 'no'", "tune must be true or false; got 'no'"),
        ("adam_seconds = -1", "adam_seconds must be at least 0; got -1"),
        ("data = 'citeseer'", r"data must be a table, \[data\]; got 'citeseer'"),
        ("[model]\nlayers = 1", "layers must be at least 2"),
        ("[model", "not valid TOML"),
        ("[train.target]\nmomentum = 7.0", "momentum"),
        ("[model]\nhidden = [3]", "single value"),
    ],
)
def test_bad_toml_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        loads_run(text, "run.toml")


def test_json_has_no_nan() -> None:
    value = jsonable({"a": float("nan"), "b": [torch.tensor(2), float("inf")], "c": (1, "x", None, True)})
    assert json.dumps(value, allow_nan=False) == '{"a": null, "b": [2, null], "c": [1, "x", null, true]}'


def fill(folder: RunFolder, result: Result) -> None:
    with folder:
        for line in result.history:
            folder.on_iteration(line)
    folder.finish(result, result.summary())


def test_run_folder_holds_everything(tmp_path: Path, result: Result) -> None:
    run, out = RunConfig(data={"name": "x"}), tmp_path / "deep" / "run"
    fill(RunFolder(out, run, tensorboard=True), result)
    names = {"config.toml", "curves.png", "metrics.jsonl", "model.safetensors", "result.json", "tensorboard"}
    assert {p.name for p in out.iterdir()} == names
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert json.loads((out / "result.json").read_text())["best_iteration"] == result.best_iteration
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert loads_run((out / "config.toml").read_text()) == run
    assert any((out / "tensorboard").iterdir())
    fill(RunFolder(out, run, tensorboard=True), result)  # the same configuration may run again
    assert len(list((out / "tensorboard").iterdir())) == 1  # the curves of one run, not of two


def test_run_folder_of_another_configuration_is_refused(tmp_path: Path, result: Result) -> None:
    run = RunConfig(data={"name": "x"})
    fill(RunFolder(tmp_path, run), result)
    other = replace(run, train=TrainConfig(seed=1), model=ModelConfig(hidden=32))
    with pytest.raises(
        InputError, match=r"model\.hidden \(64 there, 32 now\), train\.seed \(0 there, 1 now\)"
    ):
        RunFolder(tmp_path, other)
    assert (tmp_path / "result.json").exists()
    fill(RunFolder(tmp_path, other, overwrite=True), result)
    assert loads_run((tmp_path / "config.toml").read_text()) == other


@pytest.mark.parametrize("content", [b"x = [", b"\xff\xfe", b"colour = 3"])
def test_run_folder_with_a_damaged_configuration(tmp_path: Path, result: Result, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(InputError, match="or add --overwrite"):
        RunFolder(tmp_path, RunConfig())
    fill(RunFolder(tmp_path, RunConfig(), overwrite=True), result)
    assert loads_run((tmp_path / "config.toml").read_text()) == RunConfig()


@pytest.mark.parametrize("seed", [0, 1])
def test_results_stay_until_the_same_run_replaces_them(tmp_path: Path, result: Result, seed: int) -> None:
    fill(RunFolder(tmp_path, RunConfig()), result)
    again = RunConfig(train=TrainConfig(seed=seed))
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path, again, overwrite=True):
        raise KeyboardInterrupt
    assert (tmp_path / "result.json").exists() is (seed == 0)


def test_foreign_folders_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not known what made it"):
        RunFolder(tmp_path, RunConfig())
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "result.json", RunConfig())


def test_full_disk_leaves_complete_files_only(
    tmp_path: Path, result: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path, RunConfig())
    (tmp_path / "metrics.jsonl.part").symlink_to("/dev/full")
    fill_disk(tmp_path, "result.json")
    with pytest.raises(WriteError, match="No space left"):
        fill(folder, result)
    names = {"config.toml", "curves.png", "metrics.jsonl", "model.safetensors"}
    assert {p.name for p in tmp_path.iterdir()} == names
    assert capsys.readouterr().err.count("lines follow when training ends") == 1


def test_events_that_cannot_be_written_do_not_end_training(
    tmp_path: Path, result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = RunFolder(tmp_path, RunConfig(), tensorboard=True)
    monkeypatch.setattr(folder._board, "add", full)
    fill(folder, result)
    assert capsys.readouterr().err.count("its events end here") == 1
    assert (tmp_path / "result.json").exists()
