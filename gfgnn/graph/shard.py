"""The rows of sparse matrices that belong to one part, and who needs which rows of whom.

A graph is cut into parts; part p *owns* some nodes. A product with a sparse matrix needs, for the rows of p, the
columns of other parts that its non-zeros name: the *halo*. Owned rows are numbered so that those without halo columns
(*interior* rows) stand together, apart from the *boundary* rows: interior work goes on while the halo travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.ops.arena import kept
from gfgnn.ops.spmm import csr, rows_of, with_values


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


def order_nodes(matrix: Tensor, matrix_t: Tensor, assignment: Tensor, num_parts: int) -> list[Tensor]:
    """The nodes of each part, ``[P]`` of ascending ids within each of up to four groups, in the order of local rows.

    First the rows that need no halo; then those that need one only for ``matrix_t``, for both, only for ``matrix``:
    so the boundary rows of either matrix stand together. Both are sparse CSR ``[N, N]``.
    """
    boundary = _crosses(matrix, assignment)
    boundary_t = boundary if matrix_t is matrix else _crosses(matrix_t, assignment)
    group = torch.where(boundary, torch.where(boundary_t, 2, 3), torch.where(boundary_t, 1, 0))
    order = torch.argsort(assignment * 4 + group, stable=True)
    return list(order.split(torch.bincount(assignment, minlength=num_parts).tolist()))


def shard_matrix(matrix: Tensor, rows: Sequence[Tensor], columns: Sequence[Tensor]) -> list[ShardMatrix]:
    """Cuts a sparse CSR matrix ``[M, N]`` into the rows of each part.

    Args:
        rows: rows of each part, ``[P]`` of row numbers in local order; a row may be left out.
        columns: columns that each part owns, in local order; together every column once.

    Returns:
        One matrix for each part, and the plans that fill their halos.
    """
    num_parts = len(rows)
    owner, number = _numbering(columns, matrix.size(1))
    pieces, needed = [], []
    for part in range(num_parts):
        local = rows_of(matrix, rows[part])
        col = local.col_indices().long()
        row = torch.repeat_interleave(torch.arange(local.size(0)), local.crow_indices().long().diff())
        own = owner[col] == part
        key = owner[col[~own]] * matrix.size(1) + number[col[~own]]  # by owner, then by the owner's numbering
        halo = torch.unique(key)
        owned = csr(row[own], number[col[own]], local.values()[own], (local.size(0), columns[part].numel()))
        start, stop = _span(row[~own])
        shape = (stop - start, halo.numel())
        outside = csr(row[~own] - start, torch.searchsorted(halo, key), local.values()[~own], shape)
        pieces.append((owned, outside, start, stop))
        needed.append(
            [number_of % matrix.size(1) for number_of in _by_owner(halo, matrix.size(1), num_parts)]
        )
    return [ShardMatrix(*pieces[part], _plan(part, needed)) for part in range(num_parts)]


def halo_nodes(
    matrix: ShardMatrix, columns: Sequence[Tensor], plans: Sequence[HaloPlan], part: int
) -> Tensor:
    """Original ids of the halo columns of ``part``, ``[halo]``, from the plans of all parts for this matrix."""
    received = []
    for other, plan in enumerate(plans):
        start = sum(plan.send_counts[:part])
        received.append(columns[other][plan.send_index[start : start + plan.send_counts[part]]])
    return torch.cat(received)


def _crosses(matrix: Tensor, assignment: Tensor) -> Tensor:
    """Whether each row has a non-zero in a column of another part, bool ``[N]``."""
    row = torch.repeat_interleave(torch.arange(matrix.size(0)), matrix.crow_indices().long().diff())
    outside = assignment[row] != assignment[matrix.col_indices().long()]
    crosses = torch.zeros(matrix.size(0), dtype=torch.bool)
    crosses[row[outside]] = True
    return crosses


def _numbering(columns: Sequence[Tensor], total: int) -> tuple[Tensor, Tensor]:
    """Owner and local number of every column, ``[N]`` each."""
    owner, number = torch.full((total,), -1), torch.full((total,), -1)
    for part, ids in enumerate(columns):
        owner[ids] = part
        number[ids] = torch.arange(ids.numel())
    assert bool((owner >= 0).all()), "every column has an owner"
    return owner, number


def _by_owner(halo: Tensor, total: int, num_parts: int) -> list[Tensor]:
    """The sorted keys ``owner * total + number``, split by owner."""
    return list(halo.split(torch.bincount(halo // total, minlength=num_parts).tolist()))


def _span(rows: Tensor) -> tuple[int, int]:
    """The smallest range that holds all of ``rows``."""
    return (int(rows.min()), int(rows.max()) + 1) if rows.numel() else (0, 0)


def _plan(part: int, needed: list[list[Tensor]]) -> HaloPlan:
    """The plan of ``part`` where part p needs the rows ``needed[p][q]`` of part q."""
    sent = [needed[other][part] for other in range(len(needed))]
    return HaloPlan(torch.cat(sent), tuple(s.numel() for s in sent), tuple(n.numel() for n in needed[part]))


__all__ = ["HaloPlan", "ShardMatrix", "halo_nodes", "order_nodes", "shard_matrix"]
