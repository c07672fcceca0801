"""Splits drawn on request."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gfgnn import Graph, InputError
from gfgnn.data import draw_split


@pytest.fixture
def graph() -> Graph:
    """1000 nodes, 4 classes, every tenth node unlabelled."""
    y = np.arange(1000) % 4
    y[::10] = -1
    return Graph.from_edges(np.array([[0], [1]]), 1000, y=y)


def sizes(graph: Graph) -> tuple[int, int, int]:
    return int(graph.train_mask.sum()), int(graph.val_mask.sum()), int(graph.test_mask.sum())


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("per_class=20,val_per_class=30", (80, 120, 700)),
        ("per_class=20,val=500", (80, 500, 320)),
        ("per_class=20,val=500,test=200", (80, 500, 200)),
        ("train=0.6,val=0.2", (540, 180, 180)),
        ("train=0.6,val=0.2,test=0.2", (540, 180, 180)),
        ("val=500,test=100", (300, 500, 100)),
        ("test=1.0", (0, 0, 900)),
        ("train=10", (10, 0, 890)),
        (" train=10 , test=0 ", (10, 0, 0)),
    ],
)
def test_sizes(graph: Graph, split: str, expected: tuple[int, int, int]) -> None:
    drawn = draw_split(graph, split, seed=3)
    assert sizes(drawn) == expected
    everything = drawn.train_mask | drawn.val_mask | drawn.test_mask
    assert not everything[drawn.y < 0].any()
    assert drawn.notes == (f"split {split} drawn with seed 3",)


def test_per_class_is_exact(graph: Graph) -> None:
    drawn = draw_split(graph, "per_class=7,val_per_class=5")
    assert torch.bincount(drawn.y[drawn.train_mask]).tolist() == [7] * 4
    assert torch.bincount(drawn.y[drawn.val_mask]).tolist() == [5] * 4


@pytest.mark.parametrize("split", ["per_class=12,val=40", "train=40,val_per_class=6,test=40"])
def test_counts_after_a_draw_by_class_are_even(split: str) -> None:
    """Rare classes are among the nodes drawn next as often as among all that are left."""
    y = torch.tensor([0] * 400 + [1] * 20)
    edges = torch.stack([torch.arange(419), torch.arange(1, 420)])
    graph = Graph.from_edges(edges, 420, y=y, symmetrise=True)
    drawn = [draw_split(graph, split, seed) for seed in range(300)]
    name = "val_mask" if "val=40" in split else "test_mask"
    share = torch.cat([g.y[getattr(g, name)] for g in drawn]).double().mean()
    rest = torch.cat(
        [g.y[~g.train_mask] if name == "val_mask" else g.y[~(g.train_mask | g.val_mask)] for g in drawn]
    )
    assert float(share) == pytest.approx(float(rest.double().mean()), rel=0.2)


def test_seed_decides(graph: Graph) -> None:
    one, same, other = (draw_split(graph, "per_class=20,val=100", seed) for seed in (0, 0, 1))
    assert torch.equal(one.train_mask, same.train_mask)
    assert torch.equal(one.val_mask, same.val_mask)
    assert not torch.equal(one.train_mask, other.train_mask)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("public", "keys per_class, train, val_per_class, val, test; got 'public'"),
        ("train=0.6,train=0.2", "names train twice"),
        ("train=5,per_class=5", "train or per_class, not both"),
        ("val=5", "must say how many nodes train has"),
        ("train=1.5", "a share between 0 and 1"),
        ("train=-5", "a share between 0 and 1"),
        ("train=x", "train must be a number; got 'x'"),
        ("per_class=0.5", "per_class counts nodes and must be whole"),
        ("train=901", "asks for 901 nodes where 900 labelled ones are left"),
        ("train=0.8,val=0.3", "asks for 270 nodes where 180 labelled ones are left"),
        ("per_class=300", "asks for 300 nodes of class 0, which has 200 labelled"),
    ],
)
def test_bad_splits(graph: Graph, split: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_split(graph, split)


def test_a_seed_below_zero_and_a_split_that_is_no_text(graph: Graph) -> None:
    with pytest.raises(InputError, match="split_seed must be at least 0; got -1"):
        draw_split(graph, "per_class=1", seed=-1)
    with pytest.raises(InputError, match=r"split must be text such as .*; got 5"):
        draw_split(graph, 5)  # type: ignore[arg-type]


def test_nothing_to_draw_from() -> None:
    with pytest.raises(InputError, match="no labelled node"):
        draw_split(Graph.from_edges(np.array([[0], [1]]), 3), "train=0.5")


def test_by_class_needs_classes() -> None:
    graph = Graph.from_edges(np.array([[0], [1]]), 3, y=torch.rand(3, 2))
    with pytest.raises(InputError, match="but graph is regression; use shares"):
        draw_split(graph, "per_class=1")
    assert sizes(draw_split(graph, "train=0.4")) == (1, 0, 2)
