"""Arrays in nameless files: they behave like others, and their memory can be let go."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch

from gfgnn.checks import InputError
from gfgnn.data import scratch as module
from gfgnn.data.scratch import SMALL, Scratch
from gfgnn.ops.memory import resident_bytes


def test_contents_stay_when_memory_goes(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    array = scratch(1000, 500, torch.float32)
    array.copy_(torch.arange(500_000).view(1000, 500))
    assert scratch.nbytes == 2_000_000
    before = resident_bytes()
    scratch.rest()
    after = resident_bytes()
    if before is not None and after is not None:
        assert before - after > 1_500_000
    assert array.sum().item() == pytest.approx(500_000 * 499_999 / 2, rel=1e-5)
    assert array[999, 499] == 499_999


def test_files_have_no_names_and_go_with_their_arrays(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    array = scratch(1000, 100, torch.float64)
    view = array[:10].t()
    assert os.listdir(tmp_path) == []
    del array
    gc.collect()
    assert scratch.nbytes == 800_000, "a view holds the file"
    del view
    gc.collect()
    assert scratch.nbytes == 0


def test_small_arrays_stay_in_memory(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    array = scratch(SMALL // 4 - 1, 1, torch.float32)
    assert scratch.nbytes == 0
    assert array.shape == (SMALL // 4 - 1, 1)


def test_a_full_disk_is_an_error_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full, raising=False)
    with pytest.raises(InputError, match=r"40 MB of what one part holds cannot be written.*GFGNN_CACHE"):
        Scratch(tmp_path)(10_000, 1000, torch.float32)
