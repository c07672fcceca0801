"""The first block's T: the propagated features, kept in the form in which products with them are cheapest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgnn.graph.propagation import Propagator
from gfgnn.model.blocks import Block, propagate
from gfgnn.ops.arena import product
from gfgnn.ops.spmm import spmm, to_scipy, transpose

#: Rows of T held dense at once while a Gram matrix is summed.
CHUNK = 8192
#: Share of non-zeros in T below which its Gram matrix is summed with sparse products.
SPARSE_GRAM_BELOW = 0.05


@dataclass(frozen=True, eq=False)
class Inputs:
    """T of block 0 as a linear map ``[N, fan_in]``.

    Dense features are propagated once and kept as a table. Sparse features are kept as they are and every product
    runs through them, ``S (X W)`` and ``X' (S' R)``: the propagated table has many times their non-zeros.

    Attributes:
        block: block 0.
        propagation: S.
        features: X ``[N, F]``, dense or sparse CSR.
        table: T ``[N, fan_in]``, dense; None where products run through the sparse features.
    """

    block: Block
    propagation: Propagator
    features: Tensor
    table: Tensor | None
    _written: list[scipy.sparse.csr_matrix] = field(default_factory=list, init=False, repr=False)

    def for_purpose(self, purpose: str) -> Inputs:
        """The same, with what its products send booked under another purpose."""
        return replace(self, propagation=self.propagation.for_purpose(purpose))

    @property
    def fan_in(self) -> int:
        return self.block.fan_in

    @cached_property
    def features_t(self) -> Tensor:
        return transpose(self.features)

    def matmul(self, weight: Tensor) -> Tensor:
        """``T @ weight``, ``[N, d]``."""
        if self.table is not None:
            return product(self.table, weight)
        parts = [spmm(self.features, w) for w in weight.chunk(self._num_hops)]
        if self.block.propagate == "none":
            return parts[0]
        if self.block.propagate in ("graph", "power"):
            out = parts[0]
            for _ in range(self._depth):
                out = self.propagation.apply(out)
            return out
        out = parts[-1]  # Horner's scheme: X w_0 + S (X w_1 + S (X w_2 + ...))
        for part in reversed(parts[:-1]):
            out = self.propagation.apply(out, plus=part)
        return out

    def adjoint(self, r: Tensor) -> Tensor:
        """``T' @ r``, ``[fan_in, d]``."""
        if self.table is not None:
            return self.table.t() @ r
        if self.block.propagate == "none":
            return spmm(self.features_t, r)
        if self.block.propagate in ("graph", "power"):
            for _ in range(self._depth):
                r = self.propagation.adjoint(r)
            return spmm(self.features_t, r)
        parts = [spmm(self.features_t, r)]
        for _ in range(self._num_hops - 1):
            r = self.propagation.adjoint(r)
            parts.append(spmm(self.features_t, r))
        return torch.cat(parts)

    @property
    def _sparse_table(self) -> scipy.sparse.csr_matrix:
        """T of sparse features, written out once; only the set-up of a solver needs it. Every part must call it.

        Not a cached_property: before Python 3.12 that locks out other threads, which may be the other parts.
        """
        if not self._written:
            self._written.append(self._write())
        return self._written[0]

    def _write(self) -> scipy.sparse.csr_matrix:
        hops = [to_scipy(self.features)]
        for _ in range(self._depth if self.block.propagate == "power" else self._num_hops - 1):
            hops.append(self.propagation.apply_sparse(hops[-1]))
        if self.block.propagate == "graph":
            return self.propagation.apply_sparse(hops[0])
        return (
            hops[-1] if self.block.propagate in ("none", "power") else scipy.sparse.hstack(hops, format="csr")
        )

    def square_sums(self, c: Tensor) -> Tensor:
        """``sum_i c_i T_ij^2`` for each column j, ``[fan_in]``."""
        if self.table is not None:
            return c @ self.table.square()
        squares = self._sparse_table.multiply(self._sparse_table)
        return torch.from_numpy(squares.T @ c.cpu().numpy()).to(c)

    def gram(self, c: Tensor) -> Tensor:
        """``T' diag(c) T``, ``[fan_in, fan_in]``; rows with c = 0 cost nothing."""
        index = c.nonzero().squeeze(1)
        if self.table is not None:
            total = torch.zeros(self.fan_in, self.fan_in, dtype=c.dtype, device=c.device)
            for rows in index.split(CHUNK):
                t = self.table[rows]
                total.addmm_(t.t(), t * c[rows, None])
            return total
        t = self._sparse_table[index.cpu().numpy()]
        root = c[index].sqrt().cpu().numpy()
        if t.nnz < SPARSE_GRAM_BELOW * t.shape[0] * t.shape[1]:
            t = t.multiply(root[:, None]).tocsr()
            return torch.from_numpy((t.T @ t).toarray()).to(c)
        summed = np.zeros((self.fan_in, self.fan_in), dtype=t.dtype)
        for start in range(0, t.shape[0], CHUNK):
            dense = t[start : start + CHUNK].toarray() * root[start : start + CHUNK, None]
            summed += dense.T @ dense
        return torch.from_numpy(summed).to(c)

    @property
    def _num_hops(self) -> int:
        if self.block.propagate == "concat":
            return 2
        return self.block.hops + 1 if self.block.propagate == "hops" else 1

    @property
    def _depth(self) -> int:
        return self.block.hops if self.block.propagate == "power" else 1


def make_inputs(block: Block, propagation: Propagator, features: Tensor) -> Inputs:
    """The inputs of the first block ``block``; dense features are propagated here, once."""
    if features.layout == torch.sparse_csr:
        return Inputs(block, propagation, features, None)
    return Inputs(block, propagation, features, propagate(block, propagation, features))
