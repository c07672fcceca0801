"""ADMM against the block solver on the same networks, and its curve by depth.

    python benchmarks/admm.py run [--cases ...] [--seeds 5]    both solvers, seed by seed, in turn
    python benchmarks/admm.py report                           the tables, from results/admm.jsonl

Needs cora.npz and pubmed.npz in the folder that GFGNN_DATA names; citeseer is shipped. Features as they are, one
thread.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path

from common import HERE, percent, read, run

import gfgnn

RESULTS = HERE / "results" / "admm.jsonl"
#: passes more of a shift from layer to layer
DEEP = gfgnn.AdmmConfig(nu=0.1, rho=0.1, over_relaxation=1.8)
#: the same without over-relaxation, which not all sweeps and penalties allow
LOOSE = gfgnn.AdmmConfig(nu=0.1, rho=0.1)
#: the block solver inside stages, ADMM between them
COUPLED = gfgnn.AdmmConfig(inside="target", nu=1.0, rho=0.3)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network and how ADMM trains it; ``alone``: the block solver is not run beside it."""

    data: str = "cora"
    family: str = "gcn"
    layers: int
    iters: int = 60
    settings: gfgnn.AdmmConfig = field(default_factory=gfgnn.AdmmConfig)
    stages: int = 1
    staleness: int = 0
    alone: bool = False


CASES = {
    "cora-2": Case(layers=2),
    "citeseer-2": Case(data="citeseer", layers=2),
    "pubmed-2": Case(data="pubmed", layers=2),
    "cora-2, balanced": Case(layers=2, settings=gfgnn.AdmmConfig(penalties="balanced"), alone=True),
    "cora-2, convergent": Case(layers=2, settings=gfgnn.AdmmConfig(penalties="convergent"), alone=True),
    "cora-2, backward-forward": Case(
        layers=2, settings=gfgnn.AdmmConfig(sweep="backward-forward"), alone=True
    ),
    "cora-2, 2 stages at once": Case(layers=2, stages=2, staleness=1, alone=True),
    "cora-4": Case(layers=4, iters=100, settings=DEEP),
    "cora-4, 4 stages at once": Case(layers=4, iters=200, settings=DEEP, stages=4, staleness=1, alone=True),
    "cora-8": Case(layers=8, iters=400, settings=DEEP),
    "cora-8, balanced": Case(layers=8, iters=400, settings=replace(LOOSE, penalties="balanced"), alone=True),
    "cora-8, convergent": Case(
        layers=8, iters=400, settings=replace(LOOSE, penalties="convergent"), alone=True
    ),
    "cora-8, backward-forward": Case(
        layers=8, iters=200, settings=replace(LOOSE, sweep="backward-forward"), alone=True
    ),
    "cora-16": Case(layers=16, iters=400, settings=DEEP),
    "cora-8, 2 stages": Case(layers=8, settings=COUPLED, stages=2),
    "cora-8, 4 stages": Case(layers=8, settings=COUPLED, stages=4),
    "cora-gcnii-8, 2 stages": Case(family="gcnii", layers=8, settings=COUPLED, stages=2),
    "cora-gcnii-16, 2 stages": Case(family="gcnii", layers=16, settings=COUPLED, stages=2),
    "cora-gcnii-16, 4 stages": Case(family="gcnii", layers=16, settings=COUPLED, stages=4),
}
COLUMNS = ("iteration", "seconds", "train", "val", "test")


def train_all(names: list[str], seeds: int, iters: int | None, results: Path) -> None:
    for name in names:
        case = CASES[name]
        graph = gfgnn.load(case.data)
        model = gfgnn.ModelConfig(family=case.family, layers=case.layers, hidden=64)
        for seed in range(seeds):
            admm = gfgnn.TrainConfig(
                solver="admm", iters=iters or case.iters, admm=case.settings, stages=case.stages,
                staleness=case.staleness, backend="thread", seed=seed, threads=1,
            )  # fmt: skip
            target = gfgnn.TrainConfig(iters=iters, seed=seed, threads=1)
            beside = {} if case.alone else {"target": target}
            for label, config in {"admm": admm, **beside}.items():
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
