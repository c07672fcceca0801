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


def never() -> dict[str, np.ndarray]:
    raise AssertionError("made again")


def test_second_time_is_mapped_and_changes_stay_out(folder: Path) -> None:
    cached_arrays("n", "k", lambda: ARRAYS)
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
    cached_arrays("n", "k", lambda: ARRAYS)
    path = folder / "n-k" / "a.npy"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert np.array_equal(cached_arrays("n", "k", lambda: ARRAYS)["a"], ARRAYS["a"])
    assert np.array_equal(cached_arrays("n", "k", never)["a"], ARRAYS["a"])


@pytest.mark.parametrize("lost", ["a.npy", NAMES])
def test_entries_that_lack_a_file_are_made_again(folder: Path, lost: str) -> None:
    cached_arrays("n", "k", lambda: ARRAYS)
    (folder / "n-k" / lost).unlink()
    assert set(cached_arrays("n", "k", lambda: ARRAYS)) == set(ARRAYS)
    assert set(cached_arrays("n", "k", never)) == set(ARRAYS)


def test_no_place_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "file" / "below"))
    assert cached_arrays("n", "k", lambda: ARRAYS) is ARRAYS


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gfgnn.data.cache.os.fsync", full)
    assert cached_arrays("n", "k", lambda: ARRAYS) is ARRAYS
    assert list(folder.iterdir()) == []


KILLED = """
import os, signal
import numpy as np
from gfgnn.data import cache
save, calls = np.save, []
def half(file, array, **options):
    calls.append(1)
    if len(calls) == 2:
        file.write(b"half of it")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(file, array, **options)
np.save = half
cache.cached_arrays("n", "k", lambda: {"a": np.arange(3), "b": np.arange(4)})
"""


def test_a_killed_process_leaves_nothing_that_is_trusted(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "GFGNN_CACHE": str(folder)}, check=False
    )
    assert done.returncode == -9
    (left,) = folder.iterdir()
    assert left.name.startswith(".n-k.")
    assert left.name.endswith(".tmp")
    assert np.array_equal(cached_arrays("n", "k", lambda: ARRAYS)["a"], ARRAYS["a"])
    assert np.array_equal(cached_arrays("n", "k", never)["a"], ARRAYS["a"])
    assert left.exists()  # it may be another process at work
    os.utime(left, (0, time.time() - ABANDONED - 1))
    cached_arrays("n", "other", lambda: ARRAYS)
    assert sorted(path.name for path in folder.iterdir()) == ["n-k", "n-other"]
