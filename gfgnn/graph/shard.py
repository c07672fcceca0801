"""The rows of sparse matrices that belong to one part, and who needs which rows of whom.

A graph is cut into parts; part p *owns* some nodes. A product with a sparse matrix needs, for the rows of p, the
columns of other parts that its non-zeros name: the *halo*. Owned rows are numbered so that those without halo columns
(*interior* rows) stand together, apart from the *boundary* rows: interior work goes on while the halo travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.graph.rows import Rows, in_pieces
from gfgnn.ops.arena import kept
from gfgnn.ops.spmm import from_parts, sort_columns, with_values

#: Non-zeros of each of some rows, their columns and their values.
_Piece = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class HaloPlan:
    """Which owned rows this part sends to each part, and how many halo rows it receives from each.

    Attributes:
        send_index: owned rows by local number, grouped by the part they go to, ``[sum(send_counts)]``.
        send_counts: rows for each part, ``[P]``; none for the part itself.
        recv_counts: halo rows from each part, ``[P]``; they arrive in the order of the halo columns.
    """

    send_index: Tensor
    send_counts: tuple[int, ...]
    recv_counts: tuple[int, ...]

    @property
    def num_sent(self) -> int:
        return sum(self.send_counts)

    @property
    def num_halo(self) -> int:
        return sum(self.recv_counts)


@dataclass(frozen=True, eq=False)
class ShardMatrix:
    """The rows of a sparse matrix that belong to one part.

    The local columns are the owned ones followed by the halo ones; the two kinds are stored apart, so that the owned
    columns are multiplied while the halo is on its way.

    Attributes:
        owned: all local rows, owned columns, sparse CSR ``[rows, owned]``.
        halo: the rows ``start`` to ``stop``, halo columns, sparse CSR ``[stop - start, halo]``. Rows outside that range
            need no halo.
        start, stop: see ``halo``.
        plan: how the halo is filled.
    """

    owned: Tensor
    halo: Tensor
    start: int
    stop: int
    plan: HaloPlan

    @property
    def num_rows(self) -> int:
        return self.owned.size(0)

    def absolute(self) -> ShardMatrix:
        """The same with the magnitudes of the values."""
        owned, halo = (with_values(part, kept(part.values().abs())) for part in (self.owned, self.halo))
        return ShardMatrix(owned, halo, self.start, self.stop, self.plan)

    def to(self, dtype: torch.dtype, device: torch.device | str) -> ShardMatrix:
        owned, halo = (
            with_values(part, _converted(part.values(), dtype)).to(device) for part in (self.owned, self.halo)
        )
        plan = HaloPlan(self.plan.send_index.to(device), self.plan.send_counts, self.plan.recv_counts)
        return ShardMatrix(owned, halo, self.start, self.stop, plan)


def _converted(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values if values.dtype == dtype else kept(values.to(dtype))


def order_nodes(
    matrix: Rows, matrix_t: Rows, assignment: Tensor, num_parts: int, sequence: Tensor | None = None
) -> list[Tensor]:
    """The nodes of each part, ``[P]`` of node numbers, in the order of local rows.

    First the rows that need no halo; then those that need one only for ``matrix_t``, for both, only for ``matrix``:
    so the boundary rows of either matrix, both ``[N, N]``, stand together. Within each of these groups nodes stand in
    the order of ``sequence``, ``[N]``; None for that of their numbers.
    """
    boundary = _crosses(matrix, assignment)
    boundary_t = boundary if matrix_t is matrix else _crosses(matrix_t, assignment)
    group = torch.where(boundary, torch.where(boundary_t, 2, 3), torch.where(boundary_t, 1, 0))
    key = group.add_(assignment, alpha=4)
    order = torch.argsort(key if sequence is None else key[sequence], stable=True)
    order = order if sequence is None else sequence[order]
    return list(order.split(torch.bincount(assignment, minlength=num_parts).tolist()))


def cut_matrix(matrix: Rows, rows: Sequence[Tensor], columns: Sequence[Tensor]) -> Iterator[ShardMatrix]:
    """The rows of each part of ``matrix`` ``[M, N]``, part by part, and the plans that fill their halos.

    Which columns a part lacks is found for all parts first, as their plans say what they send each other: that takes
    4 bytes for each halo row of any part. Beside it, memory is a few numbers for each column and the part under way.

    Args:
        rows: rows of each part, ``[P]`` of row numbers in local order; a row may be left out.
        columns: columns that each part owns, in local order; no column twice, and those of no part are left out.
    """
    owner, number = _numbering(columns, matrix.num_columns)
    needed = [_halo(matrix, ids, owner, number, part, len(rows)) for part, ids in enumerate(rows)]
    for part, ids in enumerate(rows):
        local = torch.where(owner == part, number, -1)  # of each column: the owned ones, then the halo
        own, first = columns[part].numel(), columns[part].numel()
        for other, places in enumerate(needed[part]):
            local[columns[other][places]] = torch.arange(first, first + places.numel(), dtype=torch.int32)
            first += places.numel()
        yield ShardMatrix(*_split(matrix, ids, local, own, first - own), _plan(part, needed))


def halo_nodes(
    matrix: ShardMatrix, columns: Sequence[Tensor], plans: Sequence[HaloPlan], part: int
) -> Tensor:
    """Original ids of the halo columns of ``part``, ``[halo]``, from the plans of all parts for this matrix."""
    received = []
    for other, plan in enumerate(plans):
        start = sum(plan.send_counts[:part])
        received.append(columns[other][plan.send_index[start : start + plan.send_counts[part]]])
    return torch.cat(received)


def _crosses(matrix: Rows, assignment: Tensor) -> Tensor:
    """Whether each row has a non-zero in a column of another part, bool ``[N]``."""
    crosses, counts = torch.zeros(matrix.num_columns, dtype=torch.bool), matrix.counts
    for rows in in_pieces(matrix, torch.arange(matrix.num_columns)):
        piece = matrix.take(rows)
        row = torch.repeat_interleave(rows, counts[rows])
        crosses[row[assignment[row] != assignment[piece.col_indices()]]] = True
    return crosses


def _numbering(columns: Sequence[Tensor], total: int) -> tuple[Tensor, Tensor]:
    """Owner and local number of every column, ``[N]`` int32 each; -1 for columns that are left out."""
    owner, number = (torch.full((total,), -1, dtype=torch.int32) for _ in range(2))
    for part, ids in enumerate(columns):
        owner[ids] = part
        number[ids] = torch.arange(ids.numel(), dtype=torch.int32)
    return owner, number


def _halo(
    matrix: Rows, rows: Tensor, owner: Tensor, number: Tensor, part: int, num_parts: int
) -> list[Tensor]:
    """The columns of other parts that ``rows`` need: for each part the owner's numbers, ascending, int32."""
    named = torch.zeros(matrix.num_columns, dtype=torch.bool)
    for piece in in_pieces(matrix, rows):
        named[matrix.columns(piece)] = True
    halo = (named & (owner != part) & (owner >= 0)).nonzero().squeeze(1)
    halo = halo[torch.argsort(owner[halo].long() * matrix.num_columns + number[halo])]
    sizes = torch.bincount(owner[halo], minlength=num_parts).tolist()
    return list(number[halo].split(sizes))


def _split(
    matrix: Rows, rows: Tensor, local: Tensor, owned: int, halo: int
) -> tuple[Tensor, Tensor, int, int]:
    """``rows`` in local columns: those below ``owned``, those from there on, and the range of rows with the latter.

    Args:
        local: the local column of each column, ``[N]``; -1 where it is left out.
    """
    pieces: tuple[list[_Piece], list[_Piece]] = ([], [])
    for chosen in in_pieces(matrix, rows):
        piece = matrix.take(chosen)
        column, value = local[piece.col_indices()], piece.values()
        row = torch.repeat_interleave(torch.arange(chosen.numel()), piece.crow_indices().diff())
        for kind, inside in zip(pieces, ((column >= 0) & (column < owned), column >= owned), strict=True):
            counts = torch.bincount(row[inside], minlength=chosen.numel())
            kind.append((counts, column[inside], value[inside]))
    empty = matrix.take(rows[:0]).values()
    counts, column, value = _joined(pieces[0], empty)
    first = _csr(counts, column, value, owned)
    del column, value
    pieces[0].clear()
    counts, column, value = _joined(pieces[1], empty)
    start, stop = _span(counts.nonzero().squeeze(1))
    return first, _csr(counts[start:stop], column - owned, value, halo), start, stop


def _joined(pieces: list[_Piece], empty: Tensor) -> _Piece:
    """Counts of rows, columns and values of all pieces."""
    if not pieces:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), empty
    counts, column, value = (torch.cat(part) for part in zip(*pieces, strict=True))
    return counts, column, value


def _csr(counts: Tensor, column: Tensor, value: Tensor, columns: int) -> Tensor:
    """A sparse CSR tensor of rows with so many non-zeros each, whose columns may come in any order."""
    crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return sort_columns(from_parts(crow, column, value, (counts.numel(), columns)))


def _span(rows: Tensor) -> tuple[int, int]:
    """The smallest range that holds all of ``rows``."""
    return (int(rows.min()), int(rows.max()) + 1) if rows.numel() else (0, 0)


def _plan(part: int, needed: list[list[Tensor]]) -> HaloPlan:
    """The plan of ``part`` where part p needs the rows ``needed[p][q]`` of part q."""
    sent = [needed[other][part].long() for other in range(len(needed))]
    return HaloPlan(torch.cat(sent), tuple(s.numel() for s in sent), tuple(n.numel() for n in needed[part]))


__all__ = ["HaloPlan", "ShardMatrix", "cut_matrix", "halo_nodes", "order_nodes"]
