"""Products with a sparse matrix with rows spread over parts; the halo travels while owned columns are multiplied."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgnn.comm.base import Communicator, Work
from gfgnn.graph.shard import HaloPlan, ShardMatrix
from gfgnn.ops.spmm import spmm, to_scipy
from gfgnn.profiling.labels import label


def halo_exchange(comm: Communicator, plan: HaloPlan, rows: Tensor, *, purpose: str = "halo") -> Work:
    """Begins to fill the halo: ``wait`` gives ``[halo, d]``, rows of other parts in the order of the halo columns.

    Called by every part of a stage with its owned ``rows`` ``[owned, d]``. Sends the rows of ``plan.send_index``:
    ``num_sent * d`` numbers in one message to each part that needs some.
    """
    with label("exchange", "halo"):
        return comm.all_to_all(rows[plan.send_index], plan.send_counts, plan.recv_counts, purpose=purpose)


@dataclass(frozen=True, eq=False)
class ShardProduct:
    """``scale * matrix @ dense + plus_scale * plus`` for the rows of this part."""

    comm: Communicator
    matrix: ShardMatrix
    purpose: str = "halo"

    def __call__(
        self, dense: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``[rows, d]`` from owned rows ``dense`` ``[owned, d]``. Called by every part; sends the halo."""
        m = self.matrix
        if self.comm.size == 1:
            return spmm(m.owned, dense, scale=scale, plus=plus, plus_scale=plus_scale)
        halo = halo_exchange(self.comm, m.plan, dense, purpose=self.purpose)
        out = spmm(m.owned, dense, scale=scale, plus=plus, plus_scale=plus_scale)
        received = halo.wait()
        if m.stop > m.start:
            boundary = out[m.start : m.stop]
            spmm(m.halo, received, scale=scale, plus=boundary, out=boundary)
        return out

    def sparse(self, table: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
        """The same for a sparse table of owned rows. Called by every part; sends the halo's non-zeros (for set-up)."""
        own = to_scipy(self.matrix.owned) @ table
        if self.comm.size == 1:
            return own
        received = _sparse_halo(self.comm, self.matrix.plan, table)
        outside = to_scipy(self.matrix.halo) @ received
        above, below = self.matrix.start, own.shape[0] - self.matrix.stop
        columns = table.shape[1]
        padded = scipy.sparse.vstack(
            [scipy.sparse.csr_matrix((above, columns)), outside, scipy.sparse.csr_matrix((below, columns))]
        )
        return (own + padded.astype(own.dtype)).tocsr()


@dataclass(frozen=True, eq=False)
class ShardPropagation:
    """:class:`gfgnn.graph.propagation.Propagation` for the rows of one part; every method is called by every part.

    Attributes:
        matrix, matrix_t: rows of S and of S'; the same object where S is symmetric.
        scale: u of the owned nodes, ``[owned]``.
        head, head_t: rows of S[train] and S[train]' where the output block propagates.
    """

    comm: Communicator
    matrix: ShardMatrix
    matrix_t: ShardMatrix
    scale: Tensor
    head: ShardMatrix | None = None
    head_t: ShardMatrix | None = None
    purpose: str = "halo"

    @property
    def num_nodes(self) -> int:
        """Owned nodes."""
        return self.matrix.num_rows

    def apply(
        self, h: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``scale * S h + plus_scale * plus``; sends the halo of ``h``."""
        return self._product(self.matrix)(h, scale=scale, plus=plus, plus_scale=plus_scale)

    def adjoint(
        self, q: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``scale * S' q + plus_scale * plus``; sends the halo of ``q``."""
        return self._product(self.matrix_t)(q, scale=scale, plus=plus, plus_scale=plus_scale)

    def apply_sparse(self, table: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
        """``S table``; sends the non-zeros of the halo of ``table``."""
        return self._product(self.matrix).sparse(table)

    def carry(self, mass: Tensor) -> Tensor:
        """See :meth:`gfgnn.graph.propagation.Propagation.carry`; sends two halos of one column."""
        v = self._product(self.matrix.absolute())(self.scale[:, None]).squeeze(1)
        return self._product(self.matrix_t.absolute())((mass * v)[:, None]).squeeze(1) / self.scale

    def rows(self, index: Tensor) -> tuple[ShardProduct, ShardProduct]:
        """Products with the labelled rows of S and with their transpose; ``index`` is this part's labelled rows."""
        assert self.head is not None, "these shards were made for an output block that does not propagate"
        assert self.head_t is not None
        assert index.numel() == self.head.num_rows
        return self._product(self.head), self._product(self.head_t)

    def to(self, dtype: torch.dtype, device: torch.device | str) -> ShardPropagation:
        matrix = self.matrix.to(dtype, device)
        matrix_t = matrix if self.matrix_t is self.matrix else self.matrix_t.to(dtype, device)
        head, head_t = (None if m is None else m.to(dtype, device) for m in (self.head, self.head_t))
        scale = self.scale.to(device=device, dtype=dtype)
        return replace(self, matrix=matrix, matrix_t=matrix_t, scale=scale, head=head, head_t=head_t)

    def for_purpose(self, purpose: str) -> ShardPropagation:
        """The same, with its messages booked under another purpose."""
        return replace(self, purpose=purpose)

    def _product(self, matrix: ShardMatrix) -> ShardProduct:
        return ShardProduct(self.comm, matrix, self.purpose)


def _sparse_halo(
    comm: Communicator, plan: HaloPlan, table: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    """The halo rows of a sparse table: their lengths, then columns and values."""
    chosen = table[plan.send_index.cpu().numpy()]
    lengths = torch.from_numpy(np.diff(chosen.indptr).astype(np.int64))
    received = comm.all_to_all(lengths, plan.send_counts, plan.recv_counts, purpose="setup").wait()
    sends = [int(part.sum()) for part in lengths.split(plan.send_counts)]
    recvs = [int(part.sum()) for part in received.split(plan.recv_counts)]
    columns = torch.from_numpy(chosen.indices.astype(np.int64))
    columns = comm.all_to_all(columns, sends, recvs, purpose="setup").wait()
    values = comm.all_to_all(torch.from_numpy(chosen.data), sends, recvs, purpose="setup").wait()
    pointers = np.concatenate([[0], received.numpy().cumsum()])
    shape = (plan.num_halo, table.shape[1])
    return scipy.sparse.csr_matrix((values.numpy(), columns.numpy(), pointers), shape=shape)


__all__ = ["ShardProduct", "ShardPropagation", "halo_exchange"]
