"""Results as a few lines of text."""

from __future__ import annotations

from typing import Any

from gfgnn.curves import LABELS
from gfgnn.metrics import NAMES
from gfgnn.plan.limit import mega
from gfgnn.result import Result

#: purposes of an iteration's messages; those between stages also make ranks wait, as does what they agree on
SENT = ("halo", "stage", "gram")
WAITED = (*SENT, "control")


def comparison(result: Result, adam: Result | None = None) -> str:
    """A line about the run and a table with a row for each solver."""
    graph, config = result.graph, result.model.config
    title = (
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {result.model.num_features:,} features; "
        f"{config.family}, {config.layers} layers, hidden {config.hidden}, seed {result.config.seed}"
    )
    score = NAMES[result.model.task]
    rows = [
        ["solver", f"test {score}", f"val {score}", "best at", "iterations", "seconds to best", "seconds"]
    ]
    for run in (result, adam):
        if run is not None:
            rows.append(_row(run))
            if run.label_reuse is not None:
                rows.append(_after_row("all labels put in", run.label_reuse))
            if run.post is not None:
                rows.append(_after_row(run.post["method"], run.post))
    lines = [title, "", *align(rows)]
    if adam is not None:
        ratio = adam.seconds_to_best / result.seconds_to_best
        word = "more" if ratio >= 1 else "less"
        lines += [
            "",
            f"Adam took {max(ratio, 1 / ratio):.1f} times {word} time to its best validation {score}.",
        ]
    return "\n".join(lines)


def official_lines(scores: dict[str, float]) -> list[str]:
    """What OGB's evaluator said, see :func:`gfgnn.data.ogb.official_test`, a line each."""
    return [f"{name.replace('_', ' ')} {value:.4f} (OGB's evaluator)" for name, value in scores.items()]


def memory_line(result: Result) -> str:
    """The highest memory use of the process beside its limit and what was predicted."""
    fit = result.fit
    assert fit is not None
    peak = mega(result.peak_rss_bytes)
    return f"peak memory {peak}; limit {mega(fit.limit)}, predicted {mega(fit.peak)} ({fit.words})"


def ranks_table(result: Result) -> str:
    """A row for each rank of a grid: what it has, and what an iteration made it send and wait, in the mean.

    Traffic of set-up and evaluation is left out.
    """
    columns = ("rank", "part", "stage", "nodes", "halo rows", "blocks", "peak MB")
    rows = [[*columns, *(f"{purpose} MB" for purpose in SENT), "waits s"]]
    rows += [_rank_row(rank, result.iterations) for rank in result.ranks]
    return "\n".join(["Ranks; MB sent and seconds waited per iteration:", "", *align(rows)])


def _rank_row(rank: dict[str, Any], iterations: int) -> list[str]:
    first, end = rank["blocks"]
    traffic = rank["traffic"]
    waited = sum(traffic[purpose]["seconds"] for purpose in WAITED) / iterations
    return [
        *(str(rank[name]) for name in ("rank", "part", "stage")),
        f"{rank['nodes']:,}",
        f"{rank['halo']:,}",
        str(first) if end == first + 1 else f"{first}-{end - 1}",
        f"{rank['peak_rss_bytes'] / 1e6:.0f}",
        *(f"{traffic[purpose]['bytes'] / iterations / 1e6:.3f}" for purpose in SENT),
        f"{waited:.4f}",
    ]


def _row(result: Result) -> list[str]:
    return [
        LABELS[result.config.solver],
        _score(result.test_accuracy),
        _score(result.val_accuracy),
        str(result.best_iteration),
        str(result.iterations),
        f"{result.seconds_to_best:.2f}",
        f"{result.seconds:.2f}",
    ]


def _after_row(what: str, after: dict[str, Any]) -> list[str]:
    """What was made of the line above after training."""
    scores = [_score(after["test_accuracy"]), _score(after["val_accuracy"])]
    return [f"  with {what}", *scores, "", "", "", f"+{after['seconds']:.2f}"]


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def align(rows: list[list[str]]) -> list[str]:
    """Lines with the first column flush left and the others flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
