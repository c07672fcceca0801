"""First loads that are killed or interrupted leave nothing that a later load trusts, or that stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from ogb_raw import write_ogb

from gfgnn import load

CASES = [
    ("ogbn-arxiv", "reading raw/node-feat.csv.gz"),
    ("ogbn-products", "reading raw/edge.csv.gz"),
    ("ogbn-products", "sorting edges"),
    ("ogbn-papers100M", "reading node_feat of data.npz"),
    ("ogbn-papers100M", "reading edge_index of data.npz"),
    ("ogbn-mag", "reading paper/node-feat.csv.gz"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the cache; what is read comes in small pieces, so that each phase is told of several times."""
    monkeypatch.delenv("GFGNN_DATA", raising=False)
    monkeypatch.setenv("GFGNN_CACHE", str(tmp_path / "cache"))
    for module in ("tables", "read", "mag"):
        monkeypatch.setattr(f"gfgnn.data.ogb.{module}.PIECE", 64)
    monkeypatch.setattr("gfgnn.data.edge_stream.BLOCK", 50)
    return tmp_path / "cache"


@pytest.mark.parametrize(("name", "phase"), CASES)
def test_a_killed_load_starts_over(name: str, phase: str, tmp_path: Path, folder: Path) -> None:
    write_ogb(tmp_path, name)
    heard: list[float] = []

    def kill(what: str, share: float) -> None:
        heard.extend([share] if what == phase else [])
        if len(heard) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            load(name, tmp_path, progress=kill)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = folder.iterdir()
    assert left.name.startswith(f".{name}-")
    assert left.name.endswith(".tmp")
    assert any(path.stat().st_size for path in left.rglob("*") if path.is_file())

    told: list[str] = []
    graph = load(name, tmp_path, progress=lambda what, share: told.append(what))
    assert phase in told
    assert not left.exists()
    (kept,) = folder.iterdir()
    assert kept.name.startswith(f"{name}-")
    told.clear()
    again = load(name, tmp_path, progress=lambda what, share: told.append(what))
    assert told == []
    assert torch.equal(again.edge_index, graph.edge_index)
    assert again.x is not None
    assert graph.x is not None
    assert torch.equal(again.x, graph.x)


@pytest.mark.parametrize(("name", "phase"), CASES)
def test_an_interrupted_load_leaves_nothing(name: str, phase: str, tmp_path: Path, folder: Path) -> None:
    write_ogb(tmp_path, name)

    def interrupt(what: str, share: float) -> None:
        if what == phase:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            load(name, tmp_path, progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(folder.iterdir()) == []


def test_progress_rises_within_a_phase(tmp_path: Path, folder: Path) -> None:
    for name in ("ogbn-products", "ogbn-papers100M"):
        write_ogb(tmp_path, name)
        heard: dict[str, list[float]] = {}
        load(
            name, tmp_path, progress=lambda what, share, heard=heard: heard.setdefault(what, []).append(share)
        )
        assert {"grouping edges", "sorting edges", "writing edges"} < set(heard)
        for shares in heard.values():
            assert shares == sorted(shares)
            assert 0 <= shares[0] <= shares[-1] <= 1
