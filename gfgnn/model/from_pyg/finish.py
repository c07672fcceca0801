"""From drafts to blocks: their order, their numbers, and the classical kinds where the network is a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gfgnn.graph.operators import Operator
from gfgnn.model.blocks import FEATURES, Block, Term
from gfgnn.model.from_pyg.slots import Norm
from gfgnn.model.from_pyg.values import Draft, Ref

#: The matrix of networks that multiply by none.
NO_OPERATOR = Operator(norm="none", loops=0.0, raw=True)


def ordered(last: Draft, drafts: Sequence[Draft], features: Draft) -> list[Draft]:
    """The drafts that ``last`` needs, each behind its sources and else in the order in which they were made."""
    needed: set[Draft] = set()
    waiting = [last]
    while waiting:
        draft = waiting.pop()
        if draft is not features and draft not in needed:
            needed.add(draft)
            waiting.extend(draft.sources)
    done: dict[Draft, None] = {}
    for draft in drafts:
        _place(draft, needed, done)
    return list(done)


def _place(draft: Draft, needed: set[Draft], done: dict[Draft, None]) -> None:
    """Puts a draft behind its sources; without recursion, networks may be deep."""
    waiting = [draft]
    while waiting:
        top = waiting[-1]
        missing = [source for source in top.sources if source in needed and source not in done]
        if top not in needed or top in done:
            waiting.pop()
        elif missing:
            waiting.extend(missing)
        else:
            done[top] = None
            waiting.pop()


def blocks_of(drafts: Sequence[Draft], features: Draft) -> tuple[tuple[Block, ...], tuple[Operator, ...]]:
    """The blocks of ordered drafts and the propagation matrices they multiply by."""
    operators = tuple(
        dict.fromkeys(ref.operator for draft in drafts for ref in draft.refs if ref.operator is not None)
    )
    number = {draft: index for index, draft in enumerate(drafts)} | {features: FEATURES}
    blocks = [_block(draft, number, operators, last=draft is drafts[-1]) for draft in drafts]
    if len(operators) <= 1:
        chain = [_classical(block, index) for index, block in enumerate(blocks)]
        if all(block is not None for block in chain):
            blocks = [block for block in chain if block is not None]
    return tuple(blocks), operators or (NO_OPERATOR,)


def _block(draft: Draft, number: dict[Draft, int], operators: tuple[Operator, ...], *, last: bool) -> Block:
    terms = tuple(_term(ref, number, operators) for ref in draft.refs)
    return Block(
        propagate="sum" if draft.total else "terms",
        in_channels=terms[0].width,
        out_channels=draft.width,
        activation=draft.activation,
        slope=draft.slope,
        bias=any(part.has_bias for part in draft.parts),
        reference=_reference(terms, draft.width) if draft.parts and not last else "zero",
        beta=_beta(draft),
        terms=terms,
        adds=tuple((number[source], factor) for source, factor in draft.adds),
        branch=draft.branch,
        weighted=bool(draft.parts),
        norm_eps=draft.norm.eps if isinstance(draft.norm, Norm) else None,
    )


def _term(ref: Ref, number: dict[Draft, int], operators: tuple[Operator, ...]) -> Term:
    return Term(
        source=number[ref.source],
        width=ref.width,
        hops=ref.hops,
        operator=0 if ref.operator is None else operators.index(ref.operator),
        scale=ref.scale,
        initial=None if ref.initial is None else number[ref.initial],
        initial_scale=ref.initial_scale,
    )


def _reference(terms: tuple[Term, ...], width: int) -> str:
    """What hidden weights are shrunk towards: what leaves activations as they are, where that exists."""
    sources = [source for term in terms for source in (term.source, term.initial) if source is not None]
    if all(source == FEATURES for source in sources):
        return "zero"
    fits = all(term.width == width for term in terms) and FEATURES not in sources
    return "identity" if fits else "random"


def _beta(draft: Draft) -> float | None:
    """Of the block of a GCN2Conv, where its weights are that layer's alone."""
    if len(draft.parts) != 1 or draft.parts[0].norm is not None or draft.parts[0].factor != 1.0:
        return None
    pieces = draft.parts[0].pieces
    return pieces[0].slot.beta if len(pieces) == 1 else None


def _classical(block: Block, index: int) -> Block | None:
    """The block as one of a chain; None where it is none. Grids of devices run chains only."""
    if not block.weighted or block.adds or block.branch != 1.0 or block.propagate != "terms":
        return None
    below, first = index - 1, block.terms[0]
    plain = all(t.source == below and t.scale == 1.0 and t.initial is None for t in block.terms)
    hops = [term.hops for term in block.terms]
    bare = replace(block, terms=())
    if plain and hops == [0]:
        return replace(bare, propagate="none")
    if plain and hops == [1]:
        return replace(bare, propagate="graph")
    if plain and hops == [0, 1]:
        return replace(bare, propagate="concat")
    if plain and index == 0 and len(hops) == 1:
        return replace(bare, propagate="power", hops=hops[0])
    if plain and index == 0 and hops == list(range(len(hops))):
        return replace(bare, propagate="hops", hops=hops[-1])
    looks_back = len(block.terms) == 1 and index > 0 and first.source == below and first.initial == 0
    if looks_back and first.hops == 1 and first.scale == 1.0 - first.initial_scale:
        return replace(bare, propagate="initial", alpha=first.initial_scale)
    return None
