"""Cached arrays: mapped, never altered, made again where damaged, and never half written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gfgnn.data.cache import ABANDONED, NAMES, cached_arrays

ARRAYS = {
    "a": np.arange(6).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float32),
    "text": np.array("some"),
    "texts": np.array([], dtype=np.str_),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(_: Path) -> dict[str, np.ndarray]:
    return dict(ARRAYS)


def never(_: Path) -> dict[str, np.ndarray]:
    raise AssertionError("made again")


def test_second_time_is_mapped_and_changes_stay_out(folder: Path) -> None:
    cached_arrays("n", "k", make)
    for _ in range(2):
        found = cached_arrays("n", "k", never)
        assert set(found) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert np.array_equal(found[name], array)
            assert found[name].dtype == array.dtype
        assert isinstance(found["a"], np.memmap)
        found["a"][:] = 7
    assert [path.name for path in folder.iterdir()] == ["n-k"]


@pytest.mark.parametrize("content", [b"", b"nothing", None])
def test_damaged_entries_are_made_again(folder: Path, content: bytes | None) -> None:
    cached_arrays("n", "k", make)
    path = folder / "n-k" / "a.npy"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert np.array_equal(cached_arrays("n", "k", make)["a"], ARRAYS["a"])
    assert np.array_equal(cached_arrays("n", "k", never)["a"], ARRAYS["a"])


@pytest.mark.parametrize("lost", ["a.npy", NAMES])
def test_entries_that_lack_a_file_are_made_again(folder: Path, lost: str) -> None:
    cached_arrays("n", "k", make)
    (folder / "n-k" / lost).unlink()
    assert set(cached_arrays("n", "k", make)) == set(ARRAYS)
    assert set(cached_arrays("n", "k", never)) == set(ARRAYS)


def test_no_place_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "file" / "below"))
    for _ in range(2):
        found = cached_arrays("n", "k", make)  # mapped from files that are gone
        assert set(found) == set(ARRAYS)
        assert np.array_equal(found["a"], ARRAYS["a"])


def test_arrays_may_come_as_files(folder: Path) -> None:
    def write(work: Path) -> dict[str, np.ndarray]:
        np.save(work / "b.npy", np.arange(4))
        return {"a": ARRAYS["a"]}

    assert set(cached_arrays("n", "k", write)) == {"a", "b"}
    assert cached_arrays("n", "k", never)["b"].tolist() == [0, 1, 2, 3]
    assert sorted(path.name for path in (folder / "n-k").iterdir()) == ["a.npy", "b.npy", NAMES]


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gfgnn.data.cache.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cached_arrays("n", "k", make)
    assert list(folder.iterdir()) == []


KILLED = """
import os, signal
import numpy as np
from gfgnn.data import cache
save, calls = np.save, []
def half(path, array, **options):
    calls.append(1)
    if len(calls) == 2:
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    save(path, array, **options)
np.save = half
cache.cached_arrays("n", "k", lambda folder: {"a": np.arange(3), "b": np.arange(4)})
"""


def test_a_killed_process_leaves_nothing_that_is_trusted(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "GFGNN_CACHE": str(folder)}, check=False
    )
    assert done.returncode == -9
    (left,) = folder.iterdir()
    assert left.name.startswith(".n-k.")
    assert left.name.endswith(".tmp")
    assert np.array_equal(cached_arrays("n", "k", make)["a"], ARRAYS["a"])
    assert np.array_equal(cached_arrays("n", "k", never)["a"], ARRAYS["a"])
    assert not left.exists()  # its process is known to be dead
    assert [path.name for path in folder.iterdir()] == ["n-k"]


def test_work_of_others(folder: Path) -> None:
    """A folder whose process lives stays; of one that nobody is known to have made, age decides."""
    alive: list[Path] = []

    def busy(work: Path) -> dict[str, np.ndarray]:
        alive.append(work)
        (unknown := folder / ".m-k.x.tmp").mkdir(exist_ok=True)
        cached_arrays("m", "k", make)
        assert work.is_dir()
        assert unknown.is_dir()
        os.utime(unknown, (0, time.time() - ABANDONED - 1))
        cached_arrays("m", "other", make)
        assert work.is_dir()
        assert not unknown.exists()
        return make(work)

    cached_arrays("n", "k", busy)
    assert not alive[0].exists()
    assert sorted(path.name for path in folder.iterdir()) == ["m-k", "m-other", "n-k"]
