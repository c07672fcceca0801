"""Graphs that are odd in some way, on grids: what ``train`` and ``predict`` make of them is that of one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from grid_processes import MODEL, check_same, small, trained
from torch import Tensor

import gfgnn
from gfgnn.config import ModelConfig
from gfgnn.data.partition_file import save_partition
from gfgnn.graph.graph import Graph
from gfgnn.graph.partition import partition_nodes

NODES = torch.arange(90)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def without(*splits: str) -> Graph:
    return small().replace(**{f"{split}_mask": torch.zeros(90, dtype=torch.bool) for split in splits})


def disconnected() -> Graph:
    """Even nodes know even ones only, odd nodes odd ones; a few know nobody."""
    source, target = small().edge_index
    kept = ((source + target) % 2 == 0) & (source > 4) & (target > 4)
    return small().replace(edge_index=small().edge_index[:, kept])


def weighted() -> Graph:
    graph = small()
    return Graph.from_edges(
        graph.edge_index, 90, x=graph.x, y=graph.y, train_mask=graph.train_mask, val_mask=graph.val_mask,
        test_mask=graph.test_mask, edge_weight=0.1 + torch.rand(graph.edge_index.size(1), generator=generator()),
    )  # fmt: skip


def valued(task: str) -> Graph:
    """Two numbers a node, or whether each is above its mean."""
    x = small().x
    assert x is not None
    values = x @ torch.randn(6, 2, generator=generator()) + 3.0
    y = values if task == "regression" else (values > values.mean(0)).float()
    return small().replace(y=y, num_classes=2, task=task)


def structure() -> Graph:
    return gfgnn.load("synthetic:nodes=90,classes=3,features=0", features="structure:8")


def tiny() -> Graph:
    return gfgnn.load("synthetic:nodes=6,classes=2,features=3,degree=2,seed=1")


@pytest.mark.parametrize(
    ("graph", "parts", "stages"),
    [
        (lambda: without("val"), 2, 2),
        (lambda: without("val", "test"), 2, 2),
        (disconnected, 3, 1),
        (lambda: small().replace(edge_index=small().edge_index[:, :0]), 2, 2),
        (weighted, 2, 2),
        (lambda: valued("regression"), 2, 2),
        (lambda: valued("multilabel"), 2, 2),
        (structure, 2, 2),
        (tiny, 6, 1),  # a node each
        (small, 3, 3),
    ],
    ids=[
        "noval",
        "novaltest",
        "disconnected",
        "edgeless",
        "weighted",
        "regression",
        "multilabel",
        "structure",
        "tiny",
        "3x3",
    ],
)
def test_graphs(graph: Callable[[], Graph], parts: int, stages: int) -> None:
    g = graph()
    grid = trained(g, parts=parts, stages=stages, backend="thread")
    check_same(grid, trained(g), 1e-9)


@pytest.mark.parametrize(
    "assignment",
    [
        lambda graph: (NODES == 5).long(),
        lambda graph: (~(graph.train_mask | graph.val_mask)).long(),
        lambda graph: torch.where(graph.val_mask, 0, NODES % 2),
        lambda graph: torch.where(graph.y == 0, 0, 1),
    ],
    ids=["a single node", "nothing to learn from", "no validation", "a class each"],
)
def test_parts(assignment: Callable[[Graph], Tensor], tmp_path: Path) -> None:
    graph, file = small(), tmp_path / "parts.npz"
    save_partition(file, replace(partition_nodes(graph, 2), assignment=assignment(graph)))
    grid = trained(parts=2, stages=2, partition=str(file), backend="thread")
    assert [rank["nodes"] for rank in grid.ranks[:2]] == assignment(graph).bincount().tolist()
    check_same(grid, trained(), 1e-9)


def test_sparse_features() -> None:
    """In processes, which read them from files."""
    x = small().x
    assert x is not None
    graph = small().replace(x=torch.where(x > 0, x, 0.0).to_sparse_csr())
    model = ModelConfig(family="sage", layers=3, hidden=8)
    check_same(trained(graph, model, parts=3, stages=2), trained(graph, model), 1e-9)


def test_runs_of_one_program_leave_its_threads_alone() -> None:
    before = torch.get_num_threads()
    first, second = (gfgnn.train(MODEL, small(), _threads(count)) for count in (2, 1))
    assert [rank["threads"] for result in (first, second) for rank in result.ranks] == [2, 2, 1, 1]
    assert torch.get_num_threads() == before


def _threads(count: int) -> gfgnn.TrainConfig:
    return gfgnn.TrainConfig(parts=2, iters=2, threads=count, backend="thread")
