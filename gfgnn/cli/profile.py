"""A profile as a table."""

from __future__ import annotations

from typing import Any

from gfgnn.cli.table import align
from gfgnn.profiling.labels import KINDS
from gfgnn.profiling.report import bound, shares


def profile_text(profile: dict[str, Any]) -> str:
    """The table of the rank that waits least, what bounds it, and on grids the kinds of all ranks side by side."""
    ranks = profile["ranks"]
    busiest = min(ranks, key=lambda rank: rank["kinds"]["waiting"]["seconds"] / rank["seconds"])
    lines = [_title(busiest, len(ranks)), "", *align(_rows(busiest)), "", bound(busiest)]
    if len(ranks) > 1:
        lines += ["", "Milliseconds of an iteration, over ranks:", "", *align(_over_ranks(ranks))]
    return "\n".join(lines)


def _title(rank: dict[str, Any], num_ranks: int) -> str:
    where = f" of rank {rank['rank']}, which waits least" if num_ranks > 1 else ""
    plain = rank["plain_seconds"]
    check = "" if plain is None else f" (those between them, not recorded, took {plain * 1e3:.3f} ms)"
    return (
        f"Profile{where}: means of {rank['iterations']} iterations{check}.\n"
        f"Shares are of what this machine copies, {rank['copy_bytes_per_second'] / 1e9:.1f} GB/s, "
        f"and multiplies, {rank['flops_per_second'] / 1e9:.1f} GFLOP/s."
    )


def _rows(rank: dict[str, Any]) -> list[list[str]]:
    rows = [["kind", "ms", "share", "calls", "MB", "GB/s", "of copy", "MFLOP", "GFLOP/s", "of product"]]
    for kind in KINDS:
        tally = rank["kinds"][kind]
        if kind != "other" and not tally["calls"]:
            continue
        seconds, moved, flops = (tally[name] for name in ("seconds", "bytes", "flops"))
        copy, product = shares(rank, kind)
        rows.append([
            kind, f"{seconds * 1e3:.3f}", f"{seconds / rank['seconds']:.1%}", f"{tally['calls']:.0f}",
            *_filled(moved, f"{moved / 1e6:.2f}", f"{moved / max(seconds, 1e-12) / 1e9:.2f}", f"{copy:.0%}"),
            *_filled(flops, f"{flops / 1e6:.1f}", f"{flops / max(seconds, 1e-12) / 1e9:.2f}", f"{product:.0%}"),
        ])  # fmt: skip
    total = [sum(rank["kinds"][kind][name] for kind in KINDS) for name in ("calls", "bytes", "flops")]
    rows.append([
        "iteration", f"{rank['seconds'] * 1e3:.3f}", "100.0%", f"{total[0]:.0f}", f"{total[1] / 1e6:.2f}", "", "",
        f"{total[2] / 1e6:.1f}", "", "",
    ])  # fmt: skip
    return rows


def _filled(count: float, *cells: str) -> list[str]:
    """The cells, or dashes where nothing was counted."""
    return list(cells) if count else ["-"] * len(cells)


def _over_ranks(ranks: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["kind", "least", "mean", "most", "on rank"]]
    for kind in KINDS:
        found = [rank["kinds"][kind]["seconds"] * 1e3 for rank in ranks]
        if any(found):
            most = max(range(len(found)), key=found.__getitem__)
            mean = sum(found) / len(found)
            rows.append([kind, f"{min(found):.3f}", f"{mean:.3f}", f"{found[most]:.3f}", str(most)])
    return rows


__all__ = ["profile_text"]
