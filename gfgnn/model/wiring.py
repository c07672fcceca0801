"""Who feeds whom in a network: T of a block from the outputs of others, and the way back.

Blocks of a chain take what stands below them; blocks with ``terms`` and ``adds`` name their sources. Everything above
:mod:`gfgnn.model.blocks` goes through the functions here and need not know which of the two it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gfgnn.graph.propagation import Propagator
from gfgnn.model.blocks import FEATURES, Block, Term, carry, propagate, propagate_adjoint

#: Under this number the shares of H_0 are kept apart from what block 1 says of it: on a grid of stages the two reach
#: block 0 by different ways.
INITIAL = -2

Outputs = Callable[[int], Tensor]
Shares = list[tuple[int, Tensor]]


def is_chain(blocks: Sequence[Block]) -> bool:
    """Whether every block takes what stands below it (and H_0), on one propagation matrix."""
    return all(not b.terms and not b.adds and b.weighted for b in blocks)


def is_homogeneous(blocks: Sequence[Block]) -> bool:
    """Whether dividing the first block's output divides those of all blocks below the last one (biases divided too):
    the features enter only through weights of their own, and nothing is normalised."""
    return all(
        block.norm_eps is None
        and all(source != FEATURES for source, _ in block.adds)
        and (is_input(blocks, index) or FEATURES not in sources(block, index))
        for index, block in enumerate(blocks)
    )


def is_input(blocks: Sequence[Block], index: int) -> bool:
    """Whether a block with weights takes the features alone, so that its T never changes."""
    block = blocks[index]
    return block.weighted and (block.takes_features or (index == 0 and not block.terms))


def sources(block: Block, index: int) -> set[int]:
    """The blocks (or :data:`FEATURES`) whose outputs block ``index`` takes."""
    found = {source for source, _ in block.adds}
    if block.terms:
        return found | {s for term in block.terms for s in (term.source, term.initial) if s is not None}
    return found | {index - 1} | ({0} if block.propagate == "initial" else set())


def last_uses(blocks: Sequence[Block], span: range) -> dict[int, list[int]]:
    """By number of a block in ``span``, whose outputs no later block of it takes, so that they need not be kept longer.
    Without the features, and without the output of the last block."""
    last: dict[int, int] = {}
    for index in span:
        last |= dict.fromkeys(sources(blocks[index], index), index)
    found: dict[int, list[int]] = {index: [] for index in span}
    for source, index in last.items():
        if source not in (FEATURES, span.stop - 1):
            found[index].append(source)
    return found


def gather(block: Block, index: int, propagations: Sequence[Propagator], outputs: Outputs) -> Tensor:
    """T of block ``index`` ``[N, fan_in]`` from the outputs of others, ``outputs(source)`` ``[N, width]``.

    For ``none`` and a single term that is taken as it is, the very tensor; every part must call it.
    """
    if not block.terms:
        initial = outputs(0) if block.propagate == "initial" else None
        return propagate(block, propagations[0], outputs(index - 1), initial)
    parts = [term_of(term, propagations, outputs) for term in block.terms]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts, dim=1) if block.propagate == "terms" else torch.stack(parts).sum(0)


def term_of(term: Term, propagations: Sequence[Propagator], outputs: Outputs) -> Tensor:
    """One part of T, ``[N, width]``."""
    h = outputs(term.source)
    for _ in range(term.hops):
        h = propagations[term.operator].apply(h)
    if term.scale != 1.0:
        h = h * term.scale
    return h if term.initial is None else h.add(outputs(term.initial), alpha=term.initial_scale)


def scatter(block: Block, index: int, propagations: Sequence[Propagator], q: Tensor) -> Shares:
    """The transpose of :func:`gather`: what ``q`` ``[N, fan_in]`` means for each source."""
    if not block.terms:
        below, initial = propagate_adjoint(block, propagations[0], q)
        return [(index - 1, below)] + ([] if initial is None else [(INITIAL, initial)])
    if block.propagate == "terms":
        parts = list(q.split([t.width for t in block.terms], dim=1))
    else:  # shared as add_shares does
        parts = [q if block.total_scale == 1.0 else q / block.total_scale**2] * len(block.terms)
    found: Shares = []
    for term, part in zip(block.terms, parts, strict=True):
        if term.initial is not None and term.initial != FEATURES:
            found.append((term.initial, part * term.initial_scale))
        if term.source != FEATURES:
            moved = part if term.scale == 1.0 else part * term.scale
            for _ in range(term.hops):
                moved = propagations[term.operator].adjoint(moved)
            found.append((term.source, moved))
    return found


def spread(block: Block, index: int, propagations: Sequence[Propagator], mass: Tensor) -> Shares:
    """Node weights of the sources from the node weights ``mass`` ``[N]`` of T: see :func:`gfgnn.model.blocks.carry`.

    For several terms the sum over all of them; whoever calls it brings the total back to what it was.
    """
    if not block.terms:
        below, initial = carry(block, propagations[0], mass)
        return [(index - 1, below)] + ([] if initial is None else [(INITIAL, initial)])
    found: Shares = []
    total = block.total_scale
    for term in block.terms:
        if term.initial is not None and term.initial != FEATURES:
            found.append((term.initial, mass * (abs(term.initial_scale) / total)))
        if term.source != FEATURES:
            moved = mass * (abs(term.scale) / total)
            for _ in range(term.hops):
                moved = propagations[term.operator].carry(moved)
            found.append((term.source, moved))
    return found


def add_to(block: Block, h: Tensor, outputs: Outputs) -> Tensor:
    """``h`` plus what the block adds to it, in place."""
    for source, factor in block.adds:
        h.add_(outputs(source), alpha=factor)
    return h


def add_shares(block: Block) -> tuple[float, list[tuple[int, float]]]:
    """How a shift wanted of ``H = branch * A + sum_j factor_j H_j`` is shared between A and the sources.

    Each gets ``factor / total^2`` of it, ``total`` being the sum of all factors' magnitudes. Where all of them follow
    one ancestor, as in a residual network, it then moves just as far as is wanted; where they are independent it moves
    less. Whole shares would double a message in every residual block.
    """
    total = block.branch + sum(abs(factor) for _, factor in block.adds)
    return block.branch / total**2, [(source, factor / total**2) for source, factor in block.adds]
