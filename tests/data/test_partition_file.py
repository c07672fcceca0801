"""Partitions survive the disk; damaged and foreign files do not get through."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_graphs import random_graph

from gfgnn.checkpoint import WriteError
from gfgnn.checks import InputError
from gfgnn.data import save_npz
from gfgnn.data.partition_file import load_partition, save_partition
from gfgnn.graph.partition import partition_nodes

GRAPH = random_graph(nodes=60)
PARTITION = partition_nodes(
    GRAPH, 3, method="ldg", balance=("nodes", "edges"), target_shares=[1, 1, 2], seed=5
)


def test_there_and_back(tmp_path: Path) -> None:
    file = tmp_path / "partition"  # the name is kept as it is
    save_partition(file, PARTITION)
    assert [path.name for path in tmp_path.iterdir()] == ["partition"]
    again = load_partition(file, GRAPH)
    assert torch.equal(again.assignment, PARTITION.assignment)
    assert again.assignment.dtype == torch.int64
    for name in vars(PARTITION):
        if name != "assignment":
            assert getattr(again, name) == getattr(PARTITION, name), name


def test_a_graph_saved_and_read_again_is_the_same_graph(tmp_path: Path) -> None:
    from gfgnn.data import load_npz

    save_partition(tmp_path / "p.npz", PARTITION)
    save_npz(tmp_path / "g.npz", GRAPH)
    load_partition(tmp_path / "p.npz", load_npz(tmp_path / "g.npz"))


def test_another_graph(tmp_path: Path) -> None:
    save_partition(tmp_path / "p.npz", PARTITION)
    other = random_graph(1, nodes=60)
    with pytest.raises(InputError, match=r"p\.npz: the partition is of another graph: its fingerprint is"):
        load_partition(tmp_path / "p.npz", other)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot write"):
        save_partition(tmp_path / "nowhere" / "p.npz", PARTITION)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_partition(tmp_path / "p.npz", GRAPH)
    save_partition(tmp_path / "p.npz", PARTITION)
    whole = (tmp_path / "p.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"half\.npz"):
        load_partition(tmp_path / "half.npz", GRAPH)
    save_npz(tmp_path / "graph.npz", GRAPH)
    with pytest.raises(InputError, match=r"graph\.npz holds no partition: its arrays are edge_index"):
        load_partition(tmp_path / "graph.npz", GRAPH)


def changed(**entries: Any) -> Callable[[dict[str, Any]], str]:
    return lambda about: json.dumps({**about, **entries})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: "{", "its about is not valid JSON"),
        (lambda about: "[]", r"is no 'gfgnn partition 1' file: its format is \[\]"),
        (changed(format="gfgnn partition 9"), "its format is 'gfgnn partition 9'"),
        (changed(num_parts="3"), "num_parts must be int; got '3'"),
        (changed(notes=None), "notes must be list; got None"),
        (changed(target_shares=[0.5, 0.5]), r"target_shares must be 3 positive numbers; got \[0.5, 0.5\]"),
        (changed(target_shares=[1.0, -1.0, 1.0]), "target_shares must be 3 positive"),
        (changed(num_parts=2, target_shares=[0.5, 0.5]), "names part 2; parts are 0 to 1"),
    ],
)
def test_damaged_metadata(tmp_path: Path, change: Callable[[dict[str, Any]], str], message: str) -> None:
    file = tmp_path / "p.npz"
    save_partition(file, PARTITION)
    arrays = dict(np.load(file))
    arrays["about"] = np.array(change(json.loads(str(arrays["about"]))))
    np.savez(file, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load_partition(file, GRAPH)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (np.zeros(60), "assignment must hold integers; got float64"),
        (np.zeros(59, np.int64), r"got torch.int64 \[59\]"),
        (np.full(60, 3), "names part 3"),
        (np.zeros(60, np.int64), "part 1 has no node"),
    ],
)
def test_damaged_assignment(tmp_path: Path, assignment: np.ndarray, message: str) -> None:
    file = tmp_path / "p.npz"
    save_partition(file, PARTITION)
    np.savez(file, **{**np.load(file), "assignment": assignment})
    with pytest.raises(InputError, match=message):
        load_partition(file, GRAPH)
