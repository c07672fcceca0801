"""Shared fixtures: small graphs, and the folder of larger data sets where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def _quiet_machine() -> Iterator[None]:
    """One thread: tests run side by side, and small products are slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the larger data sets: $GFGNN_DATA, else shared/data beside the repository."""
    folder = Path(os.environ.get("GFGNN_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no folder of larger data sets: GFGNN_DATA is not set and {folder} does not exist")
    return folder
