"""One iteration of the block solver against one Adam epoch of PyG's GCN of the same shape, time and peak memory.

    python benchmarks/iteration.py time [--threads 2] [--rounds 15]     in turn, in one process; ratios of each round
    python benchmarks/iteration.py memory [--threads 2]                 peak of a process for each
    python benchmarks/iteration.py floor [--threads 2]                  counted work at the machine's ceilings
    python benchmarks/iteration.py report                               the tables, from results/iteration.jsonl

ogbn_arxiv, symmetrised, structure features, 3 layers, hidden 128. PyG's GCNConv gets the normalised adjacency as a CSR
tensor of torch, its fastest way on a CPU, is not asked to normalise again, and has no dropout. Neither evaluates. Needs
ogbn_arxiv.npz in the folder that GFGNN_DATA names.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from common import HERE, append, commit, machine, read

import gfgnn
from gfgnn.config import TargetConfig
from gfgnn.graph.operators import build_propagation
from gfgnn.model.build import build_model
from gfgnn.ops.memory import keep_freed_memory
from gfgnn.ordering import order_of
from gfgnn.plan.cost import block_costs
from gfgnn.plan.plan import sizes_of
from gfgnn.problem import prepare
from gfgnn.profiling.ceilings import measure_ceilings
from gfgnn.train import make_solver

RESULTS = HERE / "results" / "iteration.jsonl"
LAYERS, HIDDEN = 3, 128
#: settings of the block solver's line -> what it is called
WAYS = {
    "block solver": TargetConfig(),
    "block solver, bf16": TargetConfig(storage="bf16"),
    "block solver, recompute": TargetConfig(recompute=True),
    "block solver, Gram every 4": TargetConfig(gram_every=4),
}
PYG = "PyG, Adam"


def load(data: str) -> gfgnn.Graph:
    if data != "ogbn_arxiv":
        return gfgnn.load(data)
    return gfgnn.load(data, features="structure", symmetrise=True)


def ours(graph: gfgnn.Graph, target: TargetConfig, threads: int) -> Callable[[], object]:
    """A function that makes one iteration."""
    config = gfgnn.TrainConfig(iters=1000, threads=threads, target=target)
    model = build_model(gfgnn.ModelConfig(family="gcn", layers=LAYERS, hidden=HIDDEN), graph)
    problem = prepare(model, graph, order=order_of(graph, config))
    solver = make_solver(config, model)
    with torch.inference_mode():
        state = solver.init(problem, torch.Generator().manual_seed(0))

    def step() -> None:
        with torch.inference_mode():
            solver.step(problem, state)

    return step


def pyg(graph: gfgnn.Graph) -> Callable[[], object]:
    """A function that makes one epoch."""
    from torch_geometric.nn import GCN

    torch.manual_seed(0)
    network = GCN(graph.num_features, HIDDEN, LAYERS, graph.num_classes, normalize=False)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    adjacency = build_propagation(graph, "sym", self_loops=True).matrix.float()
    x, rows = graph.x, graph.labelled(graph.train_mask)
    truth = graph.y[rows]

    def epoch() -> None:
        network.train()
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x, adjacency)[rows], truth).backward()
        optimiser.step()

    return epoch


def compare(data: str, threads: int, rounds: int, results: Path) -> None:
    keep_freed_memory()
    torch.set_num_threads(threads)
    graph = load(data)
    steps = {name: ours(graph, target, threads) for name, target in WAYS.items()} | {PYG: pyg(graph)}
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    append(results, {"what": "time", "data": data, "threads": threads, "seconds": seconds} | _about())


def memory(data: str, threads: int, results: Path) -> None:
    peaks = {}
    for name in [*WAYS, PYG]:
        call = [sys.executable, __file__, "peak", "--data", data, "--threads", str(threads), "--only", name]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        peaks[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, peaks[name], flush=True)
    append(results, {"what": "memory", "data": data, "threads": threads, "peaks": peaks} | _about())


def peak(data: str, threads: int, only: str) -> None:
    """Bytes: before the first iteration, and the most that the process has held after three."""
    torch.set_num_threads(threads)
    graph = load(data)
    if only != PYG:
        keep_freed_memory()
    step = pyg(graph) if only == PYG else ours(graph, WAYS[only], threads)
    before = _held()
    for _ in range(3):
        step()
    print(json.dumps({"before": before, "peak": _held()}))


def floor(data: str, threads: int, results: Path) -> None:
    """One profiled run, the work of an iteration as :mod:`gfgnn.plan.cost` counts it, and the ceilings right after."""
    graph, step = load(data), "polar"
    model = build_model(gfgnn.ModelConfig(family="gcn", layers=LAYERS, hidden=HIDDEN), graph)
    config = gfgnn.TrainConfig(
        iters=21, eval_every=21, threads=threads, profile=True, target=TargetConfig(step=step)
    )
    result = gfgnn.train(model, graph, config)
    assert result.profile is not None
    [profile] = result.profile["ranks"]
    torch.set_num_threads(threads)
    wide = measure_ceilings(torch.float64, torch.device("cpu"))["flops_per_second"]
    work = reduce(add, block_costs(model, sizes_of(model, graph, 4), step))
    # of each kind: bytes, flops, and flops that the machine could do in a second, solves being in float64
    product = profile["flops_per_second"]
    counted = {
        "sparse product": (work.sparse_bytes + work.cached_bytes, work.sparse_flops, product),
        "dense product": (0.0, work.dense_flops, product),
        "Gram": (work.gram_bytes, work.gram_flops, product),
        "solve": (0.0, work.solve_flops, wide),
        "elementwise": (work.elementwise_bytes, 0.0, product),
        "other": (0.0, 0.0, product),
    }
    measured = {kind: profile["kinds"][kind]["seconds"] for kind in counted}
    line = {
        "what": "floor", "data": data, "threads": threads, "counted": counted, "measured": measured,
        "copy": profile["copy_bytes_per_second"], "seconds": profile["plain_seconds"],
        "sparse_once": profile["kinds"]["sparse product"]["bytes"],
    }  # fmt: skip
    append(results, line | _about())
    show_floor(line)


def show_floor(line: dict[str, Any]) -> None:
    """By kind: counted work, what it would take at the ceilings (the longer of moving and computing), what it took."""
    print("| kind | MB | GFLOP | at the ceilings, ms | measured, ms | ratio |")
    print("|---|---|---|---|---|---|")
    total = 0.0
    for kind, (moved, flops, rate) in line["counted"].items():
        least, taken = max(moved / line["copy"], flops / rate), line["measured"][kind]
        total += least
        ratio = f"{taken / least:.2f}" if least else ""
        print(
            f"| {kind} | {moved / 1e6:.0f} | {flops / 1e9:.2f} | {least * 1e3:.1f} | {taken * 1e3:.1f} | {ratio} |"
        )
    seconds = line["seconds"]
    print(f"| iteration | | | {total * 1e3:.1f} | {seconds * 1e3:.1f} | {seconds / total:.2f} |")
    gathered, _, product = line["counted"]["sparse product"]
    _, _, wide = line["counted"]["solve"]
    print(
        f"\n{line['threads']} thread(s); ceilings: copying {line['copy'] / 1e9:.1f} GB/s, products "
        f"{product / 1e9:.1f} GFLOP/s in float32, {wide / 1e9:.1f} in float64."
    )
    once = total - (gathered - line["sparse_once"]) / line["copy"]
    print(
        f"Sparse products gather a row for each non-zero; were each row read once, they would move "
        f"{line['sparse_once'] / 1e6:.0f} MB, and an iteration take {once * 1e3:.1f} ms (ratio {seconds / once:.2f})."
    )


def _held() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _about() -> dict[str, object]:
    return {"date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(), "machine": machine()}


def report(results: Path) -> None:
    """The latest times of each number of threads, the latest peaks, the latest floors."""
    lines = read(results)
    print("| | threads | ms, median | of PyG's, median (quartiles) | peak MB |")
    print("|---|---|---|---|---|")
    peaks = {(line["data"], line["threads"]): line["peaks"] for line in lines if line["what"] == "memory"}
    for (data, threads), line in {
        (line["data"], line["threads"]): line for line in lines if line["what"] == "time"
    }.items():
        for name, seconds in line["seconds"].items():
            ratios = [ours / theirs for ours, theirs in zip(seconds, line["seconds"][PYG], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            held = peaks.get((data, threads), {}).get(name)
            shown = "" if held is None else f"{held['peak'] / 1e6:.0f}"
            median = 1000 * statistics.median(seconds)
            print(f"| {name} | {threads} | {median:.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {shown} |")
    for line in {(line["data"], line["threads"]): line for line in lines if line["what"] == "floor"}.values():
        print()
        show_floor(line)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("time", "memory", "peak", "floor", "report"))
    parser.add_argument("--data", default="ogbn_arxiv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default=PYG, choices=[*WAYS, PYG])
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "time":
        compare(given.data, given.threads, given.rounds, given.results)
    elif given.command == "memory":
        memory(given.data, given.threads, given.results)
    elif given.command == "floor":
        floor(given.data, given.threads, given.results)
    elif given.command == "peak":
        peak(given.data, given.threads, given.only)
    report(given.results) if given.command in ("time", "report") else None


if __name__ == "__main__":
    main()
