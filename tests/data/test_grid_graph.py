"""Grids: their relations are a convolution, their union is the neighbours, and bad shapes are named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from gfgnn import InputError
from gfgnn.data import grid_graph
from gfgnn.data.grid_graph import OFFSETS
from gfgnn.graph.edges import clean_edges
from gfgnn.graph.graph import Graph

WRAPS = [False, True, "width", "height"]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gathered(graph: Graph, h: Tensor, weight: Tensor) -> Tensor:
    """``sum_r S_r H W_r`` by multiplying with S_r, the 0/1 matrix of relation r, row = target."""
    raw = graph.raw
    assert raw is not None
    assert raw.edge_type is not None
    source, target = raw.edge_index
    out = h.new_zeros(h.size(0), weight.size(2))
    for r in range(raw.num_relations):
        edges = raw.edge_type == r
        s = h.new_zeros(graph.num_nodes, graph.num_nodes)
        s.index_put_((target[edges], source[edges]), h.new_ones(int(edges.sum())), accumulate=True)
        out += s @ h @ weight[r]
    return out


def convolved(image: Tensor, kernel: Tensor, wrap: bool | str) -> Tensor:
    """conv2d of ``[H, W, F]`` with a kernel ``[C, F, 3, 3]``, padded by zeros or around, ``[H, W, C]``."""
    padded = image.permute(2, 0, 1)[None]
    for axis, pad in (("width", (1, 1, 0, 0)), ("height", (0, 0, 1, 1))):
        padded = functional.pad(padded, pad, mode="circular" if wrap in (True, axis) else "constant")
    return functional.conv2d(padded, kernel)[0].permute(1, 2, 0)


def kernel_of(weight: Tensor, neighbours: int) -> Tensor:
    """``[C, F, 3, 3]`` with the weights ``[R, F, C]`` at their offsets."""
    kernel = weight.new_zeros(weight.size(2), weight.size(1), 3, 3)
    for r, (dy, dx) in enumerate(OFFSETS[neighbours]):
        kernel[:, :, dy + 1, dx + 1] = weight[r].T
    return kernel


@given(
    height=st.integers(1, 5),
    width=st.integers(1, 5),
    neighbours=st.sampled_from([4, 8]),
    wrap=st.sampled_from(WRAPS),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_relations_are_a_convolution(
    height: int, width: int, neighbours: int, wrap: bool | str, masked: bool, seed: int
) -> None:
    mask = randn(height, width, seed=seed) > -0.3
    mask[0, 0] = True
    cells = mask if masked else torch.ones_like(mask)
    graph = grid_graph(height, width, mask if masked else None, neighbours, wrap)
    image = randn(height, width, 2, seed=seed + 1)
    weight = randn(len(OFFSETS[neighbours]), 2, 3, seed=seed + 2)
    expected = convolved(image * cells[:, :, None], kernel_of(weight, neighbours), wrap)[cells]
    torch.testing.assert_close(gathered(graph, image[cells], weight), expected)


@given(
    height=st.integers(1, 5),
    width=st.integers(1, 5),
    neighbours=st.sampled_from([4, 8]),
    wrap=st.sampled_from(WRAPS),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_the_union_is_what_cleaning_makes_of_the_relations(
    height: int, width: int, neighbours: int, wrap: bool | str, seed: int
) -> None:
    mask = randn(height, width, seed=seed) > -0.5
    mask[-1, -1] = True
    graph = grid_graph(height, width, mask, neighbours, wrap)
    assert graph.raw is not None
    clean = clean_edges(graph.raw.edge_index.numpy(), graph.num_nodes)
    assert torch.equal(graph.edge_index, torch.from_numpy(clean.edge_index))
    assert graph.directed is clean.directed is False


def test_conv2d_with_padding_one() -> None:
    """The very call of the docstring, at the size of a small image."""
    image, weight = randn(7, 9, 3), randn(9, 3, 4, seed=1)
    graph = grid_graph(7, 9, x=image)
    kernel = weight.permute(2, 1, 0).reshape(4, 3, 3, 3)  # relations are the places of the kernel, row by row
    expected = functional.conv2d(image.permute(2, 0, 1)[None], kernel, padding=1)[0].permute(1, 2, 0)
    torch.testing.assert_close(gathered(graph, image.reshape(63, 3), weight), expected.reshape(63, 4))


def test_numbering() -> None:
    graph = grid_graph(3, 3)
    assert graph.raw is not None
    assert graph.raw.edge_type is not None
    into = graph.raw.edge_index[1] == 4  # the middle: its sources are the cells in order
    assert graph.raw.edge_index[0][into].tolist() == graph.raw.edge_type[into].tolist() == list(range(9))
    assert (graph.num_relations, graph.num_edges, graph.node_ids) == (9, 40, None)
    cross = grid_graph(3, 3, neighbours=4)
    assert cross.raw is not None
    into = cross.raw.edge_index[1] == 4
    assert cross.raw.edge_index[0][into].tolist() == [1, 3, 4, 5, 7]
    assert (cross.num_relations, cross.num_edges) == (5, 24)


def test_masked_cells_are_numbered_among_themselves() -> None:
    mask = torch.tensor([[True, False, True], [False, True, False]])
    image = torch.arange(12.0).reshape(2, 3, 2)
    classes = torch.tensor([[0, 9, 1], [9, 2, 9]])
    graph = grid_graph(2, 3, mask, x=image, y=classes, train_mask=mask, name="sparse")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [0, 2, 4]
    assert graph.edge_index.tolist() == [[2, 2, 0, 1], [0, 1, 2, 2]]
    assert graph.x is not None
    assert graph.x.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert graph.y.tolist() == [0, 1, 2]
    assert bool(graph.train_mask.all())
    assert graph.notes[0].startswith("grid of 2 x 3 cells, 3 of them kept, 8 neighbours")


def test_values_by_cell_or_by_node() -> None:
    by_cell = grid_graph(
        2, 3, x=torch.ones(2, 3, 4), y=torch.eye(2, 3).long(), test_mask=torch.eye(2, 3).bool()
    )
    by_node = grid_graph(
        2,
        3,
        x=torch.ones(6, 4),
        y=torch.eye(2, 3).long().flatten(),
        test_mask=torch.eye(2, 3).bool().flatten(),
    )
    for graph in (by_cell, by_node):
        assert (graph.num_features, graph.num_classes, graph.task) == (4, 2, "multiclass")
        assert graph.y.tolist() == [1, 0, 0, 0, 1, 0]
        assert graph.test_mask.nonzero().flatten().tolist() == [0, 4]
    assert grid_graph(2, 3, train_mask=[0, 5]).train_mask.nonzero().flatten().tolist() == [0, 5]
    for targets in (randn(2, 3, 2), randn(6, 2)):
        assert grid_graph(2, 3, y=targets).task == "regression"
    assert grid_graph(2, 3, y=torch.ones(2, 3), task="regression").y.shape == (6, 1)
    assert grid_graph(2, 3, y=torch.ones(2, 3).long(), num_classes=5).num_classes == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"height": 0}, "height must be at least 1; got 0"),
        ({"width": 2.0}, "width must be a whole number; got 2.0"),
        ({"neighbours": 6}, "neighbours must be one of 8, 4; got 6"),
        ({"wrap": "both"}, "wrap must be one of False, True, width, height; got 'both'"),
        ({"mask": torch.ones(2, 3)}, r"mask must be bool \[2, 3\]; got torch.float32 \[2, 3\]"),
        ({"mask": torch.ones(6).bool()}, r"mask must be bool \[2, 3\]; got torch.bool \[6\]"),
        ({"mask": torch.zeros(2, 3).bool()}, "mask leaves no cell"),
        (
            {"x": torch.ones(4, 2, 3)},
            r"got \[4, 2, 3\]\. An image \[F, H, W\] becomes \[H, W, F\] by x\.permute",
        ),
        (
            {"x": torch.ones(5, 2)},
            r"x must be \[H, W, F\] = \[2, 3, F\] or \[N, F\] = \[6, F\]; got \[5, 2\]",
        ),
        ({"x": torch.ones(6)}, r"x must be .*; got \[6\]"),
        ({"y": torch.ones(3, 2)}, r"y must be \[H, W\] = \[2, 3\] or \[N\] = \[6\].*; got \[3, 2\]"),
        (
            {"train_mask": torch.ones(3, 2).bool()},
            r"train_mask must be bool \[H, W\] = \[2, 3\] or \[N\] = \[6\]",
        ),
        ({"val_mask": torch.ones(2, 3)}, "val_mask must be bool .*; got torch.float32"),
        ({"test_mask": torch.ones(5).bool()}, r"test_mask must have shape \[6\]; got \[5\]"),
    ],
)
def test_bad_grids(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid_graph(**{"height": 2, "width": 3, **changes})
