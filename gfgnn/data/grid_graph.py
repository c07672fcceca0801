"""Grids as graphs: images, maps and masks, whose edges know where their neighbour lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgnn.checks import InputError, check_choice, check_count
from gfgnn.graph.build import as_labels, as_mask, as_numbers
from gfgnn.graph.edges import EdgeList
from gfgnn.graph.features import compact
from gfgnn.graph.graph import Graph

#: offsets (dy, dx) from target to source, by number of neighbours; a relation is a place in this list
OFFSETS: dict[int, tuple[tuple[int, int], ...]] = {
    8: tuple((dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)),
    4: ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)),
}


def grid_graph(
    height: int,
    width: int,
    mask: Any = None,
    neighbours: int = 8,
    wrap: bool | str = False,
    *,
    x: Any = None,
    y: Any = None,
    train_mask: Any = None,
    val_mask: Any = None,
    test_mask: Any = None,
    num_classes: int | None = None,
    task: str | None = None,
    name: str = "grid",
) -> Graph:
    """The cells of a grid as nodes, row by row, with edges from neighbouring cells.

    ``graph.raw`` holds every edge with a relation: the offset (dy, dx) from its target to its source. With 8
    neighbours there are nine, ``r = 3 * (dy + 1) + (dx + 1)``; relation 4, offset (0, 0), is the cell itself. With 4
    neighbours there are five in the same order: 0 = (-1, 0), 1 = (0, -1), 2 = the cell itself, 3 = (0, 1),
    4 = (1, 0). With S_r the 0/1 matrix of relation r (row = target), a layer ``sum_r S_r H W_r`` is what
    ``torch.nn.functional.conv2d`` does with a 3x3 kernel (for 4 neighbours one without corners), zero padding (where
    wrapped: circular padding), and zeros outside ``mask``. ``graph.edge_index`` holds the union without the cells
    themselves.

    Args:
        height, width: H and W, at least 1.
        mask: bool ``[H, W]``, the cells that are nodes; None for all. ``node_ids`` are then the numbers of the cells
            in the whole grid, ``row * W + column``.
        neighbours: 8, or 4 without the diagonal ones.
        wrap: whether opposite sides touch: False, True (both pairs), ``width`` (left and right, such as the date line
            of a map) or ``height`` (top and bottom). A wrapped side of 1 or 2 cells reaches a cell by several offsets:
            one edge of ``raw`` each, as in a circular convolution.
        x: features, ``[H, W, F]`` or ``[N, F]``.
        y: labels, ``[H, W]`` or ``[N]``, or several targets, ``[H, W, C]`` or ``[N, C]``.
        train_mask, val_mask, test_mask: bool ``[H, W]`` or ``[N]``, or node numbers.
        num_classes, task: see :meth:`gfgnn.Graph.from_edges`.

    Raises:
        InputError: whatever does not fit, with the value received.
    """
    check_count("height", height, 1)
    check_count("width", width, 1)
    check_choice("neighbours", neighbours, tuple(OFFSETS))
    check_choice("wrap", wrap, (False, True, "width", "height"))
    cells = _cells(mask, (height, width))
    n = int(cells.sum())
    sources = _sources(cells, OFFSETS[neighbours], wrap in (True, "height"), wrap in (True, "width"))
    labels, classes, task = as_labels(_labels(y, cells, n), n, num_classes, task)
    place = torch.from_numpy(cells)
    return Graph(
        edge_index=_union(sources),
        num_nodes=n,
        y=labels,
        num_classes=classes,
        train_mask=_split("train", train_mask, place, n),
        val_mask=_split("val", val_mask, place, n),
        test_mask=_split("test", test_mask, place, n),
        x=None if x is None else compact(_features(x, place, n)),
        task=task,
        name=name,
        node_ids=None if mask is None else place.flatten().nonzero().squeeze(1),
        notes=(_note(cells, neighbours, wrap),),
        raw=_relations(sources),
    )


def _cells(mask: Any, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Which cells are nodes, bool ``[H, W]``."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    cells = as_numbers("mask", mask)
    if cells.dtype != torch.bool or tuple(cells.shape) != shape:
        raise InputError(f"mask must be bool {list(shape)}; got {cells.dtype} {list(cells.shape)}.")
    if not bool(cells.any()):
        raise InputError("mask leaves no cell of the grid; a graph needs at least one node.")
    return cells.numpy()


def _sources(
    cells: NDArray[np.bool_], offsets: tuple[tuple[int, int], ...], wrap_height: bool, wrap_width: bool
) -> NDArray[np.int64]:
    """The node at each offset from each node, -1 where there is none, ``[R, N]``."""
    height, width = cells.shape
    number = np.full(cells.shape, -1, dtype=np.int64)
    number[cells] = np.arange(int(cells.sum()))
    for axis, wrapped in ((0, wrap_height), (1, wrap_width)):
        around = [(1, 1) if axis == other else (0, 0) for other in (0, 1)]
        number = np.pad(number, around, "wrap") if wrapped else np.pad(number, around, constant_values=-1)
    shifted = (number[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width] for dy, dx in offsets)
    return np.stack([view[cells] for view in shifted])


def _relations(sources: NDArray[np.int64]) -> EdgeList:
    """Every edge with its relation, sorted by (relation, target)."""
    relation, target = np.nonzero(sources >= 0)
    edge_index = np.stack([sources[relation, target], target])
    return EdgeList(
        torch.from_numpy(edge_index), None, torch.from_numpy(relation), num_relations=sources.shape[0]
    )


def _union(sources: NDArray[np.int64]) -> Tensor:
    """The edges between different cells, each once, sorted by (target, source), ``[2, E]``."""
    by_target = (
        sources.T.copy()
    )  # a copy also where one cell makes the transpose contiguous: it is sorted in place
    by_target.sort(axis=1)  # in order already, except where wrapped
    new = by_target >= 0
    new[:, 1:] &= by_target[:, 1:] != by_target[:, :-1]
    new &= by_target != np.arange(sources.shape[1])[:, None]
    return torch.from_numpy(np.stack([by_target[new], np.nonzero(new)[0]]))


def _features(x: Any, cells: Tensor, n: int) -> Tensor:
    """``[N, F]`` from ``[H, W, F]`` or ``[N, F]``."""
    values = as_numbers("x", x)
    if values.dim() == 3 and values.shape[:2] == cells.shape:
        return values[cells]
    if values.dim() != 2 or values.size(0) != n:
        height, width = cells.shape
        hint = ""
        if values.dim() == 3 and values.shape[1:] == cells.shape:
            hint = (
                " An image [F, H, W] becomes [H, W, F] by x.permute(1, 2, 0) (NumPy: x.transpose(1, 2, 0))."
            )
        raise InputError(
            f"x must be [H, W, F] = [{height}, {width}, F] or [N, F] = [{n}, F]; got {list(values.shape)}.{hint}"
        )
    return values


def _labels(y: Any, cells: NDArray[np.bool_], n: int) -> Tensor | None:
    """``[N]`` or ``[N, C]`` from the same, ``[H, W]`` or ``[H, W, C]``."""
    if y is None:
        return None
    values = as_numbers("y", y)
    height, width = cells.shape
    if values.dim() in (2, 3) and values.shape[:2] == cells.shape:
        return values[torch.from_numpy(cells)]
    if values.dim() not in (1, 2) or values.size(0) != n:
        raise InputError(
            f"y must be [H, W] = [{height}, {width}] or [N] = [{n}], or have one more axis for several targets; got "
            f"{list(values.shape)}."
        )
    return values


def _split(part: str, value: Any, cells: Tensor, n: int) -> Tensor:
    """Bool ``[N]`` from the same, from ``[H, W]``, or from node numbers."""
    if value is None:
        return as_mask(part, None, n)
    values = as_numbers(f"{part}_mask", value)
    if values.dim() != 2:
        return as_mask(part, values, n)
    if values.dtype != torch.bool or values.shape != cells.shape:
        raise InputError(
            f"{part}_mask must be bool [H, W] = {list(cells.shape)} or [N] = [{n}]; got {values.dtype} "
            f"{list(values.shape)}."
        )
    return values[cells]


def _note(cells: NDArray[np.bool_], neighbours: int, wrap: bool | str) -> str:
    height, width = cells.shape
    kept = "" if cells.all() else f", {int(cells.sum()):,} of them kept"
    joined = {False: "", True: ", both pairs of sides joined", "width": ", left and right joined"}
    return (
        f"grid of {height:,} x {width:,} cells{kept}, {neighbours} neighbours"
        f"{joined.get(wrap, ', top and bottom joined')}; relations: offsets (dy, dx) from target to source, row by row"
    )
