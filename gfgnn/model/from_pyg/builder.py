"""Arithmetic on the values of a traced network, which makes blocks where a value has to be settled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gfgnn.graph.operators import Operator
from gfgnn.model.from_pyg.slots import Norm, Part
from gfgnn.model.from_pyg.values import Affine, Draft, Ref, Sum, Table, Unsupported, Value


class Builder:
    """Makes drafts of blocks.

    Attributes:
        features: stands for X.
        drafts: in the order in which they were made.
    """

    def __init__(self, num_features: int) -> None:
        self.features = Draft(num_features)
        self.drafts: list[Draft] = []

    def settled(self, value: Value) -> Table:
        """The value as terms side by side, with the block that this may need."""
        if isinstance(value, Affine):
            return self._finished(value)
        return self._summed(value) if isinstance(value, Sum) else value

    def single(self, value: Value) -> Ref:
        """The value as one plain term."""
        table = self.settled(value)
        if len(table.refs) == 1 and table.refs[0].is_plain:
            return table.refs[0]
        return self._new(table.width, refs=table.refs).refs[0]

    def shared(self, value: Value) -> Table:
        """The value for several uses: the blocks it refers to stay as they are from here on."""
        table = self.settled(value)
        for ref in table.refs:
            ref.source.open = False
        return table

    def moved(self, value: Value, operator: Operator, hops: int = 1) -> Table:
        """``operator^hops`` times the value."""
        table = self.settled(value)
        if hops == 0:
            return table
        moved = [ref.moved(operator, hops) for ref in table.refs]
        known = tuple(ref for ref in moved if ref is not None)
        if len(known) == len(moved):
            return Table(known)
        return Table((replace(self.single(table), operator=operator, hops=hops),))

    def added(self, a: Value, b: Value) -> Value:
        """``a + b``."""
        if a.width != b.width:
            raise Unsupported(
                f"adds tensors of {a.width} and {b.width} columns; they must have the same number"
            )
        if isinstance(a, Affine) and isinstance(b, Affine):
            return Affine(a.folded + b.folded, a.width, _combined(a.adds + b.adds))
        if isinstance(b, Affine):
            a, b = b, a
        if isinstance(a, Affine):
            plain = tuple(ref if ref.is_plain else self.single(Table((ref,))) for ref in self._summands(b))
            return replace(a, adds=_combined(a.adds + plain))
        refs = _combined(self._summands(a) + self._summands(b))
        if not refs:
            raise Unsupported("adds tensors that cancel out")
        return Sum(refs) if len(refs) > 1 else Table(refs)

    def scaled(self, value: Value, factor: float) -> Value:
        """``factor * value``."""
        if not math.isfinite(factor) or factor == 0.0:
            raise Unsupported(f"multiplies by {factor}; give a number that is finite and not 0")
        if isinstance(value, Affine):
            adds = tuple(ref.scaled(factor) for ref in value.adds)
            return replace(value, factor=value.factor * factor, adds=adds)
        return replace(value, refs=tuple(ref.scaled(factor) for ref in value.refs))

    def joined(self, values: Sequence[Value]) -> Table:
        """The values side by side."""
        return Table(tuple(ref for value in values for ref in self.settled(value).refs))

    def activated(self, value: Value, activation: str, slope: float) -> Value:
        """``activation(value)``: of a linear map its block, else a block without weights."""
        how: dict[str, Any] = {"activation": activation, "slope": slope, "open": True}
        if isinstance(value, Affine) and not value.adds:
            return self._new(value.width, parts=value.folded, **how)
        if isinstance(value, Sum):
            return self._new(value.width, refs=value.refs, total=True, **how)
        table = self.settled(value)
        (first, *others) = table.refs
        normed = first.source
        alone = not others and first.is_plain and first.scale == 1.0 and normed.open and not normed.adds
        if alone and normed.norm is not None and normed.activation == "identity":
            normed.activation, normed.slope = activation, slope
            return table
        return self._new(table.width, refs=table.refs, **how)

    def normed(self, value: Value, norm: Norm) -> Value:
        """``norm(value)``: part of a linear map that stands directly before it, else a block without weights."""
        if isinstance(value, Affine) and not value.adds and all(part.norm is None for part in value.parts):
            flat = [part.flat() for part in value.folded]
            pieces = tuple(piece for part in flat for piece in part.pieces)
            biases = tuple(bias for part in flat for bias in part.biases)
            return Affine((Part(pieces, biases, norm),), value.width)
        if isinstance(value, Sum):
            return self._new(value.width, refs=value.refs, total=True, norm=norm, open=True)
        table = self.settled(value)
        return self._new(table.width, refs=table.refs, norm=norm, open=True)

    def _summands(self, value: Value) -> tuple[Ref, ...]:
        if isinstance(value, Sum):
            return value.refs
        table = self.settled(value)
        return table.refs if len(table.refs) == 1 else (self.single(table),)

    def _finished(self, value: Affine) -> Table:
        """The block of a linear map without activation, and of what is added to it."""
        branch = value.factor if value.adds and value.factor > 0 else 1.0
        parts = value.parts if branch != 1.0 else value.folded
        table = self._new(value.width, parts=parts, branch=branch)
        table.refs[0].source.adds = [(ref.source, ref.scale) for ref in value.adds]
        return table

    def _summed(self, value: Sum) -> Table:
        """A sum: where one of its terms is a block that nobody else sees, that block adds the others."""
        hosts = [
            ref
            for ref in value.refs
            if ref.is_plain and ref.scale > 0 and ref.source.open and not ref.source.adds
        ]
        if not hosts or not all(ref.is_plain for ref in value.refs):
            return self._new(value.width, refs=value.refs, total=True)
        last = max(hosts, key=lambda ref: (bool(ref.source.parts), self.drafts.index(ref.source)))
        host = last.source
        host.adds = [(ref.source, ref.scale) for ref in value.refs if ref is not last]
        host.branch, host.open = last.scale, False
        return Table((Ref(host),))

    def _new(
        self, width: int, *, refs: tuple[Ref, ...] = (), parts: tuple[Part, ...] = (), **how: Any
    ) -> Table:
        refs = tuple(ref for part in parts for ref in part.refs) if parts else refs
        draft = Draft(width, refs=refs, parts=parts, **how)
        self.drafts.append(draft)
        return Table((Ref(draft),))


def _combined(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Equal terms of a sum as one; terms with a second source are left alone."""
    found: dict[Ref, float] = {}
    others = []
    for ref in refs:
        if ref.initial is not None:
            others.append(ref)
            continue
        key = replace(ref, scale=1.0)
        found[key] = found.get(key, 0.0) + ref.scale
    return (*(replace(ref, scale=scale) for ref, scale in found.items() if scale), *others)
