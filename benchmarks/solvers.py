"""The solvers without backpropagation side by side: the same data, networks and grids.

    python benchmarks/solvers.py run [--cases ...] [--seeds 3]
    python benchmarks/solvers.py report                       the table, from results/solvers.jsonl

MLPs of 2 and of 10 layers of 100 neurons on X, S X, ..., S^4 X (family sign), which all of them can train, on one
device and, but for pdadmm-g, on 2 parts x 2 stages of threads. Row-normalised features, as in the authors' program;
PubMed's public split, of Amazon Photo 20 training nodes a class and 30 for validation, drawn for each seed. Needs
pubmed.npz and amazon_photo.npz in the folder that GFGNN_DATA names. One thread a rank.

What a layer holds is measured: the tensors that are alive between iterations, with two more layers and without them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import HERE, append, percent, read, run

import gfgnn

RESULTS = HERE / "results" / "solvers.jsonl"
DATA, LAYERS, GRIDS = ("pubmed", "amazon_photo"), (2, 10), ((1, 1), (2, 2))
NEURONS, HOPS = 100, 4
SOLVERS = ("target", "admm", "pdadmm-g")
Line = dict[str, Any]


def settings(solver: str, layers: int, iters: int | None) -> gfgnn.TrainConfig:
    """Of each solver, those of its own benchmark."""
    if solver == "target":
        return gfgnn.TrainConfig(iters=iters, threads=1)
    if solver == "admm":
        deep = gfgnn.AdmmConfig(nu=0.1, rho=0.1, over_relaxation=1.8)
        return gfgnn.TrainConfig(
            solver="admm", iters=iters or (60 if layers == 2 else 100), threads=1,
            admm=gfgnn.AdmmConfig() if layers == 2 else deep,
        )  # fmt: skip
    grow = "2,5@200,10@210" if layers == 10 and iters is None else None
    return gfgnn.TrainConfig(
        solver="pdadmm-g", iters=iters or (200 if layers == 2 else 310), threads=1,
        pdadmm=gfgnn.PdadmmConfig(nu=1e-3, rho=1e-3, raise_penalties=True, grow=grow),
    )  # fmt: skip


def network(layers: int) -> gfgnn.ModelConfig:
    return gfgnn.ModelConfig(family="sign", layers=HOPS, hidden=NEURONS, mlp_layers=layers)


def load(name: str, seed: int) -> gfgnn.Graph:
    split = "per_class=20,val_per_class=30" if name == "amazon_photo" else None
    return gfgnn.load(name, normalise="rows", split=split, split_seed=seed if split else 0)


def train_all(data: list[str], seeds: int, iters: int | None, results: Path) -> None:
    for name in data:
        for seed in range(seeds):
            graph = load(name, seed)
            for layers in LAYERS:
                for solver in SOLVERS:
                    for parts, stages in GRIDS if solver != "pdadmm-g" else GRIDS[:1]:
                        config = replace(
                            settings(solver, layers, iters), seed=seed, parts=parts, stages=stages,
                            backend="thread",
                        )  # fmt: skip
                        about = {"case": f"{name}-{layers}", "label": solver}
                        run(results, network(layers), graph, config, columns=("iteration", "test"), **about)
        for solver in SOLVERS:
            found, nodes = held_by_a_layer(solver, load(name, 0))
            append(results, {"case": name, "label": f"{solver} memory", "nodes": nodes, "bytes": found})


def held_by_a_layer(solver: str, graph: gfgnn.Graph) -> tuple[float, int]:
    """Bytes that a hidden layer more keeps alive between iterations, and how many nodes the graph has."""
    held: list[int] = []
    for layers in (4, 6):
        config = settings(solver, layers, 3)
        gfgnn.train(network(layers), graph, config, on_iteration=lambda _: held.append(alive()))
    return (held[-1] - held[2]) / 2, graph.num_nodes


def alive() -> int:
    """Bytes of all tensors that Python knows, each storage once; those without memory of their own hold nothing."""
    storages: dict[int, int] = {}
    for t in gc.get_objects():
        if type(t) is torch.Tensor and t.layout == torch.strided:
            with suppress(RuntimeError):
                storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(storages.values())


def sent(line: Line) -> float:
    """Bytes that the ranks together sent in an iteration, evaluation and set-up aside."""
    books = [rank["traffic"] for rank in line["ranks"]]
    total = sum(b["bytes"] for book in books for name, b in book.items() if name not in ("setup", "evaluate"))
    return total / line["iterations"]


def report(results: Path) -> None:
    """Means and standard deviations over seeds; iterations and seconds are medians."""
    lines = read(results)
    memory = {(line["case"], line["label"]): line for line in lines if line["label"].endswith("memory")}
    latest = {
        (line["case"], line["label"], line["parts"], line["seed"]): line
        for line in lines
        if not line["label"].endswith("memory")
    }
    print(
        "| data, layers | solver | grid | seeds | test at best validation | last test | best at | ms/iteration | "
        "seconds to best | MB sent an iteration | numbers a hidden layer holds |"
    )
    print("|" + "---|" * 11)
    for case in sorted({key[0] for key in latest}, key=lambda c: (c.split("-")[0], int(c.split("-")[1]))):
        for solver in SOLVERS:
            for parts, _ in GRIDS:
                chosen = [line for key, line in latest.items() if key[:3] == (case, solver, parts)]
                if chosen:
                    print(row(chosen, memory.get((case.split("-")[0], f"{solver} memory"))))


def row(lines: list[Line], memory: Line | None) -> str:
    best, last = (percent([line[key] for line in lines]) for key in ("test_accuracy", "last_test_accuracy"))
    at, each, to_best = (
        statistics.median(line[key] for line in lines)
        for key in ("best_iteration", "seconds_per_iteration", "seconds_to_best")
    )
    one = lines[0]
    traffic = f"{sent(one) / 1e6:.2f}" if one["ranks"] else "0"
    held = "" if memory is None else f"{memory['bytes'] / 4 / memory['nodes'] / NEURONS:.2f} N d"
    return (
        f"| {one['case']} | {one['label']} | {one['parts']} x {one['stages']} | {len(lines)} | "
        f"{best} | {last} | {at:g} | {1000 * each:.1f} | {to_best:.2f} | {traffic} | {held} |"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--cases", nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iters", type=int, help="of all solvers")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        train_all(given.cases, given.seeds, given.iters, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
