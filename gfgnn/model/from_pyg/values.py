"""What a tensor of a traced network can be while its operations are read one by one.

A block is only finished when it is known what follows its linear map, so results stay symbolic until then:
:class:`Table`, :class:`Sum` and :class:`Affine`. Blocks refer to each other as :class:`Draft` objects and get their
numbers at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gfgnn.graph.operators import Operator
from gfgnn.model.from_pyg.slots import Norm, Part


class Unsupported(Exception):
    """Something no block can express; the text completes 'layer (class): '."""


@dataclass(eq=False)
class Draft:
    """A block in the making, or the features; the words are those of :class:`gfgnn.model.blocks.Block`.

    Attributes:
        width: columns of its output.
        refs: what T is made of, side by side or, with ``total``, summed.
        parts: where its weights are in the module; none for blocks without weights.
        norm: the BatchNorm of a block without weights.
        open: only the value being read refers to it, so that the block may still be changed.
    """

    width: int
    refs: tuple[Ref, ...] = ()
    total: bool = False
    parts: tuple[Part, ...] = ()
    activation: str = "identity"
    slope: float = 0.01
    adds: list[tuple[Draft, float]] = field(default_factory=list)
    branch: float = 1.0
    norm: Norm | None = None
    open: bool = False

    @property
    def sources(self) -> list[Draft]:
        """All drafts it refers to."""
        found = [draft for ref in self.refs for draft in (ref.source, ref.initial) if draft is not None]
        return found + [draft for draft, _ in self.adds]


@dataclass(frozen=True)
class Ref:
    """A :class:`gfgnn.model.blocks.Term` between drafts."""

    source: Draft
    hops: int = 0
    operator: Operator | None = None
    scale: float = 1.0
    initial: Draft | None = None
    initial_scale: float = 0.0

    @property
    def width(self) -> int:
        return self.source.width

    @property
    def is_plain(self) -> bool:
        """Whether it is an output times a number."""
        return self.hops == 0 and self.initial is None

    def scaled(self, factor: float) -> Ref:
        return replace(self, scale=self.scale * factor, initial_scale=self.initial_scale * factor)

    def moved(self, operator: Operator, hops: int) -> Ref | None:
        """``operator^hops`` times it; None where one term cannot say that."""
        if self.initial is not None or (self.hops and self.operator != operator):
            return None
        return replace(self, hops=self.hops + hops, operator=operator)


@dataclass(frozen=True)
class Table:
    """Terms side by side; a finished output is one plain term."""

    refs: tuple[Ref, ...]

    @property
    def width(self) -> int:
        return sum(ref.width for ref in self.refs)


@dataclass(frozen=True)
class Sum:
    """Terms of one width, added."""

    refs: tuple[Ref, ...]

    @property
    def width(self) -> int:
        return self.refs[0].width


@dataclass(frozen=True)
class Affine:
    """``factor * (sum of the parts) + sum of the plain terms adds``: a linear map whose block is not made yet."""

    parts: tuple[Part, ...]
    width: int
    adds: tuple[Ref, ...] = ()
    factor: float = 1.0

    @property
    def folded(self) -> tuple[Part, ...]:
        """The parts, each times the factor."""
        return tuple(part.scaled(self.factor) for part in self.parts)


@dataclass(frozen=True)
class Edges:
    """An argument that describes the graph: edge_index, adj_t, edge_weight or edge_type."""

    role: str


@dataclass(frozen=True)
class Unknown:
    """The result of something that is not supported, and whatever is made of it."""


Value = Table | Sum | Affine


def is_unknown(value: object) -> bool:
    """Whether a value, or one in a list, comes from something that is not supported."""
    if isinstance(value, list | tuple):
        return any(is_unknown(each) for each in value)
    return isinstance(value, Unknown)


def tensor(value: object) -> Value:
    """The value where it is one of features of nodes.

    Raises:
        Unsupported: it is something else.
    """
    if isinstance(value, Table | Sum | Affine):
        return value
    what = value.role if isinstance(value, Edges) else type(value).__name__
    raise Unsupported(f"is given {what} where it needs features of nodes")
