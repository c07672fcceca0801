"""What the benchmarks share: one training run as one JSON line, with the machine and the commit it came from."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import gfgnn
from gfgnn.bench.machine import commit, machine

HERE = Path(__file__).resolve().parent


def run(
    results: Path,
    model: gfgnn.Model | gfgnn.ModelConfig,
    graph: gfgnn.Graph,
    config: gfgnn.TrainConfig,
    *,
    columns: tuple[str, ...] = ("iteration", "seconds", "train", "val", "test"),
    **about: Any,
) -> dict[str, Any]:
    """Trains once, appends the line to ``results`` and prints what came out.

    Args:
        columns: of the history, kept as the ``curve`` of the line.
        about: what tells this run from others: ``case``, ``label``, ...
    """
    load = os.getloadavg()[0]
    result = gfgnn.train(model, graph, config)
    summary = result.summary()
    line = {
        **about, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(), "machine": machine(),
        "load_before": round(load, 2), **summary, "columns": columns,
        "curve": [[_short(record[name]) for name in columns] for record in result.history],
    }  # fmt: skip
    append(results, line)
    named = " ".join(str(about[key]) for key in ("case", "label") if key in about)
    print(
        f"{named} seed {config.seed}: val {result.val_accuracy:.4f} test {result.test_accuracy:.4f} at iteration "
        f"{result.best_iteration} of {result.iterations}, {result.seconds_to_best:.2f} s; last test "
        f"{result.last_test_accuracy:.4f}; {1000 * result.seconds_per_iteration:.1f} ms/iteration",
        flush=True,
    )
    return line


def append(results: Path, line: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read(results: Path) -> list[dict[str, Any]]:
    """The lines of a results file, oldest first."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def held(what: str) -> int:
    """Bytes of this process by the system's name of a figure: ``VmRSS`` now, ``VmHWM`` at most so far; Linux only."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def seconds_to(line: dict[str, Any], accuracy: float, split: str = "test") -> float | None:
    """Training seconds until ``split`` first reached ``accuracy``; None if it never did."""
    seconds, place = line["columns"].index("seconds"), line["columns"].index(split)
    reached = (record[seconds] for record in line["curve"] if (record[place] or 0.0) >= accuracy)
    return next(reached, None)


def percent(shares: list[float]) -> str:
    """Mean and standard deviation of accuracies, in percent."""
    values = [100 * share for share in shares]
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
