"""Pictures of a benchmark: scores over seconds, over depth, and what more ranks bring."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gfgnn.bench.cells import Cell, best_tests, to_best
from gfgnn.bench.outcome import Outcome
from gfgnn.bench.sections import ranks_of
from gfgnn.curves import make_logarithmic

COLOURS = (
    "#0b6e99",
    "#c4572b",
    "#5b8c2a",
    "#8a5aa8",
    "#b08a1e",
    "#3a3a3a",
    "#d87aa8",
    "#4fb0ae",
    "#7f6a55",
    "#9aa0a6",
)
#: points of a curve
POINTS = 200
Figure = tuple[str, bytes]

#: contenders whose names find room within a picture
MOST_INSIDE = 6


def plots(found: list[Cell]) -> list[Figure]:
    """``(file name, PNG)`` of every picture that the cells give something for."""
    made: list[Figure] = []
    for case in dict.fromkeys(cell.case for cell in found):
        own = [cell for cell in found if cell.case == case]
        colours = _colours(own)
        made.append((f"{case}-seconds.png", draw_seconds(own, colours)))
        deep = [row for row in _by_data(own) if len(row) > 1]
        if deep:
            made.append((f"{case}-depth.png", draw_depth(deep, colours)))
        if wide := [cell for cell in own if any(ranks_of(cell, label) > 1 for label in cell.runs)]:
            made.append((f"{case}-ranks.png", draw_ranks(wide)))
    return made


def draw_seconds(own: list[Cell], colours: dict[str, str]) -> bytes:
    """Test score of the best iterate on validation so far over training seconds: the mean over seeds, and in a band the
    least and the largest. A curve begins where all seeds have been evaluated and ends with the longest of them."""
    figure, axes = _figure(own)
    for axis, cell in zip(axes, own, strict=False):
        for label in cell.runs:
            if curve := band([outcome for outcome in cell.done(label) if outcome.last is not None]):
                seconds, mean, low, high = curve
                axis.plot(seconds, mean, color=colours[label], lw=1.8, label=label)
                axis.fill_between(seconds, low, high, color=colours[label], alpha=0.18, lw=0)
        axis.set(title=f"{cell.data}, {cell.layers} layers", xlabel="training seconds", ylabel="test score")
        make_logarithmic(axis)
        _tidy(axis)
    return _png(figure)


def band(outcomes: list[Outcome]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Seconds, mean, least and largest score of runs, each ``[POINTS]``, evenly spaced in log seconds; None without
    runs. A run that has ended stays at its last score."""
    curves = [_so_far(outcome) for outcome in outcomes]
    if not curves:
        return None
    start = max(max(seconds[0] for seconds, _ in curves), 1e-4)
    end = max(max(seconds[-1] for seconds, _ in curves), start)
    grid = np.geomspace(start, end, POINTS)
    grid[0], grid[-1] = start, end  # not a rounding below the first evaluation
    scores = np.stack([s[np.maximum(np.searchsorted(t, grid, side="right") - 1, 0)] for t, s in curves])
    return grid, scores.mean(0), scores.min(0), scores.max(0)


def draw_depth(rows: list[list[Cell]], colours: dict[str, str]) -> bytes:
    """Score at the best validation score, and seconds to it, over layers: one column for each graph."""
    figure, axes = _figure(rows, height=2)
    for column, row in enumerate(rows):
        top, bottom = axes[column], axes[len(rows) + column]
        for label in dict.fromkeys(label for cell in row for label in cell.runs):
            here = [(cell.layers, cell.done(label)) for cell in row if best_tests(cell.done(label))]
            _points(top, [(depth, best_tests(done)) for depth, done in here], label, colours[label])
            _points(
                bottom,
                [(depth, [to_best(o)[0] for o in done]) for depth, done in here],
                label,
                colours[label],
            )
        top.set(title=row[0].data, ylabel="test score")
        bottom.set(xlabel="layers", ylabel="seconds to best validation score")
        make_logarithmic(bottom, "y")
        for axis in (top, bottom):
            axis.set_xscale("log", base=2)
            axis.set_xticks([cell.layers for cell in row], [str(cell.layers) for cell in row])
            _tidy(axis)
    return _png(figure)


def draw_ranks(own: list[Cell]) -> bytes:
    """Seconds of an iteration and the highest peak of a rank over the number of ranks, for each contender that ran on
    several: parts and stages are lines of their own that begin at its run on one rank."""
    figure, axes = _figure(own, height=2)
    for column, cell in enumerate(own):
        for colour, (name, points) in zip(COLOURS, _lines_of_ranks(cell).items(), strict=False):
            steps: Callable[[Outcome], float | None] = lambda o: o.seconds_per_iteration  # noqa: E731
            _points(axes[column], [(r, _values(done, steps)) for r, done in points], name, colour)
            peaks = [(r, [max(o.peak_bytes) / 1e6 for o in done if o.peak_bytes]) for r, done in points]
            _points(axes[len(own) + column], peaks, name, colour)
        axes[column].set(title=f"{cell.data}, {cell.layers} layers", ylabel="seconds per iteration")
        axes[len(own) + column].set(xlabel="ranks", ylabel="MB, peak of a rank")
        for axis in (axes[column], axes[len(own) + column]):
            axis.set_ylim(bottom=0)
            axis.xaxis.get_major_locator().set_params(integer=True)
            _tidy(axis)
    return _png(figure)


def _lines_of_ranks(cell: Cell) -> dict[str, list[tuple[int, list[Outcome]]]]:
    """Per contender and kind of split: ``(ranks, outcomes)``, by number of ranks."""
    labels = [label for label in cell.runs if ranks_of(cell, label) == 1]
    alone = {cell.runs[label][0].line["contender"]: cell.done(label) for label in labels}
    found: dict[str, list[tuple[int, list[Outcome]]]] = {}
    for label, runs in cell.runs.items():
        if (ranks := ranks_of(cell, label)) > 1:
            line = runs[0].line
            used = line["outcome"]["settings"]
            kinds = [kind for kind in ("parts", "stages") if used.get(kind, 1) > 1]
            others = [
                f"{k} {v}" for k, v in line["settings"].items() if k not in ("parts", "stages", "ranks")
            ]
            name = ", ".join([line["contender"], " x ".join(kinds) or "ranks", *others])
            start = [(1, alone[line["contender"]])] if line["contender"] in alone else []
            found.setdefault(name, start).append((ranks, cell.done(label)))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in found.items()}


def _values(outcomes: Iterable[Outcome], of: Callable[[Outcome], float | None]) -> list[float]:
    return [value for outcome in outcomes if (value := of(outcome)) is not None]


def _points(axis: Any, points: list[tuple[int, list[float]]], label: str, colour: str) -> None:
    """Medians over seeds, with bars from the least to the largest."""
    points = [(x, values) for x, values in points if values]
    if not points:
        return
    x, middle = [x for x, _ in points], [statistics.median(values) for _, values in points]
    below = [m - min(values) for m, (_, values) in zip(middle, points, strict=True)]
    above = [max(values) - m for m, (_, values) in zip(middle, points, strict=True)]
    axis.errorbar(
        x, middle, yerr=[below, above], color=colour, marker="o", ms=4, lw=1.6, capsize=2, label=label
    )


def _so_far(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of evaluations, rising, and the test score of the best iterate on validation up to each."""
    lines = [line for line in outcome.history if line.get("test") is not None]
    scores, best, test = [], -np.inf, 0.0
    for line in lines:
        val = line.get("val")
        if val is None or val > best:  # without validation labels the last counts
            best, test = (best if val is None else val), line["test"]
        scores.append(test)
    return np.array([line["seconds"] for line in lines]), np.array(scores)


def _by_data(own: list[Cell]) -> list[list[Cell]]:
    """The cells of each graph, by depth."""
    names = dict.fromkeys(cell.data for cell in own)
    return [sorted((c for c in own if c.data == name), key=lambda c: c.layers) for name in names]


def _colours(own: list[Cell]) -> dict[str, str]:
    labels = list(dict.fromkeys(label for cell in own for label in cell.runs))
    return {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(labels)}


def _figure(items: list[Any], height: int = 1) -> tuple[Any, list[Any]]:
    """A figure without a window system and without pyplot's global state, and its axes: ``height`` rows of one for each
    item, or as many rows of three as it takes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = len(items) if height > 1 else min(3, len(items))
    rows = height if height > 1 else -(-len(items) // columns)
    figure = Canvas(figsize=(max(5.0, 4.2 * columns), 3.3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[len(items) * height :]:
        axis.remove()
    return figure, axes


def _tidy(axis: Any) -> None:
    axis.grid(color="0.9", lw=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    labels = axis.get_legend_handles_labels()[0]
    if len(labels) > MOST_INSIDE:  # more would hide the curves
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.02))
    elif labels:
        axis.legend(fontsize=8, frameon=False)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
