"""Shards in files: read and mapped, they are the same, and a mapped one changes in this process only."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from grids import random_parts, small, small_directed

from gfgnn.config import ModelConfig
from gfgnn.graph.graph import Graph
from gfgnn.launch.files import load_shard, save_shard
from gfgnn.model.build import build_model
from gfgnn.shards import iter_shards, pack


@pytest.mark.parametrize("graph", [small(), small_directed()], ids=["undirected", "directed"])
def test_read_and_mapped(graph: Graph, tmp_path: Path) -> None:
    model = build_model(ModelConfig(family="gcn", layers=2, hidden=4), graph)
    for shard in iter_shards(model, graph, random_parts(90, 3), 3, dtype=torch.float32):
        save_shard(tmp_path / str(shard.part), shard)
        read, mapped = (
            load_shard(tmp_path / str(shard.part), with_features=True, mapped=mapped)
            for mapped in (False, True)
        )
        wanted, about = pack(shard)
        for found in (read, mapped):
            tensors, said = pack(found)
            assert said == about
            assert tensors.keys() == wanted.keys()
            assert all(torch.equal(value, wanted[name]) for name, value in tensors.items())
        assert (mapped.matrix_t is mapped.matrix) == (shard.matrix_t is shard.matrix)
        mapped.matrix.owned.values().zero_()
        assert mapped.features is not None
        mapped.features.zero_()
        again = load_shard(tmp_path / str(shard.part), with_features=False, mapped=True)
        assert torch.equal(again.matrix.owned.values(), shard.matrix.owned.values())
        assert again.features is None
        assert {field.name for field in fields(again) if getattr(again, field.name) is None} == {"features"}
