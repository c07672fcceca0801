"""Results as a few lines of text."""

from __future__ import annotations

from gfgnn.curves import LABELS, SCORES
from gfgnn.result import Result


def comparison(result: Result, adam: Result | None = None) -> str:
    """A line about the run and a table with a row for each solver."""
    graph, config = result.graph, result.model.config
    title = (
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {result.model.num_features:,} features; "
        f"{config.family}, {config.layers} layers, hidden {config.hidden}, seed {result.config.seed}"
    )
    score = SCORES[result.model.task]
    rows = [
        ["solver", f"test {score}", f"val {score}", "best at", "iterations", "seconds to best", "seconds"]
    ]
    rows += [_row(run) for run in (result, adam) if run is not None]
    lines = [title, "", *_align(rows)]
    if adam is not None:
        ratio = adam.seconds_to_best / result.seconds_to_best
        word = "more" if ratio >= 1 else "less"
        lines += [
            "",
            f"Adam took {max(ratio, 1 / ratio):.1f} times {word} time to its best validation {score}.",
        ]
    return "\n".join(lines)


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


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _align(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
