"""What a recording comes to: means over iterations, shares of the ceilings, and what bounds an iteration."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gfgnn.profiling.counter import Counter
from gfgnn.profiling.labels import KINDS
from gfgnn.profiling.operators import kind_of, name_of
from gfgnn.profiling.session import Span

#: Share of a ceiling below which work counts as held up by something else.
LOW = 0.25
#: Spans after which no further iteration goes into the trace.
TRACED = 5000


def make_profile(
    spans: Mapping[int, Sequence[Span]],
    counter: Counter,
    steps: Sequence[float],
    ceilings: Mapping[str, float],
) -> dict[str, Any]:
    """The profile of one rank, JSON-ready.

    Args:
        spans: of the timed iterations, by number.
        counter: what iteration 1 did.
        steps: seconds of every iteration, timed or not.

    Returns:
        ``iterations`` (how many were timed), ``seconds`` (their mean), ``plain_seconds`` (mean of those between them,
        which were not; None where there are none), ``kinds``: ``{kind: {"seconds", "calls", "bytes", "flops"}}``, whose
        seconds are means that add up to ``seconds``, and whose counts are those of iteration 1; and the ceilings.
    """
    timed = _timed(spans)
    between = [n for n in range(2, max(timed)) if n not in spans]
    seconds = statistics.fmean(steps[number - 1] for number in timed)
    own = dict.fromkeys(KINDS, 0.0)
    for span in (span for number in timed for span in spans[number]):
        own[_kind(span, counter)] += span.own * 1e-9 / len(timed)
    own["other"] = seconds - sum(value for kind, value in own.items() if kind != "other")
    return {
        "iterations": len(timed),
        "seconds": seconds,
        "plain_seconds": statistics.fmean(steps[n - 1] for n in between) if between else None,
        "kinds": {kind: {"seconds": own[kind], **asdict(counter.counts[kind])} for kind in KINDS},
        **ceilings,
    }


def traced(spans: Mapping[int, Sequence[Span]]) -> list[list[Any]]:
    """The first timed iterations for :func:`gfgnn.profiling.trace.profile_trace`: ``[name, kind, start, end]`` of each
    span, in nanoseconds."""
    found: list[list[Any]] = []
    for number in _timed(spans):
        if len(found) < TRACED and spans[number]:
            start, end = spans[number][0].start, max(span.end for span in spans[number])
            found.append([f"iteration {number}", "iteration", start, end])
            found += [[s.name, s.kind or kind_of(name_of(s.name)), s.start, s.end] for s in spans[number]]
    return found


def _timed(spans: Mapping[int, Sequence[Span]]) -> list[int]:
    """The iterations whose times count: the first one, which also counts and touches memory anew, only if alone."""
    return [number for number in spans if number > 1] or list(spans)


def _kind(span: Span, counter: Counter) -> str:
    """Of a label as it says; operators that neither compute nor move anything, as views, count as Python."""
    if span.kind:
        return span.kind
    name = name_of(span.name)
    return kind_of(name) if name in counter.working else "other"


def shares(profile: Mapping[str, Any], kind: str) -> tuple[float, float]:
    """The rates of a kind of work over the ceilings: of bytes over the copy's, of flops over the product's."""
    tally = profile["kinds"][kind]
    if tally["seconds"] <= 0:
        return 0.0, 0.0
    return (
        tally["bytes"] / tally["seconds"] / profile["copy_bytes_per_second"],
        tally["flops"] / tally["seconds"] / profile["flops_per_second"],
    )


def bound(profile: Mapping[str, Any]) -> str:
    """One sentence: the kind with most seconds, and what holds it up."""
    kinds, total = profile["kinds"], profile["seconds"]
    kind = max(kinds, key=lambda name: kinds[name]["seconds"])
    spent = kinds[kind]["seconds"]
    first = f"{spent / total:.0%} of an iteration is {kind}"
    if kind == "other":
        calls = sum(tally["calls"] for tally in kinds.values())
        return f"{first}: Python around {calls:.0f} calls, {spent / max(calls, 1) * 1e6:.0f} µs each."
    if kind == "waiting":
        return f"{first}: the other ranks bound it, not this one's work."
    copy, product = shares(profile, kind)
    call = f"{spent / kinds[kind]['calls'] * 1e6:,.0f} µs a call"
    if max(copy, product) < LOW:
        return f"{first}, far from both ceilings ({copy:.0%} of the copy's, {product:.0%} of the product's; {call})."
    if copy >= product:
        return f"{first}, bound by memory: {copy:.0%} of what a copy moves ({call})."
    return f"{first}, bound by arithmetic: {product:.0%} of the rate of a matrix product ({call})."
