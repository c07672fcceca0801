"""Planted partitions."""

from __future__ import annotations

import tracemalloc

import pytest
import torch

from gfgnn import InputError, load
from gfgnn.data import synthetic
from gfgnn.data.synthetic import SyntheticConfig, parse_synthetic


def test_statistics_are_those_asked_for() -> None:
    graph = load("synthetic:nodes=20000,classes=5,degree=10,homophily=0.7,features=16,noise=0.5,seed=3")
    found = graph.statistics()
    assert found["num_nodes"] == 20000
    assert found["num_classes"] == 5
    assert found["num_features"] == 16
    assert found["mean_degree"] == pytest.approx(10, rel=0.1)
    assert found["edge_homophily"] == pytest.approx(0.7 + 0.3 / 5, abs=0.03)
    assert found["max_degree"] > 100  # skewed
    assert not graph.directed
    assert sum(found["class_counts"]) == 20000
    assert found["train_nodes"] == pytest.approx(12000, rel=0.03)
    assert "seed=3" in graph.notes[0]


def test_no_skew() -> None:
    assert load("synthetic:nodes=5000,degree=10,skew=0,features=0").statistics()["max_degree"] < 40


def test_features_tell_classes_by_noise() -> None:
    graph = load("synthetic:nodes=2000,classes=4,noise=0.1,features=8")
    assert graph.x is not None
    means = torch.stack([graph.x[graph.y == c].mean(0) for c in range(4)])
    assert torch.equal(torch.cdist(graph.x, means).argmin(1), graph.y)


def test_seed_decides_and_chunks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    one, same, other = (load(f"synthetic:nodes=500,seed={seed}") for seed in (0, 0, 1))
    assert torch.equal(one.edge_index, same.edge_index)
    assert one.x is not None
    assert same.x is not None
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.y, other.y)
    monkeypatch.setattr(synthetic, "CHUNK", 1000)
    assert load("synthetic:nodes=500").num_nodes == 500


def test_every_class_exists_in_the_smallest_graph() -> None:
    assert sorted(load("synthetic:nodes=6,classes=6,features=1").y.tolist()) == list(range(6))


def test_memory_is_bounded() -> None:
    """About 100 bytes an edge at the peak, whatever the size: keys and their sort, no dense matrix."""
    tracemalloc.start()
    load("synthetic:nodes=100000,degree=20,features=0")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6


def test_parse() -> None:
    assert parse_synthetic("") == SyntheticConfig()
    assert parse_synthetic("nodes=1e3, noise=2") == SyntheticConfig(nodes=1000, noise=2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size=3", "settings are nodes, classes, .*got 'size=3'"),
        ("nodes=many", "nodes must be a number; got 'many'"),
        ("nodes=inf", "nodes must be a number"),
        ("nodes=10.5", "nodes must be a whole number"),
        ("nodes=3,classes=4", "nodes must be at least 4; got 3"),
        ("homophily=1.2", "homophily must lie between 0.0 and 1.0"),
        ("skew=1.5", "skew .* must be at least 2.0"),
        ("noise=nan", "noise must be a number; got 'nan'"),
        ("noise=-1", "noise must be at least 0.0"),
    ],
)
def test_bad_settings(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_synthetic(text)
