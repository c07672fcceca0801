"""ADMM against the block solver on the same networks, and its curve by depth.

    python benchmarks/admm.py run [--cases ...] [--seeds 5]    both solvers, seed by seed, in turn
    python benchmarks/admm.py report                           the tables, from results/admm.jsonl

Needs cora.npz and pubmed.npz in the folder that GFGNN_DATA names; citeseer is shipped. Features as they are, one
thread.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from common import HERE, percent, read, run

import gfgnn

RESULTS = HERE / "results" / "admm.jsonl"
#: passes more of a shift from layer to layer
DEEP = gfgnn.AdmmConfig(nu=0.1, rho=0.1, over_relaxation=1.8)
#: the block solver inside stages, ADMM between them
COUPLED = gfgnn.AdmmConfig(inside="target", nu=1.0, rho=0.3)
#: case -> (data, family, layers, iterations of ADMM, its settings, stages)
CASES: dict[str, tuple[str, str, int, int, gfgnn.AdmmConfig, int]] = {
    "cora-2": ("cora", "gcn", 2, 60, gfgnn.AdmmConfig(), 1),
    "citeseer-2": ("citeseer", "gcn", 2, 60, gfgnn.AdmmConfig(), 1),
    "pubmed-2": ("pubmed", "gcn", 2, 60, gfgnn.AdmmConfig(), 1),
    "cora-4": ("cora", "gcn", 4, 100, DEEP, 1),
    "cora-8": ("cora", "gcn", 8, 400, DEEP, 1),
    "cora-16": ("cora", "gcn", 16, 400, DEEP, 1),
    "cora-8, 2 stages": ("cora", "gcn", 8, 60, COUPLED, 2),
    "cora-8, 4 stages": ("cora", "gcn", 8, 60, COUPLED, 4),
    "cora-gcnii-8, 2 stages": ("cora", "gcnii", 8, 60, COUPLED, 2),
    "cora-gcnii-16, 2 stages": ("cora", "gcnii", 16, 60, COUPLED, 2),
    "cora-gcnii-16, 4 stages": ("cora", "gcnii", 16, 60, COUPLED, 4),
}
COLUMNS = ("iteration", "seconds", "train", "val", "test")


def train_all(names: list[str], seeds: int, iters: int | None, results: Path) -> None:
    for name in names:
        data, family, layers, most, settings, stages = CASES[name]
        graph = gfgnn.load(data)
        model = gfgnn.ModelConfig(family=family, layers=layers, hidden=64)
        for seed in range(seeds):
            common: dict[str, Any] = {"seed": seed, "threads": 1}
            for label, config in {
                "admm": gfgnn.TrainConfig(
                    solver="admm",
                    iters=iters or most,
                    admm=settings,
                    stages=stages,
                    backend="thread",
                    **common,
                ),
                "target": gfgnn.TrainConfig(iters=iters, **common),
            }.items():
                run(results, model, graph, config, columns=COLUMNS, case=name, label=label)


def report(results: Path) -> None:
    """Means and standard deviations over seeds; iterations and seconds are medians."""
    latest = {(line["case"], line["label"], line["seed"]): line for line in read(results)}
    print(
        "| case | solver | seeds | test at best validation | last test | best at | seconds to best | ms/iteration |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for label in ("admm", "target"):
            lines = [line for (c, s, _), line in latest.items() if (c, s) == (case, label)]
            if not lines:
                continue
            best, last = (
                percent([line[key] for line in lines]) for key in ("test_accuracy", "last_test_accuracy")
            )
            at, to_best, each = (
                statistics.median(line[key] for line in lines)
                for key in ("best_iteration", "seconds_to_best", "seconds_per_iteration")
            )
            print(
                f"| {case} | {label} | {len(lines)} | {best} | {last} | {at:g} | {to_best:.2f} | {1000 * each:.1f} |"
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iters", type=int, help="of both solvers")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        train_all(given.cases, given.seeds, given.iters, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
