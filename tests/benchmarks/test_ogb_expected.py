"""What the OGB examples are expected to take: counted from sizes alone as from a graph of these sizes."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

import gfgnn
from gfgnn.plan.cost import Rates, block_costs, seconds
from gfgnn.plan.memory import BASE, PartMemory, rank_memory
from gfgnn.plan.plan import sizes_of
from gfgnn.shards import make_shards

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ogb_expected")


@pytest.mark.parametrize("family", ["gcn", "sage"])
def test_sizes_say_what_a_graph_says(module: ModuleType, family: str) -> None:
    graph = gfgnn.load("synthetic:nodes=3000,classes=3,features=10,degree=20", split="train=0.5,val=0.2")
    shape = module.Shape(3000, graph.num_edges, 10, 3, int(graph.train_mask.sum()))
    model = gfgnn.build_model(gfgnn.ModelConfig(family=family, layers=3, hidden=256), graph)
    (shard,) = make_shards(model, graph, torch.zeros(3000, dtype=torch.int64), 1, dtype=torch.float32)
    counted = rank_memory(
        model, (0, len(model.blocks)), 0, PartMemory.of(shard), staleness=0, itemsize=4
    ).peak
    held, beside = module.memory(shape, family)
    assert held - BASE == pytest.approx(counted - BASE, rel=0.03)
    assert graph.x is not None
    assert beside == graph.edge_index.nbytes + graph.x.nbytes
    work = block_costs(model, sizes_of(model, graph, 4), "polar")
    assert module.work(shape, family) == pytest.approx(sum(seconds(cost, Rates()) for cost in work), rel=0.02)


def test_report(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """From the runs that come with the package."""
    module.report()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if ", GCN" in line]
    assert rows == ["arxiv, GCN, measured", "products, GCN, predicted", "proteins, GCN, predicted"]
