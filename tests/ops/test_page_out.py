"""What the process holds: mapped files are let go, and nothing that was written is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gfgnn.ops.memory import page_out, resident_bytes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no Linux")
SIZE = 20_000_000


def mapped(folder: Path, mode: str) -> Tensor:
    np.save(folder / "a.npy", np.arange(SIZE // 4, dtype=np.float32).reshape(1000, -1))
    return torch.from_numpy(np.load(folder / "a.npy", mmap_mode=mode))  # type: ignore[call-overload]


def held() -> int:
    found = resident_bytes()
    assert found is not None
    return found


@pytest.mark.parametrize("written", [False, True])
def test_files_are_let_go_and_changes_stay(tmp_path: Path, written: bool) -> None:
    tensor = mapped(tmp_path, "c")
    total = tensor.double().sum()
    if written:
        tensor[500, 7] = -1.0
    before = held()
    page_out([tensor])
    assert before - held() > 0.8 * SIZE
    assert tensor[500, 7] == (-1.0 if written else 500 * SIZE // 4000 + 7)
    if not written:
        assert tensor.double().sum() == total
    assert np.load(tmp_path / "a.npy")[500, 7] == 500 * SIZE // 4000 + 7, "the file is as it was"


def test_parts_of_a_map(tmp_path: Path) -> None:
    tensor = mapped(tmp_path, "c")
    total = tensor.double().sum()
    before = held()
    page_out(tensor.split(250))
    assert before - held() > 0.8 * SIZE
    assert tensor.double().sum() == total


def test_other_memory_is_left_alone() -> None:
    tensor = torch.rand(1000, SIZE // 4000)
    before, copy = held(), tensor[:10].clone()
    page_out([tensor, tensor.t(), tensor[:, :5], torch.empty(0), tensor.to_sparse().values()])
    assert torch.equal(tensor[:10], copy)
    assert held() >= before - 1_000_000
