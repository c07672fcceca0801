"""Two ranks against one: the block solver, and backprop spread over ranks in each of the usual ways.

    python benchmarks/distributed.py run [--cases pubmed arxiv] [--only NAME ...] [--rounds 3]
    python benchmarks/distributed.py report                          the tables, from results/distributed.jsonl

Every contender runs on one rank and on two, of one thread each, in turns; what counts are the ratios within a round, as
other work on the machine makes seconds differ between rounds. Two ranks need two cores. Needs pubmed.npz and
ogbn_arxiv.npz in the folder that GFGNN_DATA names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from common import HERE, append, commit, machine, read

import gfgnn
from gfgnn.baseline import parallel, pipeline, subnets
from gfgnn.baseline.ranks import STEP_PURPOSES
from gfgnn.bench.outcome import Budget, Outcome

RESULTS = HERE / "results" / "distributed.jsonl"

#: name -> data, load options, network, iterations, iterations between evaluations, test accuracy to reach
CASES: dict[str, tuple[str, dict[str, Any], gfgnn.ModelConfig, int, int, float]] = {
    "pubmed": ("pubmed", {}, gfgnn.ModelConfig(family="gcnii", layers=16, hidden=64), 20, 1, 0.74),
    "arxiv": (
        "ogbn_arxiv", {"features": "structure", "symmetrise": True},
        gfgnn.ModelConfig(family="gcn", layers=5, hidden=128), 10, 5, 0.4,
    ),
}  # fmt: skip


def ours(
    graph: gfgnn.Graph,
    model: gfgnn.ModelConfig,
    *,
    budget: Budget,
    seed: int,
    threads: int,
    eval_every: int,
    **grid: int,
) -> Outcome:
    """The block solver on a grid."""
    config = gfgnn.TrainConfig(
        iters=budget.iterations, seed=seed, threads=threads, eval_every=eval_every, patience=10**6, **grid
    )
    result = gfgnn.train(model, graph, config)
    waited = [sum(rank["traffic"][p]["seconds"] for p in STEP_PURPOSES) for rank in result.ranks]
    sent = {
        p: sum(rank["traffic"][p]["bytes"] for rank in result.ranks) / result.iterations
        for p in STEP_PURPOSES
    }
    return Outcome(
        contender="ours",
        history=[{k: line[k] for k in ("iteration", "seconds", "val", "test")} for line in result.history],
        seconds_per_iteration=max(
            [r["median_seconds"] for r in result.ranks], default=result.seconds_per_iteration
        ),
        peak_bytes=[r["peak_rss_bytes"] for r in result.ranks] or [result.peak_rss_bytes],
        bytes_per_iteration={p: count for p, count in sent.items() if count},
        idle_share=[w / r["step_seconds"] for w, r in zip(waited, result.ranks, strict=True)],
    )


#: name -> what is called for one rank and for two
CONTENDERS: dict[str, tuple[Callable[..., Outcome], Callable[..., Outcome]]] = {
    "ours, parts": (ours, partial(ours, parts=2)),
    "ours, stages": (ours, partial(ours, stages=2, staleness=1)),
    "adam-graph-parallel": (partial(parallel.run, ranks=1), parallel.run),
    "pipegcn": (partial(parallel.run_stale, ranks=1), parallel.run_stale),
    "pipeline-1f1b": (partial(pipeline.run_1f1b, ranks=1, micro_batches=8), pipeline.run_1f1b),
    "gpipe": (partial(pipeline.run_gpipe, ranks=1, micro_batches=8), pipeline.run_gpipe),
    "ist": (partial(subnets.run, ranks=1, local=10), partial(subnets.run, local=10)),
}


def run(cases: list[str], names: list[str], rounds: int) -> None:
    for case in cases:
        data, options, model, iters, every, accuracy = CASES[case]
        graph = gfgnn.load(data, **options)
        for number in range(rounds):
            for name in names:
                for ranks, call in enumerate(CONTENDERS[name], start=1):
                    load = os.getloadavg()[0]
                    extra = {"eval_every": 1 if name == "ist" else every}
                    if not name.startswith("ours"):  # as many iterations for all
                        extra["patience"] = 10**6
                    outcome = call(
                        graph, model, budget=Budget(iterations=iters), seed=number, threads=1, **extra
                    )
                    line = {
                        **outcome.to_dict(), "case": case, "contender": name, "ranks": ranks, "round": number,
                        "load_before": load, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(),
                        "machine": machine(), "seconds_to": outcome.seconds_to(accuracy), "accuracy": accuracy,
                    }  # fmt: skip
                    append(RESULTS, line)
                    print(
                        f"{case} {name} x {ranks}: {outcome.status} {outcome.seconds_per_iteration}",
                        flush=True,
                    )


def report() -> None:
    """A row for each contender: medians over the rounds; runs that are not done stand as what they are."""
    found: dict[tuple[str, str], dict[int, dict[int, dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for line in read(RESULTS):
        found[line["case"], line["contender"]][line["round"]][line["ranks"]] = line
    print(
        "| case | contender | rounds | ms, 1 rank | ms, 2 ranks | faster | MB sent | idle | MB a rank | test |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (case, name), rounds in found.items():
        pairs = [(pair[1], pair[2]) for pair in rounds.values() if len(pair) == 2]
        done = [pair for pair in pairs if all(line["status"] == "done" for line in pair)]
        if not done:
            states = ", ".join(sorted({line["status"] for pair in pairs for line in pair}))
            print(f"| {case} | {name} | {len(pairs)} | {states} |" + " |" * 6)
            continue
        print(f"| {case} | {name} | {len(done)} | {_row(done)} |")


def _row(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    middle = statistics.median
    one, two = (middle(1000 * pair[ranks]["seconds_per_iteration"] for pair in pairs) for ranks in range(2))
    ratios = [a["seconds_per_iteration"] / b["seconds_per_iteration"] for a, b in pairs]
    last = [b for _, b in pairs]
    sent = middle(sum(line["bytes_per_iteration"].values()) / 1e6 for line in last)
    idle = middle(statistics.mean(line["idle_share"]) for line in last)
    peak = middle(max(line["peak_bytes"]) / 1e6 for line in last)
    tests = [[h["test"] for h in line["history"] if h["test"] is not None][-1] for line in last]
    spread = f"{middle(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return (
        f"{one:.1f} | {two:.1f} | {spread} | {sent:.2f} | {idle:.0%} | {peak:.0f} | {100 * middle(tests):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--cases", nargs="+", default=["pubmed"], choices=list(CASES))
    parser.add_argument(
        "--only", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.cases, arguments.only, arguments.rounds)
    report()


if __name__ == "__main__":
    main()
