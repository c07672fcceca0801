"""Accuracy and time of the block solver against Adam on the same networks, where labels are few.

    python benchmarks/accuracy.py tune             Adam's settings for Amazon and Coauthor, chosen on validation
    python benchmarks/accuracy.py run              both solvers in turn for every case and seed
    python benchmarks/accuracy.py report           the table, from results/accuracy.jsonl

Needs cora, pubmed, amazon_photo, amazon_computers and coauthor_cs as .npz in the folder that GFGNN_DATA names; citeseer
is shipped. Every run appends one line to results/accuracy.jsonl; the latest line of a case, solver and seed counts.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from common import HERE, read, run, seconds_to

import gfgnn

RESULTS = HERE / "results" / "accuracy.jsonl"
DRAWN = "per_class=20,val_per_class=30"
COLUMNS = ("iteration", "seconds", "val", "test")
MOST_ITERATIONS = 40
SOLVERS = ("target", "adam")
Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes:
        asked: mean test accuracy to be reached; None: Adam's in the same runs, minus ``MARGIN``.
        reach: test accuracy whose time is compared.
        tuned: Adam's settings are searched on validation; else they are the published ones.
        features: how the block solver's features are normalised; Adam's are normalised by rows, as published.
    """

    data: str
    family: str = "gcnii"
    layers: int = 16
    split: str | None = None
    asked: float | None = None
    reach: float | None = None
    tuned: bool = False
    features: str = "none"


MARGIN = 0.005
CASES = {
    "cora-2": Case(data="cora", family="gcn", layers=2, asked=0.825),
    "cora-16": Case(data="cora", asked=0.835, reach=0.83),
    "cora-64": Case(data="cora", layers=64, asked=0.835, reach=0.83),
    "citeseer-2": Case(data="citeseer", family="gcn", layers=2, asked=0.71),
    "citeseer-16": Case(data="citeseer", asked=0.715),
    "citeseer-64": Case(data="citeseer", layers=64, asked=0.715),
    "pubmed-2": Case(data="pubmed", family="gcn", layers=2, asked=0.79),
    "pubmed-16": Case(data="pubmed", asked=0.79),
    "photo-2": Case(data="amazon_photo", family="gcn", layers=2, split=DRAWN, tuned=True, features="rows"),
    "computers-2": Case(
        data="amazon_computers", family="gcn", layers=2, split=DRAWN, tuned=True, features="rows"
    ),
    "cs-2": Case(data="coauthor_cs", family="gcn", layers=2, split=DRAWN, tuned=True, features="rows"),
}

#: Adam's settings that are tried; the published one comes first, so that it wins ties.
GRID: dict[str, tuple[Any, ...]] = {
    "normalise": ("none", "rows"), "lr": (0.01,), "weight_decay": (5e-4, 0.0), "dropout": (0.5, 0.2),
}  # fmt: skip
#: Epochs of tuned runs: the published 200 are too few for the smaller learning rate.
TUNED_EPOCHS, TUNED_PATIENCE = 300, 60


def load_case(case: Case, normalise: str, seed: int) -> tuple[gfgnn.Graph, gfgnn.ModelConfig]:
    """Graph and network; the split of graphs that have none is drawn anew for every seed."""
    graph = gfgnn.load(
        case.data,
        split=case.split,
        split_seed=0 if case.split is None else seed,
        normalise=None if normalise == "none" else normalise,
    )
    return graph, gfgnn.ModelConfig(family=case.family, layers=case.layers, hidden=64)


def normalisation(case: Case, solver: str, options: argparse.Namespace, chosen: dict[str, Any]) -> str:
    """How features are normalised: ``--normalise``, what Adam's search chose, or what the case says for the solver."""
    stated: str | None = options.normalise
    if solver == "adam":
        return stated or chosen.get("normalise", "rows")
    return stated or case.features


def adam_config(
    case: Case, options: argparse.Namespace, seed: int, chosen: dict[str, Any]
) -> gfgnn.TrainConfig:
    """Adam as published for the family, or with the ``chosen`` settings; epochs capped by ``--adam-iters``."""
    epochs = TUNED_EPOCHS if case.tuned else None
    if options.adam_iters is not None:
        epochs = min(options.adam_iters, epochs or options.adam_iters)
    return gfgnn.TrainConfig(
        solver="adam",
        iters=epochs,
        patience=TUNED_PATIENCE if case.tuned else None,
        seed=seed,
        threads=options.threads,
        adam=gfgnn.AdamConfig(**{key: value for key, value in chosen.items() if key != "normalise"}),
    )


def tune(options: argparse.Namespace) -> None:
    """Adam's grid for the cases that are tuned, one seed, best validation accuracy."""
    for name in options.cases or [name for name, case in CASES.items() if case.tuned]:
        case = CASES[name]
        for values in product(*GRID.values()):
            chosen = dict(zip(GRID, values, strict=True))
            if options.normalise not in (None, chosen["normalise"]):
                continue
            graph, model = load_case(case, chosen["normalise"], 0)
            about = {"case": name, "label": "tune adam", "chosen": chosen, "normalise": chosen["normalise"]}
            run(
                options.results, model, graph, adam_config(case, options, 0, chosen), columns=COLUMNS, **about
            )
        print(f"{name}: {tuned(name, options)}")


def tuned(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Adam's settings with the best validation accuracy; the latest trial of a setting counts."""
    if not CASES[name].tuned:
        return {}
    latest = {
        tuple(line["chosen"].items()): line
        for line in read(options.results)
        if line["case"] == name
        and line["label"] == "tune adam"
        and options.normalise in (None, line["normalise"])
        and "normalise" in line["chosen"]
    }
    if not latest:
        raise SystemExit(
            f"no trials of {name} in {options.results}: run `accuracy.py tune --cases {name}` first"
        )
    best: dict[str, Any] = max(latest.values(), key=lambda line: line["val_accuracy"])["chosen"]
    return best


def compare(options: argparse.Namespace) -> None:
    """Every case and seed, both solvers in turn, so that a slower quarter of an hour hits both."""
    names = options.cases or list(CASES)
    chosen = {name: tuned(name, options) for name in names if "adam" in options.solvers}
    warm_up(options.threads)
    batch = time.strftime("%Y-%m-%d %H:%M:%S")
    for name in names:
        for seed in range(options.seeds):
            for solver in options.solvers:
                normalise = normalisation(CASES[name], solver, options, chosen.get(name, {}))
                graph, model = load_case(CASES[name], normalise, seed)
                if solver == "adam":
                    config = adam_config(CASES[name], options, seed, chosen[name])
                else:
                    config = gfgnn.TrainConfig(iters=options.iters, seed=seed, threads=options.threads)
                about = {"case": name, "label": solver, "batch": batch, "normalise": normalise}
                run(options.results, model, graph, config, columns=COLUMNS, **about)


def warm_up(threads: int) -> None:
    """What only the first run of a process pays: modules, threads, memory."""
    graph = gfgnn.load("synthetic:nodes=500,classes=3,features=16")
    for solver in SOLVERS:
        model = gfgnn.ModelConfig(layers=2, hidden=16)
        gfgnn.train(model, graph, gfgnn.TrainConfig(solver=solver, iters=3, threads=threads))


def report(options: argparse.Namespace) -> None:
    """Prints the tables as Markdown."""
    latest = {
        (line["case"], line["label"], line["seed"]): line
        for line in read(options.results)
        if line["label"] in SOLVERS and options.normalise in (None, line["normalise"])
    }
    runs: dict[str, dict[str, dict[int, Line]]] = {}
    for (case, label, seed), line in latest.items():
        runs.setdefault(case, {}).setdefault(label, {})[seed] = line
    shown = [name for name in options.cases or CASES if name in runs]
    if not shown:
        raise SystemExit(f"no runs in {options.results}: run `accuracy.py run` first")
    print(accuracy_table(shown, runs), end="\n\n")
    print(time_table(shown, runs), end="\n\n")
    print(provenance(latest.values()))


def accuracy_table(names: list[str], runs: dict[str, dict[str, dict[int, Line]]]) -> str:
    head = [
        "case", "network", "solver", "seeds", "test at best validation", "asked for", "last test",
        "iterations to best", "seconds to best", "ms/iteration",
    ]  # fmt: skip
    rows = [head]
    for name in names:
        for label in SOLVERS:
            if lines := list(runs[name].get(label, {}).values()):
                best = [100 * line["test_accuracy"] for line in lines]
                to_best = [line["best_iteration"] for line in lines]
                late = "" if label == "adam" or statistics.median(to_best) <= MOST_ITERATIONS else " (late)"
                rows.append([
                    name, f"{CASES[name].family}-{CASES[name].layers}", label, str(len(lines)), mean_sd(best),
                    asked(name, runs) if label == "target" else "",
                    mean_sd([100 * line["last_test_accuracy"] for line in lines]),
                    f"{statistics.median(to_best):.0f} ({min(to_best)}-{max(to_best)}){late}",
                    f"{statistics.median(line['seconds_to_best'] for line in lines):.2f}",
                    f"{1000 * statistics.median(line['seconds_per_iteration'] for line in lines):.1f}",
                ])  # fmt: skip
    return markdown(rows)


def asked(name: str, runs: dict[str, dict[str, dict[int, Line]]]) -> str:
    """What the block solver's mean should reach, and whether it does."""
    wanted = CASES[name].asked
    if wanted is None:
        if "adam" not in runs[name]:
            return "Adam's"
        wanted = statistics.mean(line["test_accuracy"] for line in runs[name]["adam"].values()) - MARGIN
    reached = statistics.mean(line["test_accuracy"] for line in runs[name]["target"].values())
    return f"{100 * wanted:.1f}: {'yes' if reached >= wanted else 'no'}"


def time_table(names: list[str], runs: dict[str, dict[str, dict[int, Line]]]) -> str:
    """Pairs of the same seed and batch; who never gets there counts with all its time, marked with >=."""
    rows = [
        ["case", "measure", "target, s", "Adam, s", "target got there", "Adam got there", "Adam / target"]
    ]
    for name in names:
        both = [runs[name].get(label, {}) for label in SOLVERS]
        pairs = [(both[0][s], both[1][s]) for s in sorted(both[0].keys() & both[1].keys())]
        pairs = [(a, b) for a, b in pairs if a["batch"] == b["batch"]]
        if not pairs:
            continue
        best = [(a["seconds_to_best"], b["seconds_to_best"]) for a, b in pairs]
        rows.append(time_row(name, "best validation", best, best))
        if (reach := CASES[name].reach) is not None:
            found = [(seconds_to(a, reach), seconds_to(b, reach)) for a, b in pairs]
            filled = [
                (a["seconds"] if x is None else x, b["seconds"] if y is None else y)
                for (a, b), (x, y) in zip(pairs, found, strict=True)
            ]
            rows.append(time_row(name, f"test {reach}", filled, found))
    return markdown(rows)


def time_row(
    name: str,
    measure: str,
    seconds: list[tuple[float, float]],
    found: list[tuple[float | None, float | None]],
) -> list[str]:
    """Medians over pairs; a pair in which the block solver never got there has the ratio 0."""
    reached = [[pair[i] is not None for pair in found] for i in (0, 1)]
    ratios = [b / a if there else 0.0 for (a, b), there in zip(seconds, reached[0], strict=True)]
    mark = "" if all(reached[1]) else ">= "
    return [
        name, measure, *(f"{statistics.median(pair[i] for pair in seconds):.2f}" for i in (0, 1)),
        *(f"{sum(reached[i])}/{len(found)}" for i in (0, 1)), f"{mark}{statistics.median(ratios):.1f}",
    ]  # fmt: skip


def mean_sd(values: list[float]) -> str:
    sd = statistics.stdev(values) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.1f} ± {sd:.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def markdown(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def provenance(lines: Any) -> str:
    """Machines, commits and dates behind the tables, one line each."""
    keys = ("processor", "cores", "torch")
    machines = sorted({", ".join(str(line["machine"][key]) for key in keys) for line in lines})
    commits = sorted({line["commit"] for line in lines})
    threads = sorted({line["threads"] for line in lines})
    dates = sorted(line["date"] for line in lines)
    return (
        f"Processor, cores, torch: {'; '.join(machines)}. Threads {threads}, commits {', '.join(commits)}, "
        f"{dates[0]} to {dates[-1]}. Training seconds with set-up, without evaluation; medians over seeds."
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["tune", "run", "report"])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), help="default: all")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=40, help="of the block solver")
    parser.add_argument("--adam-iters", type=int, help="most epochs of Adam; default: as published")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--normalise",
        choices=["rows", "columns", "none"],
        help="for both solvers; default: rows for Adam, else the case's",
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    {"tune": tune, "run": compare, "report": report}[options.command](options)


if __name__ == "__main__":
    main()
