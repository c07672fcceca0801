"""The inputs of a block whose T is several terms of the features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import scipy.sparse
import torch
from torch import Tensor

from gfgnn.graph.propagation import Propagator
from gfgnn.model.blocks import Block, Term
from gfgnn.model.inputs import Inputs, make_inputs
from gfgnn.model.wiring import gather
from gfgnn.ops.spmm import spmm, to_scipy


@dataclass(frozen=True, eq=False)
class TermInputs(Inputs):
    """As :class:`gfgnn.model.inputs.Inputs`, each term with a propagation matrix of its own."""

    propagations: tuple[Propagator, ...] = ()

    def for_purpose(self, purpose: str) -> TermInputs:
        return replace(self, propagations=tuple(s.for_purpose(purpose) for s in self.propagations))

    def matmul(self, weight: Tensor) -> Tensor:
        if self.table is not None:
            return self.table @ weight
        out: Tensor | None = None
        for term, part in zip(self.block.terms, weight.split(self._widths), strict=True):
            z = self._moved(term, spmm(self.features, part), lambda s, h: s.apply(h))
            out = z if out is None else out.add_(z)
        assert out is not None
        return out

    def adjoint(self, r: Tensor) -> Tensor:
        if self.table is not None:
            return self.table.t() @ r
        moved = [self._moved(term, r, lambda s, q: s.adjoint(q)) for term in self.block.terms]
        return torch.cat([spmm(self.features_t, q) for q in moved])

    def _moved(self, term: Term, h: Tensor, step: Callable[[Propagator, Tensor], Tensor]) -> Tensor:
        """A term's matrix, or its transpose, times ``h``; a new array where a caller could add to it."""
        out = h
        for _ in range(term.hops):
            out = step(self.propagations[term.operator], out)
        out = out * term.scale
        return out if term.initial is None else out.add_(h, alpha=term.initial_scale)

    def _write(self) -> scipy.sparse.csr_matrix:
        features, parts = to_scipy(self.features), []
        for term in self.block.terms:
            part = features
            for _ in range(term.hops):
                part = self.propagations[term.operator].apply_sparse(part)
            part = part * term.scale
            parts.append(part if term.initial is None else part + term.initial_scale * features)
        return scipy.sparse.hstack(parts, format="csr")

    @property
    def _widths(self) -> list[int]:
        return [term.width for term in self.block.terms]


def inputs_of(block: Block, propagations: tuple[Propagator, ...], features: Tensor) -> Inputs:
    """The inputs of any block that takes the features alone; dense ones are propagated here, once."""
    if not block.terms:
        return make_inputs(block, propagations[0], features)
    if features.layout == torch.sparse_csr:
        return TermInputs(block, propagations[0], features, None, propagations=propagations)
    table = gather(block, 0, propagations, lambda _: features)
    return TermInputs(block, propagations[0], features, table, propagations=propagations)
