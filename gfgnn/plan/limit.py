"""Which settings keep a run within a memory limit, by the predictions of :mod:`gfgnn.plan.memory`.

What costs nothing but time comes first, what changes the numbers last: memory given back at once (``lean``), inputs
computed again (``recompute``), inputs kept in 16 bits (``storage bf16``), both. Parts that train one after the other
(``out_of_core``) are for whoever asks for them; then as few as fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gfgnn.checks import InputError
from gfgnn.config import CUSTOM
from gfgnn.model.build import Model, make_model
from gfgnn.plan.cost import GRAM_LIMIT
from gfgnn.plan.memory import BASE, COPIES, Memory, PartMemory, rank_memory
from gfgnn.plan.work import Sizes

#: What freed memory that is kept adds to the widest moment of a step: blocks of many sizes leave holes; and evaluation
#: finds no room among them (docs/distributed.md).
KEPT = 0.6
#: Rows that a part needs of others, relative to its own, before anything is known of the partition.
HALO = 1.0
#: How far the largest part may be above the mean.
UNEVEN = 1.05
MOST_PARTS = 256  #: that are chosen; each is a thread, and has a copy of the weights
#: Bytes of libraries and threads that come into use only when training begins (measured).
LIBRARIES = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run may be asked to do for less memory; as in :class:`gfgnn.config.TrainConfig`, ``parts`` above 1 being
    parts that train one after the other."""

    lean: bool = False
    recompute: bool = False
    storage: str | None = None
    parts: int = 1

    def words(self) -> str:
        """As options of the command line."""
        found = ["--lean"] if self.lean and self.parts == 1 else []
        found += ["--recompute"] if self.recompute else []
        found += [f"--storage {self.storage}"] if self.storage else []
        found += [f"--out-of-core --parts {self.parts}"] if self.parts > 1 else []
        return " ".join(found) or "settings as they are"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Settings and the peak that is predicted for them, in bytes."""

    settings: Settings
    peak: int


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What the memory of a run depends on.

    Attributes:
        model: a chain of blocks.
        sizes: of the whole problem.
        symmetric: whether S' is S.
        feature_bytes: of the features as they are loaded.
        held: bytes that the process has in use before it prepares anything.
        mapped: bytes of edges and features that are mapped from files: in memory while they are looked through.
    """

    model: Model
    sizes: Sizes
    symmetric: bool
    feature_bytes: int
    held: int
    mapped: int = 0

    def peak(self, settings: Settings) -> int:
        """The predicted peak with ``settings``."""
        memory = self._of_part(settings)
        above = memory.peak - BASE + LIBRARIES
        if settings.parts == 1:
            preparing = above - max(memory.moments.values()) + memory.moments["set-up"] + self.mapped
            return self.held + max(preparing, above + (0 if settings.lean else _kept(memory)))
        s, blocks = self.sizes, len(self.model.blocks)
        # of every part stay: labels, ids and node weights, and the weights with the encoder's system
        others = s.num_nodes * (s.itemsize * blocks + 8 * 8) + (settings.parts - 1) * self._of_weights
        return self.held + max(above + others, self.cutting(settings.parts))

    def cutting(self, parts: int) -> int:
        """Bytes for cutting the graph into parts: a few numbers for each node, the rows of one part several times."""
        return self.sizes.num_nodes * 8 * 8 + 4 * self.part(parts).matrices + self.mapped

    @property
    def _of_weights(self) -> int:
        """What every part keeps whatever its size: the weights, and the encoder's system."""
        blocks, s = self.model.blocks, self.sizes
        gram = blocks[0].fan_in ** 2 * s.itemsize if blocks[0].fan_in <= GRAM_LIMIT else 0
        return gram + COPIES * 8 * sum(b.fan_in * b.out_channels for b in blocks)

    def _of_part(self, settings: Settings) -> Memory:
        bounds = (0, len(self.model.blocks))
        return rank_memory(
            self.model, bounds, 0, self.part(settings.parts), staleness=0, itemsize=self.sizes.itemsize,
            storage=settings.storage, recompute=settings.recompute,
        )  # fmt: skip

    def part(self, parts: int) -> PartMemory:
        """The largest of ``parts`` parts, or the whole."""
        s, share = self.sizes, 1.0 if parts == 1 else UNEVEN / parts
        nodes = min(s.num_nodes, int(share * s.num_nodes) + 1)
        moving = 0 if parts == 1 else int(min(2 * HALO * nodes, s.num_nodes))
        matrices = 1 if self.symmetric else 2
        nnz, head = int(share * s.nnz), int(share * s.head_nnz)
        return PartMemory(
            nodes=nodes,
            train=int(share * s.num_train),
            moving=moving,
            matrices=matrices * (nnz * (s.itemsize + 4) + 4 * nodes),
            head=2 * head * (s.itemsize + 4),
            values=matrices * nnz,
            features=int(share * self.feature_bytes),
            sparse=s.feature_nnz is not None,
        )


def _kept(memory: Memory) -> int:
    """What is added where freed memory is kept."""
    step = max(value for name, value in memory.moments.items() if name != "evaluation")
    evaluation = memory.moments["evaluation"]
    return int((1 + KEPT) * step) + evaluation - max(step, evaluation)


def choose(
    limit: int, needs: Needs, asked: Settings, *, out_of_core: bool = False, can_change: bool = True
) -> Choice:
    """The first settings whose predicted peak is at most ``limit`` bytes.

    Args:
        asked: what was asked for; it is kept, and only added to.
        out_of_core: whether parts train one after the other: as many as ``asked`` says, or, where that is 1, 2 or more.
        can_change: whether ``recompute`` and ``storage`` may be chosen; only the block solver has them.

    Raises:
        InputError: nothing fits; the message says what comes nearest, and what would fit.
    """
    found = [(needs.peak(s), s) for s in _candidates(asked, needs, out_of_core, can_change)]
    for peak, settings in found:
        if peak <= limit:
            return Choice(settings=settings, peak=peak)
    least, settings = min(found, key=lambda pair: pair[0])
    raise InputError(
        f"memory_limit is {mega(limit)}, and this run needs {mega(least)} with {settings.words()} "
        f"({mega(needs.held)} of it is in use before it begins). {_advice(limit, needs, asked, out_of_core)}"
    )


def _candidates(asked: Settings, needs: Needs, out_of_core: bool, can_change: bool) -> Iterator[Settings]:
    """From what was asked for to what needs least."""
    if not out_of_core:
        yield asked
    for parts in _parts(asked, needs) if out_of_core else (1,):
        yield replace(asked, lean=True, parts=parts)
        if not can_change:
            continue
        if not asked.recompute:
            yield replace(asked, lean=True, parts=parts, recompute=True)
        if asked.storage is None:
            yield replace(asked, lean=True, parts=parts, storage="bf16")
            yield replace(asked, lean=True, parts=parts, recompute=True, storage="bf16")


def _parts(asked: Settings, needs: Needs) -> Iterator[int]:
    """The number asked for, else powers of two."""
    if asked.parts > 1:
        yield asked.parts
        return
    parts = 2
    while parts <= max(2, min(MOST_PARTS, needs.sizes.num_nodes)):
        yield parts
        parts *= 2


def _advice(limit: int, needs: Needs, asked: Settings, out_of_core: bool) -> str:
    """What would fit: parts one after the other, as many as it takes, else a narrower network or a higher limit."""
    if not out_of_core or asked.parts > 1:
        for settings in _candidates(replace(asked, parts=1), needs, True, False):
            if (peak := needs.peak(settings)) <= limit:
                return f"{settings.words()} would need {mega(peak)}."
    advice, model = "Raise the limit, or take a network of fewer layers or columns", needs.model
    if model.config.family == CUSTOM or model.config.hidden < 2:
        return f"{advice}."
    config = replace(model.config, hidden=model.config.hidden // 2)
    narrow = make_model(config, model.num_features, model.num_classes, model.task)
    least = min(replace(needs, model=narrow).peak(s) for s in _candidates(asked, needs, out_of_core, True))
    if least > limit:
        return f"{advice}."
    return f"{advice}: {config.hidden} hidden columns would need {mega(least)}."


def mega(size: int) -> str:
    """Bytes in words."""
    return f"{size / 1e6:,.0f} MB"
