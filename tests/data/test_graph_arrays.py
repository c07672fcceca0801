"""Graphs as arrays and back: every field, sparse features and relations included, and no copy."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch

from gfgnn import Graph, load
from gfgnn.data.graph_arrays import graph_to_arrays, stored_graph


def graphs() -> dict[str, Graph]:
    edges = [[0, 1, 2, 2, 0], [1, 2, 0, 2, 1]]
    return {
        "sparse": load("citeseer"),
        "plain": Graph.from_edges([[0, 1], [1, 2]], 3, y=[0, 1, -1], train_mask=[0]),
        "weights": Graph.from_edges(
            edges, 3, x=np.ones((3, 2)), edge_weight=[1.0, 2, 3, 4, 5], keep_raw=True
        ),
        "relations": Graph.from_edges(edges, 3, y=np.eye(3), edge_type=[0, 1, 1, 0, 1], num_relations=4),
        "part": load("synthetic:nodes=40,classes=2").subgraph(range(10, 30)),
    }


@pytest.mark.parametrize("name", graphs())
def test_every_field_comes_back(name: str) -> None:
    graph = graphs()[name]
    back = stored_graph(graph_to_arrays(graph))
    for field in fields(Graph):
        ours, theirs = getattr(graph, field.name), getattr(back, field.name)
        if field.name == "raw" and ours is not None:
            assert ours.num_relations == theirs.num_relations
            parts = ("edge_index", "edge_weight", "edge_type")
            pairs = [(getattr(ours, part), getattr(theirs, part)) for part in parts]
        else:
            pairs = [(ours, theirs)]
        for one, other in pairs:
            assert type(one) is type(other), field.name
            if isinstance(one, torch.Tensor):
                assert one.dtype == other.dtype
                assert one.layout == other.layout
                assert torch.equal(one.to_dense(), other.to_dense())
            else:
                assert one == other


def test_memory_is_shared() -> None:
    graph = graphs()["weights"]
    back = stored_graph(graph_to_arrays(graph))
    assert back.x is not None
    assert graph.x is not None
    assert back.x.data_ptr() == graph.x.data_ptr()
    assert back.edge_index.data_ptr() == graph.edge_index.data_ptr()
