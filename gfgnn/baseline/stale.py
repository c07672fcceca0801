"""Products with rows of a sparse matrix whose halo is that of the iteration before (PipeGCN, Wan et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from torch import Tensor

from gfgnn.comm.base import Work
from gfgnn.exchange.halo import ShardProduct, ShardPropagation, halo_exchange
from gfgnn.ops.spmm import spmm


@dataclass(eq=False)
class StaleProduct:
    """A :class:`gfgnn.exchange.halo.ShardProduct` that uses the halo it was sent at its previous call.

    The first call waits for its own. What a call sends is waited for in the next one only, so that it travels while
    everything in between is computed. One place of the network has one of these.

    Attributes:
        exact: sends what, where and how.
        smoothing: share of the earlier halos in a moving average of them; 0 takes the latest.
    """

    exact: ShardProduct
    smoothing: float = 0.0
    _sent: Work | None = None
    _average: Tensor | None = None

    def __call__(
        self, dense: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        """``[rows, d]`` from owned rows ``dense`` ``[owned, d]``. Called by every part; sends the halo."""
        m, comm = self.exact.matrix, self.exact.comm
        if comm.size == 1:
            return self.exact(dense, scale=scale, plus=plus, plus_scale=plus_scale)
        sent = halo_exchange(comm, m.plan, dense, purpose=self.exact.purpose)
        out = spmm(m.owned, dense, scale=scale, plus=plus, plus_scale=plus_scale)
        halo = self._used(sent if self._sent is None else self._sent)
        self._sent = sent
        if m.stop > m.start:
            boundary = out[m.start : m.stop]
            spmm(m.halo, halo, scale=scale, plus=boundary, out=boundary)
        return out

    def _used(self, work: Work) -> Tensor:
        received = work.wait()
        if self.smoothing == 0.0:
            return received
        if self._average is None:
            self._average = received.clone()
        else:
            self._average.lerp_(received, 1.0 - self.smoothing)
        return self._average

    def drain(self) -> None:
        """Waits for what is under way."""
        if self._sent is not None:
            self._sent.wait()


@dataclass(frozen=True, eq=False)
class StalePropagation(ShardPropagation):
    """:class:`gfgnn.exchange.halo.ShardPropagation` of one block, applied once forward and once backward an iteration.

    Backward, the rows of S' of this part gather the gradients of the halo of the iteration before. As S does not
    change, that is what the other parts would have sent back then: this part's share of their halo's gradients.
    """

    smoothing: float = 0.0
    _products: dict[str, StaleProduct] = field(default_factory=dict)

    def apply(
        self, h: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        return self._stale("forward", self._product(self.matrix))(
            h, scale=scale, plus=plus, plus_scale=plus_scale
        )

    def adjoint(
        self, q: Tensor, *, scale: float = 1.0, plus: Tensor | None = None, plus_scale: float = 1.0
    ) -> Tensor:
        return self._stale("backward", self._product(self.matrix_t))(
            q, scale=scale, plus=plus, plus_scale=plus_scale
        )

    def rows(self, index: Tensor) -> tuple[StaleProduct, StaleProduct]:  # type: ignore[override]
        forward, backward = super().rows(index)
        return self._stale("forward", forward), self._stale("backward", backward)

    def drain(self) -> None:
        """Waits for what is under way. Called by every part."""
        for product in self._products.values():
            product.drain()

    def _stale(self, direction: str, exact: ShardProduct) -> StaleProduct:
        return self._products.setdefault(direction, StaleProduct(exact, self.smoothing))


def stale(propagation: ShardPropagation, smoothing: float) -> StalePropagation:
    """``propagation`` for one block."""
    values = {name.name: getattr(propagation, name.name) for name in fields(ShardPropagation)}
    return StalePropagation(**values, smoothing=smoothing)


__all__ = ["StaleProduct", "StalePropagation", "stale"]
