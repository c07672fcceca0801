"""Rows of a sparse matrix by number: of one that is stored, or of one that is made from edges where it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from gfgnn.graph.pieces import row_pieces
from gfgnn.ops.memory import page_out
from gfgnn.ops.spmm import from_parts, rows_of


class Rows(Protocol):
    """A sparse matrix ``[M, N]``.

    Attributes:
        num_columns: N.
        counts: non-zeros of each row, ``[M]`` int64.
    """

    @property
    def num_columns(self) -> int: ...

    @property
    def counts(self) -> Tensor: ...

    def columns(self, rows: Tensor) -> Tensor:
        """Columns of the non-zeros of ``rows``, row by row; not sorted."""
        ...

    def take(self, rows: Tensor) -> Tensor:
        """The rows of these numbers, ``[k]``, as sparse CSR ``[k, N]``, columns ascending."""
        ...


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of a sparse CSR tensor."""

    matrix: Tensor

    @property
    def num_columns(self) -> int:
        return self.matrix.size(1)

    @cached_property
    def start(self) -> Tensor:
        return self.matrix.crow_indices().long()

    @property
    def counts(self) -> Tensor:
        return self.start.diff()

    def columns(self, rows: Tensor) -> Tensor:
        return self.matrix.col_indices()[places(self.start, rows)].long()

    def take(self, rows: Tensor) -> Tensor:
        return rows_of(self.matrix, rows)


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Row i has ``left_i * right_j * w`` for every edge of weight w from j to i, and so for its self-loop.

    It holds a few numbers for each node, and the edges themselves only where they lie already, be that a file.

    Attributes:
        source: ``[E]`` int64 sources of edges sorted by (target, source), without self-loops.
        start: ``[N + 1]`` int64; edges into node i are numbers ``start[i]`` to ``start[i + 1] - 1``.
        weight: ``[E]``, or None for all ones.
        loop: the weight of a self-loop of every node; None where there are none.
        left, right: ``[N]`` float64; None for all ones.
        dtype: of the values, which are computed in float64 and then rounded.
    """

    source: Tensor
    start: Tensor
    weight: Tensor | None
    loop: float | None
    left: Tensor | None
    right: Tensor | None
    dtype: torch.dtype

    @property
    def num_columns(self) -> int:
        return self.start.numel() - 1

    @property
    def counts(self) -> Tensor:
        return self.start.diff() + int(self.loop is not None)

    def columns(self, rows: Tensor) -> Tensor:
        found = self._sources(places(self.start, rows))
        return found if self.loop is None else torch.cat([found, rows])

    def take(self, rows: Tensor) -> Tensor:
        place, counts = places(self.start, rows), self.start[rows + 1] - self.start[rows]
        column, end = self._sources(place), counts.cumsum(0)
        value = self._scaled(rows, counts, column, None if self.weight is None else self.weight[place])
        if self.loop is not None:
            row = torch.repeat_interleave(torch.arange(rows.numel()), counts)
            above = column > rows[row]
            moved = row.add_(torch.arange(column.numel())).add_(
                above
            )  # a row's loop stands before those above it
            below = torch.cat([end.new_zeros(1), (~above).cumsum(0)])
            begin = end - counts
            own = begin + torch.arange(rows.numel()) + below[end] - below[begin]
            loops = self._scaled(rows, None, rows, torch.full((1,), self.loop))
            column, value = (
                old.new_empty(old.numel() + rows.numel()).index_copy_(0, moved, old).index_copy_(0, own, new)
                for old, new in ((column, rows), (value, loops))
            )
            end = end + torch.arange(1, rows.numel() + 1)
        return from_parts(torch.cat([end.new_zeros(1), end]), column, value, (rows.numel(), self.num_columns))

    def _sources(self, place: slice | Tensor) -> Tensor:
        found = self.source[place]
        if isinstance(place, Tensor):
            return found
        found = found.clone()
        page_out([self.source[place]])
        return found

    def _scaled(self, rows: Tensor, counts: Tensor | None, column: Tensor, weight: Tensor | None) -> Tensor:
        """``(left * right) * weight`` in this order, so that S is as symmetric as the weights are."""
        value = torch.ones(column.numel(), dtype=torch.float64)
        if self.left is not None:
            left = self.left[rows]
            value = left if counts is None else torch.repeat_interleave(left, counts)
        if self.right is not None:
            value = value * self.right[column]
        if weight is not None:
            value = value * weight.double()
        return value.to(self.dtype)


def places(start: Tensor, rows: Tensor) -> slice | Tensor:
    """Numbers of the entries of ``rows``, row by row; a slice where the rows follow each other."""
    if rows.numel() and bool((rows.diff() == 1).all()):
        return slice(int(start[rows[0]]), int(start[rows[-1] + 1]))
    counts = start[rows + 1] - start[rows]
    first = start[rows] - counts.cumsum(0) + counts
    return torch.repeat_interleave(first, counts).add_(torch.arange(int(counts.sum())))


def in_pieces(matrix: Rows, rows: Tensor) -> Iterator[Tensor]:
    """``rows`` in their order, in pieces that hold a bounded number of non-zeros."""
    end = matrix.counts[rows].cumsum(0)
    for first, last in row_pieces(torch.cat([end.new_zeros(1), end]).numpy()):
        yield rows[first:last]


def whole(matrix: Rows, dtype: torch.dtype) -> Tensor:
    """All rows, as sparse CSR with 32-bit indices where they fit. Memory beside the result is that of a piece."""
    counts = matrix.counts
    crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    size, shape = int(crow[-1]), (counts.numel(), matrix.num_columns)
    column = torch.empty(size, dtype=torch.int32 if max(*shape, size) < 2**31 else torch.int64)
    value = torch.empty(size, dtype=dtype)
    for rows in in_pieces(matrix, torch.arange(counts.numel())):
        piece, place = matrix.take(rows), places(crow, rows)
        column[place], value[place] = piece.col_indices().to(column.dtype), piece.values()
    return from_parts(crow, column, value, shape)
