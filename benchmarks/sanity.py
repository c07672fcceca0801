"""Whether each baseline reproduces what is published of it, before it is used as an opponent.

    python benchmarks/sanity.py run [--only "gcn-2;sgc-2"] [--seeds 3]
    python benchmarks/sanity.py memory
    python benchmarks/sanity.py report

Cora with Planetoid's split and row-normalised features from ``$GFGNN_DATA``, one thread. Every run is one line of
``results/sanity.jsonl``: the test accuracy of the epoch that was best on validation, and the last one. ``report``
prints the table with the published figures beside it. ``memory`` trains RevGNN with 8 and 64 layers in processes of
their own and notes their peaks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common

import gfgnn
from gfgnn.baseline import adam_tuned, cluster, feedback, propagation, revgnn, saint
from gfgnn.bench.outcome import Budget, Contender
from gfgnn.config import ModelConfig

RESULTS = common.HERE / "results" / "sanity.jsonl"


@dataclass(frozen=True)
class Case:
    """A baseline, a network and what is published of them.

    Attributes:
        published: test accuracy in percent; None where nothing is published on this data.
        of_last: whether the published figure is that of the last epoch; else the best one on validation is taken.
        source: of the figure, or why there is none and what was taken in its place.
    """

    run: Contender
    model: ModelConfig
    published: float | None
    source: str
    of_last: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def _model(family: str, layers: int, hidden: int, **about: Any) -> ModelConfig:
    return ModelConfig(family=family, layers=layers, hidden=hidden, **about)


CASES = {
    "gcn-2": Case(
        adam_tuned.run, _model("gcn", 2, 16), 81.5, "Kipf and Welling 2017, table 2; hidden 16", of_last=True
    ),
    "gcnii-64": Case(
        adam_tuned.run,
        _model("gcnii", 64, 64),
        85.5,
        "Chen et al. 2020, table 2; of the lowest validation loss",
    ),
    "sgc-2": Case(
        adam_tuned.run,
        _model("sgc", 2, 16),
        81.0,
        "Wu et al. 2019, table 2; decay tuned on validation",
        of_last=True,
        settings={"search": 0.5},
    ),
    "sage-2": Case(
        adam_tuned.run, _model("sage", 2, 16), None, "Hamilton et al. 2017 have no Cora; GCN's .815 is near"
    ),
    "revgnn-4": Case(
        revgnn.run, _model("gcn", 4, 64), None, "Li et al. 2021 have OGB's data only, with their features"
    ),
    "cluster-gcn-2": Case(
        cluster.run,
        _model("gcn", 2, 16),
        81.5,
        "none on Cora (Chiang et al. 2019: PPI, Reddit, Amazon); GCN's",
    ),
    "graphsaint-2": Case(
        saint.run, _model("gcn", 2, 16), 81.5, "none on Cora, its authors say (GraphSAINT issue 12); GCN's"
    ),
    "label-propagation": Case(
        propagation.run,
        _model("gcn", 2, 16),
        68.0,
        "Yang et al. 2016, LP as cited by Kipf and Welling 2017, table 2",
    ),
    "correct-and-smooth": Case(
        propagation.run_smoothed,
        _model("gcn", 2, 64),
        None,
        "Huang et al. 2021 have Cora with 60% of labels only",
    ),
    "dfa-2": Case(
        feedback.run,
        _model("gcn", 2, 64),
        None,
        "Zhao et al. 2024 have Cora with another split and more than DFA",
    ),
    "dfa-2, pseudo errors": Case(
        feedback.run, _model("gcn", 2, 64), None, "the same, with spread 0.9", settings={"spread": 0.9}
    ),
}
SEEDS = {"gcnii-64": 2}  #: where a run takes minutes


def run(names: list[str], seeds: int) -> None:
    graph = gfgnn.load("cora", normalise="rows")
    for name in names:
        case = CASES[name]
        for seed in range(min(seeds, SEEDS.get(name, seeds))):
            load = os.getloadavg()[0]
            outcome = case.run(graph, case.model, budget=Budget(), seed=seed, threads=1, **case.settings)
            best, last = outcome.best, outcome.last
            line = {
                "case": name, "seed": seed, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": common.commit(),
                "machine": common.machine(), "load_before": round(load, 2), **outcome.to_dict(),
            }  # fmt: skip
            line["history"] = [
                [round(value, 4) if isinstance(value, float) else value for value in record.values()]
                for record in outcome.history
            ]
            line["columns"] = list(outcome.history[0])
            line |= {"best": best, "last": last}
            common.append(RESULTS, line)
            if best is not None and last is not None:
                print(
                    f"{name} seed {seed}: val {best['val']:.4f} test {best['test']:.4f} at {best['iteration']} of "
                    f"{last['iteration']}, last {last['test']:.4f}; {last['seconds']:.1f} s", flush=True,
                )  # fmt: skip


def memory() -> None:
    """Peaks of RevGNN on a graph of 20,000 nodes, hidden 64, reversible, by depth."""
    for layers in (8, 64):
        code = f"import sanity; sanity.peak({layers})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def peak(layers: int) -> None:
    graph = gfgnn.load("synthetic:nodes=20000,classes=8,degree=10")
    outcome = revgnn.run(
        graph, _model("gcn", layers, 64), budget=Budget(iterations=2), seed=0, threads=1, eval_every=2
    )
    line = {
        "case": "revgnn-memory", "layers": layers, "commit": common.commit(), "machine": common.machine(),
        "peak_bytes": outcome.peak_bytes[0], "step_bytes": outcome.facts["peak_bytes_before_evaluation"],
        "seconds_per_iteration": outcome.seconds_per_iteration, "status": outcome.status,
    }  # fmt: skip
    common.append(RESULTS, line)
    print(
        f"{layers} layers: {line['peak_bytes'] / 2**20:.0f} MB, {outcome.seconds_per_iteration:.2f} s a step"
    )


def report() -> None:
    """The table of docs/baselines.md, from the latest run of every case and seed."""
    lines = {(line["case"], line["seed"]): line for line in common.read(RESULTS) if "seed" in line}
    print("| case | seeds | published | here | last epoch | best at | seconds | published by |")
    print("|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        found = [line for (of, _), line in lines.items() if of == name and line["status"] == "done"]
        if not found:
            continue
        best, last = ([line[which]["test"] for line in found] for which in ("best", "last"))
        chosen = [f"**{common.percent(best)}**", common.percent(last)]
        if case.of_last:
            chosen = [common.percent(best), f"**{common.percent(last)}**"]
        at = statistics.median(line["best"]["iteration"] for line in found)
        seconds = statistics.median(line["last"]["seconds"] for line in found)
        published = "-" if case.published is None else f"{case.published:.1f}"
        print(
            f"| {name} | {len(found)} | {published} | {' | '.join(chosen)} | {at:g} | {seconds:.1f} | {case.source} |"
        )
    for line in common.read(RESULTS):
        if line["case"] == "revgnn-memory":
            print(f"\nRevGNN, {line['layers']} layers: {line['peak_bytes'] / 2**20:.0f} MB at most")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "memory", "report"))
    parser.add_argument("--only", default=";".join(CASES), help="cases, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.only.split(";"), arguments.seeds)
    elif arguments.command == "memory":
        memory()
    else:
        report()


if __name__ == "__main__":
    main()
