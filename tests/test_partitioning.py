"""Partitions in the cache: found once, known by all they depend on, made anew where they are damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gfgnn import partitioning
from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import Partition, partition_nodes
from gfgnn.model.build import build_model
from gfgnn.partitioning import partition_of
from gfgnn.planning import make_plan


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the cache that all tests share."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GFGNN_CACHE", str(folder))
    return folder


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of parts of every partition that is made and not found."""
    calls: list[int] = []

    def counted(graph: Graph, num_parts: int, **options: Any) -> Partition:
        calls.append(num_parts)
        return partition_nodes(graph, num_parts, **options)

    monkeypatch.setattr(partitioning, "partition_nodes", counted)
    return calls


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic:nodes=200,classes=3,features=8,noise=1.5,seed=4")


def test_found_again_with_a_note(graph: Graph, made: list[int], cache: Path) -> None:
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    config = TrainConfig(parts=3, partitioner="ldg")
    one, two = (make_plan(model, graph, config).partition for _ in range(2))
    assert one is not None
    assert two is not None
    assert made == [3]
    assert torch.equal(one.assignment, two.assignment)
    assert (one.report, one.method, one.balance) == (two.report, two.method, two.balance)
    (file,) = cache.glob("partition3-*.npz")
    assert two.notes == (*one.notes, f"found before, and kept as {file}")
    other = build_model(ModelConfig(family="gcn", layers=4, hidden=64), graph)
    make_plan(other, graph, config)  # whose nodes cost something else
    assert made == [3, 3]


def test_known_by_all_it_depends_on(graph: Graph, made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    work = torch.arange(200) + 1.0
    edges = graph.edge_index[:, (graph.edge_index != 0).all(0)]
    calls: list[tuple[Graph, dict[str, Any]]] = [
        (graph, {}), (graph, {"method": "ldg"}), (graph, {"seed": 1}), (graph, {"balance": ("edges",)}),
        (graph, {"balance": ("labelled",)}), (graph.replace(train_mask=graph.val_mask, val_mask=graph.train_mask),
        {"balance": ("labelled",)}), (graph, {"balance": ("work",), "work": work}),
        (graph, {"balance": ("work",), "work": work.flip(0)}), (graph.replace(edge_index=edges), {}),
    ]  # fmt: skip
    for case, options in calls * 2:
        partition_of(case, 2, **options)
    partition_of(graph, 3)
    assert made == [2] * len(calls) + [3]
    monkeypatch.setattr(partitioning, "__version__", "another")
    partition_of(graph, 3)
    assert made[-2:] == [3, 3]


@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_a_damaged_entry_is_made_anew(
    graph: Graph, made: list[int], cache: Path, damage: bytes | None
) -> None:
    wanted = partition_of(graph, 2)
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    found = partition_of(graph, 2)
    assert torch.equal(found.assignment, wanted.assignment)
    partition_of(graph, 2)
    assert made == [2, 2]


def test_without_a_cache(graph: Graph, made: list[int], cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        partition_of(graph, 2)
    assert made == [2, 2]
