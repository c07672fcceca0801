"""Grids of ranks: what asynchronous stages do to accuracy, and how much faster two ranks are than one.

    python benchmarks/grid.py stages [--cases cora-16 cora-64] [--seeds 5]   accuracy of 1 to 8 stages
    python benchmarks/grid.py speed [--rounds 5] [--timeline FILE.png]       one rank, two parts, two stages
    python benchmarks/grid.py report                                         the tables, from results/grid.jsonl

Needs cora.npz and ogbn_arxiv.npz in the folder that GFGNN_DATA names. Speed compares runs of one thread a rank, taken
in turn; two ranks need two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import HERE, read, run

import gfgnn
from gfgnn.timeline import draw_timeline

RESULTS = HERE / "results" / "grid.jsonl"
ITERS = 60

#: name -> (data, load options, family, layers, stages)
STAGES: dict[str, tuple[str, dict[str, Any], str, int, tuple[int, ...]]] = {
    "cora-16": ("cora", {}, "gcnii", 16, (1, 2, 4, 8)),
    "cora-64": ("cora", {}, "gcnii", 64, (1, 8)),
    "cora-gcn-4": ("cora", {}, "gcn", 4, (1, 2, 4)),
    "arxiv-2014-5": (
        "ogbn_arxiv",
        {"features": "structure", "symmetrise": True, "max_year": 2014, "split": "train=0.6,val=0.2"},
        "gcn", 5, (1, 2, 4),
    ),
}  # fmt: skip
#: name -> what differs from one rank
GRIDS: dict[str, dict[str, int]] = {
    "1 rank": {},
    "2 parts": {"parts": 2},
    "2 stages, staleness 1": {"stages": 2, "staleness": 1},
}


def stages(names: list[str], seeds: int) -> None:
    """Ranks are threads: what they compute and send is the same, and they start at once."""
    for name in names:
        data, options, family, layers, counts = STAGES[name]
        graph = gfgnn.load(data, **options)
        model = gfgnn.ModelConfig(family=family, layers=layers, hidden=64)
        for seed in range(seeds):
            for count in counts:
                config = gfgnn.TrainConfig(
                    iters=ITERS,
                    seed=seed,
                    threads=1,
                    stages=count,
                    staleness=int(count > 1),
                    backend="thread",
                )
                run(RESULTS, model, graph, config, case=name, label=f"{count} stages")


def speed(rounds: int, layers: int, timeline: Path | None) -> None:
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True)
    model = gfgnn.ModelConfig(family="gcn", layers=layers, hidden=128)
    config = gfgnn.TrainConfig(iters=9, threads=1, eval_every=1000)
    for number in range(rounds):
        for label, grid in GRIDS.items():
            run(
                RESULTS, model, graph, replace(config, **grid), columns=("iteration", "seconds"),
                case=f"speed-{layers}", label=label, round=number,
            )  # fmt: skip
    if timeline is not None:
        for label, grid in list(GRIDS.items())[1:]:
            result = gfgnn.train(model, graph, replace(config, timeline=True, **grid))
            path = timeline.with_stem(f"{timeline.stem}_{label.split(',')[0].replace(' ', '_')}")
            path.write_bytes(draw_timeline(result.ranks))
            print(path)


def report() -> None:
    lines = read(RESULTS)
    _report_stages([line for line in lines if line["case"] in STAGES])
    for case in sorted({line["case"] for line in lines if line["case"].startswith("speed")}):
        _report_speed(case, [line for line in lines if line["case"] == case])


def _report_stages(lines: list[dict[str, Any]]) -> None:
    print("| case | stages | seeds | test at best validation | last test | best at iteration |")
    print("|---|---|---|---|---|---|")
    for case in STAGES:
        runs: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        for line in lines:
            if line["case"] == case:
                runs[line["stages"]][line["seed"]] = line  # the latest run of a seed counts
        for count, by_seed in sorted(runs.items()):
            best, last = (
                _mean_sd([line[key] for line in by_seed.values()])
                for key in ("test_accuracy", "last_test_accuracy")
            )
            at = statistics.median(line["best_iteration"] for line in by_seed.values())
            print(f"| {case} | {count} | {len(by_seed)} | {best} | {last} | {at:g} |")
    print()


def _report_speed(case: str, lines: list[dict[str, Any]]) -> None:
    """Ratios within each round; where the rest goes is told by the ranks' own books."""
    rounds: dict[tuple[str, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        rounds[line["commit"], line["round"]][line["label"]] = line
    complete = [r for r in rounds.values() if set(r) == set(GRIDS)]
    print(f"{case}: {len(complete)} rounds, one thread a rank, commits {sorted({c for c, _ in rounds})}\n")
    print(
        "| grid | s/iteration, median | times as fast as 1 rank, median (range) | waiting s/iteration, per rank |"
    )
    print("|---|---|---|---|")
    for label in GRIDS:
        seconds = [r[label]["seconds_per_iteration"] for r in complete]
        ratios = [r["1 rank"]["seconds_per_iteration"] / r[label]["seconds_per_iteration"] for r in complete]
        waits = "; ".join(_waits(rank, complete[-1][label]) for rank in complete[-1][label]["ranks"])
        print(
            f"| {label} | {statistics.median(seconds):.3f} | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {waits} |"
        )
    print()


def _waits(rank: dict[str, Any], line: dict[str, Any]) -> str:
    books = {p: b["seconds"] / line["iterations"] for p, b in rank["traffic"].items()}
    told = ", ".join(f"{p} {books[p]:.3f}" for p in ("halo", "stage", "gram", "control") if books[p] > 5e-4)
    return f"rank {rank['rank']}: {told or 'none'}"


def _mean_sd(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} ± {spread:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    accuracy = commands.add_parser("stages")
    accuracy.add_argument("--cases", nargs="+", choices=STAGES, default=list(STAGES))
    accuracy.add_argument("--seeds", type=int, default=5)
    fast = commands.add_parser("speed")
    fast.add_argument("--rounds", type=int, default=5)
    fast.add_argument("--layers", type=int, default=4)
    fast.add_argument("--timeline", type=Path)
    commands.add_parser("report")
    given = parser.parse_args()
    if given.command == "stages":
        stages(given.cases, given.seeds)
    elif given.command == "speed":
        speed(given.rounds, given.layers, given.timeline)
    else:
        report()


if __name__ == "__main__":
    main()
