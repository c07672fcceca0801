"""What a change of one part's rows changes: products with the columns of S that the part owns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfgnn.comm.base import Communicator
from gfgnn.exchange.halo import ShardPropagation, halo_exchange
from gfgnn.graph.propagation import Propagation, Propagator
from gfgnn.graph.shard import HaloPlan
from gfgnn.ops.spmm import spmm, transpose


@dataclass(frozen=True, eq=False)
class Border:
    """The rows of other parts that gather from this one, and the columns of S between the two.

    Attributes:
        matrix: those rows and the columns ``start`` to ``stop`` of this part's, sparse CSR ``[halo, stop - start]``.
        matrix_t: its transpose.
        plan: how the rows are filled.
    """

    comm: Communicator
    matrix: Tensor
    matrix_t: Tensor
    start: int
    stop: int
    plan: HaloPlan


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """S restricted to the columns of this part, and to the rows in which they have a non-zero.

    The rows are the part's own n and, after them, the m of other parts that gather from it. Only :meth:`around` sends.

    Attributes:
        inside: rows and columns of the part, sparse CSR ``[n, n]``.
        inside_t: its transpose.
        border: None where there is one part.
    """

    inside: Tensor
    inside_t: Tensor
    border: Border | None

    def around(self, rows: Tensor) -> Tensor:
        """``rows`` ``[n, d]`` with those of the neighbours, ``[n + m, d]``.

        Called by every part; sends each part the rows that gather from it: d numbers for each.
        """
        if self.border is None:
            return rows
        return torch.cat([rows, halo_exchange(self.border.comm, self.border.plan, rows).wait()])

    def apply(self, h: Tensor) -> Tensor:
        """What ``h`` ``[n, d]`` adds to ``S h``, in all rows that it reaches, ``[n + m, d]``."""
        inside = spmm(self.inside, h)
        if self.border is None:
            return inside
        return torch.cat([inside, spmm(self.border.matrix, h[self.border.start : self.border.stop])])

    def adjoint(self, q: Tensor) -> Tensor:
        """This part's rows of ``S' q``, ``[n, d]``, from ``q`` of all rows that it reaches, ``[n + m, d]``."""
        if self.border is None:
            return spmm(self.inside_t, q)
        own = self.inside.size(0)
        out = spmm(self.inside_t, q[:own])
        if self.border.stop > self.border.start:
            out[self.border.start : self.border.stop].addmm_(self.border.matrix_t, q[own:])
        return out


def neighbourhood_of(propagation: Propagator) -> Neighbourhood:
    """The neighbourhood of the part whose rows of S these are; nothing is sent."""
    if isinstance(propagation, Propagation):
        return Neighbourhood(propagation.matrix, propagation.matrix_t, None)
    assert isinstance(propagation, ShardPropagation)
    # a row of S' names the rows of S in which a column of the part has a non-zero
    columns = propagation.matrix_t
    border = Border(
        propagation.comm, transpose(columns.halo), columns.halo, columns.start, columns.stop, columns.plan
    )
    return Neighbourhood(propagation.matrix.owned, columns.owned, border)


__all__ = ["Border", "Neighbourhood", "neighbourhood_of"]
