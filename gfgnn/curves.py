"""The training curves of a run, as a picture."""

from __future__ import annotations

import io
import math
from typing import Any

from gfgnn.metrics import NAMES
from gfgnn.result import Result

LABELS = {
    "target": "gfgnn (no backprop)",
    "admm": "ADMM (no backprop)",
    "pdadmm-g": "pdADMM-G (no backprop)",
    "community-admm": "community ADMM (no backprop)",
    "adam": "Adam (backprop)",
}
COLOURS = {
    "target": "#0b6e99",
    "admm": "#5b8c2a",
    "pdadmm-g": "#8a5aa8",
    "community-admm": "#b08a1e",
    "adam": "#c4572b",
}


def draw_curves(results: list[Result]) -> bytes:
    """A PNG with score and loss of each run over iterations and over training seconds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    split = [result for result in results if {"primal", "dual"} <= set(result.history[0]["extra"])]
    rows = 3 if split else 2
    figure = Figure(figsize=(10, 3.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)  # no window system, and none of pyplot's global state
    axes = figure.subplots(rows, 2, sharex="col", sharey="row")
    first = results[0]
    config = first.model.config
    figure.suptitle(
        f"{first.graph.name}, {config.family} with {config.layers} layers, hidden {config.hidden}",
        fontsize=12,
    )
    for result in results:
        for column, x in enumerate(("iteration", "seconds")):
            _draw_scores(axes[0][column], result, x)
            _draw_losses(axes[1][column], result, x)
            if result in split:
                _draw_residuals(axes[2][column], result, x)
    _label(axes, NAMES[first.model.task], logarithmic=len(results) > 1)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def _draw_scores(axis: Any, result: Result, x: str) -> None:
    name, colour = result.config.solver, COLOURS[result.config.solver]
    lines = [line for line in result.history if line["train"] is not None]
    for key, style in (
        ("train", {"ls": ":", "lw": 1.2}),
        ("test", {"ls": "--", "lw": 1.2}),
        ("val", {"lw": 1.9}),
    ):
        points = [(line[x], line[key]) for line in lines if line[key] is not None]
        if points:
            label = f"{LABELS[name]}, {key}"
            axis.plot(*zip(*points, strict=True), color=colour, alpha=0.95, label=label, **style)
    points = [(line[x], line["extra"].get("auxiliary_val")) for line in result.history]
    if points := [point for point in points if point[1] is not None]:
        label = f"{LABELS[name]}, val of the embeddings"
        axis.plot(*zip(*points, strict=True), color=colour, alpha=0.5, lw=1.9, label=label)
    best = next(line for line in lines if line["iteration"] == result.best_iteration)
    if best["val"] is not None:
        axis.plot(best[x], best["val"], "o", color=colour, ms=6, mec="white", mew=1.2, zorder=5)


def _draw_losses(axis: Any, result: Result, x: str) -> None:
    name, colour = result.config.solver, COLOURS[result.config.solver]
    for key, style in (("loss", {"ls": ":", "lw": 1.2}), ("val_loss", {"lw": 1.9})):
        points = [(line[x], line[key]) for line in result.history if line[key] is not None and line[key] > 0]
        points = [p for p in points if math.isfinite(p[1])]
        if points:
            label = f"{LABELS[name]}, {'train' if key == 'loss' else 'val'}"
            axis.plot(*zip(*points, strict=True), color=colour, label=label, **style)


def _draw_residuals(axis: Any, result: Result, x: str) -> None:
    colour = COLOURS[result.config.solver]
    for key, style in (("primal", {"lw": 1.9}), ("dual", {"ls": "--", "lw": 1.2})):
        points = [(line[x], line["extra"][key]) for line in result.history if line["extra"][key] > 0]
        if points:
            axis.plot(*zip(*points, strict=True), color=colour, label=f"{key} residual", **style)


def _label(axes: Any, score: str, *, logarithmic: bool) -> None:
    axes[0][0].set_ylabel(score)
    axes[1][0].set_ylabel("mean loss")
    axes[1][0].set_yscale("log")
    if len(axes) > 2:
        axes[2][0].set_ylabel("residual")
        axes[2][0].set_yscale("log")
    axes[-1][0].set_xlabel("iterations")
    axes[-1][1].set_xlabel("training seconds")
    for axis in axes.flat:
        axis.grid(color="0.9", lw=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        if logarithmic:
            make_logarithmic(axis)
    for row in axes:
        row[1].legend(fontsize=8, frameon=False, loc="best")


def make_logarithmic(axis: Any, along: str = "x") -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5: powers of ten, the default, overlap on short ones."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set(**{f"{along}scale": "log"})
    line = getattr(axis, f"{along}axis")
    line.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    line.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    line.set_minor_formatter(NullFormatter())
