"""Predicted memory of ranks: by hand for small cases, and what it must do as grids grow."""

from __future__ import annotations

import pytest
import torch

from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.plan.memory import BASE, Memory, PartMemory, rank_memory
from gfgnn.shards import make_shards
from gfgnn.train import train

NODES = 1000


def part(**changes: int) -> PartMemory:
    values = {"nodes": NODES, "train": 100, "moving": 0, "matrices": 8000, "head": 800, "values": 1000}
    return PartMemory(**{**values, "features": NODES * 10 * 4, "sparse": False, **changes})  # type: ignore[arg-type]


def network(family: str = "gcn", layers: int = 6, hidden: int = 8) -> Model:
    graph = load("synthetic:nodes=60,classes=3,features=10,seed=0")
    return build_model(ModelConfig(family=family, layers=layers, hidden=hidden), graph)


def predicted(
    model: Model, bounds: tuple[int, ...], stage: int, held: PartMemory, staleness: int = 0
) -> Memory:
    return rank_memory(model, bounds, stage, held, staleness=staleness, itemsize=4)


def test_one_rank_by_hand() -> None:
    """GCN-6: H_0, and T and H of four hidden blocks; the head's message and labelled rows on top."""
    memory = predicted(network(), (0, 6), 0, part())
    u, rows = NODES * 8 * 4, 100 * 4
    assert memory.base == BASE
    assert memory.matrices == 8800
    assert memory.features == NODES * 10 * 4
    assert memory.moments["output"] == 9 * u + 2 * rows * 8 + 4 * rows * 3 + NODES * 3 * 4 + u
    assert memory.moments["backward"] == 9 * u + 2 * u
    assert memory.peak == BASE + 8800 + memory.features + memory.solver + max(memory.moments.values())


def test_a_middle_stage_by_hand() -> None:
    """H from below, two blocks, the message in use and the gated one; with staleness, messages that wait."""
    model, u = network(), NODES * 8 * 4
    bounds = (0, 2, 4, 6)
    assert predicted(model, bounds, 1, part()).moments["backward"] == (1 + 4 + 2) * u
    assert predicted(model, bounds, 1, part(), 1).moments["backward"] == (1 + 4 + 2 + 1) * u
    assert predicted(model, bounds, 1, part(), 2).moments["backward"] == (1 + 4 + 2 + 1 + 2 + 1 + 1) * u
    assert predicted(model, bounds, 1, part()).features == 0


def test_gcnii_adds_the_first_activations() -> None:
    model, u = network("gcnii", layers=4), NODES * 8 * 4  # encoder, four hidden blocks, output
    middle = predicted(model, (0, 2, 4, 6), 1, part()).moments["backward"]
    assert middle == (2 + 4 + 2) * u
    first = predicted(model, (0, 2, 4, 6), 0, part()).moments["backward"]
    assert first == (1 + 2) * u + (1 + 2) * u + u, "messages for H_0 come from both other stages"


@pytest.mark.parametrize("family", ["gcn", "gcnii", "resgcn", "sage", "sign"])
def test_more_parts_and_more_stages_need_less(family: str) -> None:
    model = network(family, layers=8, hidden=16)
    blocks = len(model.blocks)
    graph = load("synthetic:nodes=4000,classes=3,features=10,seed=0")
    peaks = []
    for parts in (1, 2, 4):
        assignment = torch.arange(graph.num_nodes) * parts // graph.num_nodes
        shards = make_shards(model, graph, assignment, parts, dtype=torch.float32)
        peaks.append(max(predicted(model, (0, blocks), 0, PartMemory.of(shard)).peak for shard in shards))
    assert peaks[0] > peaks[1] > peaks[2] > BASE
    if blocks >= 8:
        held = part(nodes=100_000)
        whole = predicted(model, (0, blocks), 0, held).peak
        halves = [predicted(model, (0, blocks // 2, blocks), k, held, 1).peak for k in (0, 1)]
        assert max(halves) < whole


def big() -> Graph:
    return load("synthetic:nodes=60000,classes=4,features=64,degree=6,seed=0")


def test_ranks_use_what_is_predicted() -> None:
    """More than half of the peak is data here; the rest is the process, which other versions of libraries change."""
    graph = big()
    model = build_model(ModelConfig(family="gcn", layers=6, hidden=128), graph)
    config = TrainConfig(iters=2, threads=1, parts=2, lean=True, timeout=60)
    result = train(model, graph, config)
    assert result.plan is not None
    shards = make_shards(model, graph, result.plan.assignment(graph.num_nodes), 2, dtype=torch.float32)
    for rank in result.ranks:
        memory = predicted(model, (0, 6), 0, PartMemory.of(shards[rank["part"]]))
        assert memory.peak - BASE > 0.5 * memory.peak
        assert rank["peak_rss_bytes"] == pytest.approx(memory.peak, rel=0.2)
