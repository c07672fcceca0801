"""Predicted memory of ranks: by hand for small cases, and what it must do as grids grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gfgnn.config import ModelConfig, TrainConfig
from gfgnn.data import load
from gfgnn.graph.graph import Graph
from gfgnn.model.build import Model, build_model
from gfgnn.ops.ridge import PIECE
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


U = NODES * 8 * 4  #: an array of NODES x 8 numbers of float32
BITS = NODES  #: a gate of such an array, a bit for each number


def predicted(
    model: Model, bounds: tuple[int, ...], stage: int, held: PartMemory, staleness: int = 0, **settings: Any
) -> Memory:
    settings = {"gate_bits": 1, **settings}
    return rank_memory(model, bounds, stage, held, staleness=staleness, itemsize=4, **settings)


def test_one_rank_by_hand() -> None:
    """GCN-6: T of four hidden blocks and five gates; H and Z on the way up, a message on the way down."""
    memory, rows = predicted(network(), (0, 6), 0, part()), 100 * 4
    assert memory.base == BASE
    assert memory.matrices == 8800
    assert memory.features == NODES * 10 * 4
    kept = 4 * U + 5 * BITS
    assert memory.moments["forward"] == kept + 2 * U
    assert memory.moments["backward"] == kept + U + PIECE + rows * 8
    assert memory.moments["output"] == kept + rows * 8 + 4 * rows * 3 + NODES * 3 * 4 + U
    assert memory.peak == BASE + 8800 + memory.features + memory.solver + max(memory.moments.values())
    bytes_ = predicted(network(), (0, 6), 0, part(), gate_bits=8)
    assert bytes_.moments["forward"] - memory.moments["forward"] == 5 * 7 * BITS


def test_a_middle_stage_by_hand() -> None:
    """Two blocks between others. Forward: H from below and H between them, T, Z, and what was sent: up and down once
    where stages wait for each other, else as often as may be under way. Backward: the message and the gated one."""
    model, bounds, kept = network(), (0, 2, 4, 6), 2 * U + 2 * BITS
    waiting = [predicted(model, bounds, 1, part(), s).moments for s in (0, 1, 2)]
    assert waiting[0]["forward"] == kept + 3 * U + (1 + 1) * U
    assert waiting[1]["forward"] == kept + 3 * U + (1 + 0 + 1) * U, (
        "the message to come, and the one sent down"
    )
    assert waiting[2]["forward"] == kept + 3 * U + (2 + 1 + 1 + 2) * U
    assert waiting[0]["backward"] == kept + max(2 * U, U + PIECE) + (1 + 1) * U
    assert waiting[1]["backward"] == kept + max(2 * U, U + PIECE) + (1 + 1) * U, "H for the next time, H sent"
    assert predicted(model, bounds, 1, part()).features == 0


def test_the_first_stage_holds_what_it_sent() -> None:
    """Nothing comes from below that would say that it has arrived."""
    first, kept = predicted(network(), (0, 2, 4, 6), 0, part(), 1).moments, U + 2 * BITS
    assert first["forward"] == kept + 2 * U + (1 + 1) * U


def test_gcnii_adds_the_first_activations() -> None:
    model = network("gcnii", layers=4)  # encoder, four hidden blocks, output
    one = predicted(model, (0, 6), 0, part()).moments
    assert one["forward"] == 4 * U + 5 * BITS + 3 * U, "H_0 beside H and Z"
    middle = predicted(model, (0, 2, 4, 6), 1, part()).moments
    assert middle["forward"] == 2 * U + 2 * BITS + 4 * U + (1 + 2) * U, "two messages down have been sent"
    first = predicted(model, (0, 2, 4, 6), 0, part()).moments["backward"]
    assert first == U + 2 * BITS + max(5 * U, 2 * U + PIECE + U - U) + (1 + 1) * U, "sums from both stages"


def test_less_is_kept_on_request() -> None:
    """Ten blocks: T in 16 bits is half as large; one in four has a checkpoint, and T of four comes back at a time."""
    model = network(layers=12, hidden=64)
    u, bits = 8 * U, 8 * BITS
    plain, small, again = (
        predicted(model, (0, 12), 0, part(), **settings).moments
        for settings in ({}, {"storage": "bf16"}, {"recompute": True})
    )
    assert plain["forward"] == 10 * u + 11 * bits + 2 * u
    assert small["forward"] == 5 * u + 11 * bits + 3 * u
    assert again["forward"] == 3 * u + 11 * bits + 3 * u
    assert again["backward"] == 1 * u + 11 * bits + 4 * u + u + PIECE + 100 * 4 * 64


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
    """More than a third of the peak is data here; the rest is the process, which other versions of libraries change."""
    graph = big()
    model = build_model(ModelConfig(family="gcn", layers=6, hidden=128), graph)
    config = TrainConfig(iters=2, threads=1, parts=2, lean=True, timeout=60)
    result = train(model, graph, config)
    assert result.plan is not None
    shards = make_shards(model, graph, result.plan.assignment(graph.num_nodes), 2, dtype=torch.float32)
    for rank in result.ranks:
        memory = predicted(model, (0, 6), 0, PartMemory.of(shards[rank["part"]]))
        assert memory.peak - BASE > memory.peak / 3
        assert rank["peak_rss_bytes"] == pytest.approx(memory.peak, rel=0.2)
