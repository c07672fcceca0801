"""The compiled sparse product against torch's, in turn, on graphs without and with order.

    python benchmarks/spmm.py run [--cases random arxiv grid] [--widths 16 64 128 256] [--threads 1 2] [--rounds 15]
    python benchmarks/spmm.py report               the tables, from results/spmm.jsonl

``random`` has 200,000 nodes and 4 million non-zeros anywhere, ``small`` 20,000 and 200,000; ``arxiv`` needs
ogbn_arxiv.npz in the folder that GFGNN_DATA names; ``grid`` is a map of 450 x 450 cells with 8 neighbours each. The
latest line of a case, width and number of threads counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import HERE, append, commit, machine, read
from torch import Tensor

import gfgnn
from gfgnn.graph.operators import Operator, build_operator
from gfgnn.ops import native
from gfgnn.ops.memory import keep_freed_memory
from gfgnn.ops.spmm import csr, spmm

RESULTS = HERE / "results" / "spmm.jsonl"
WIDTHS, THREADS = (16, 64, 128, 256), (1, 2)
#: what is timed: name -> product of the matrix with 32-bit indices, that with 64-bit ones, x and x in bfloat16
TIMED: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Any]] = {
    "torch": lambda a, a64, x, x16: a @ x,
    "native": lambda a, a64, x, x16: spmm(a, x),
    "torch int64": lambda a, a64, x, x16: a64 @ x,
    "native int64": lambda a, a64, x, x16: spmm(a64, x),
    "native bfloat16": lambda a, a64, x, x16: spmm(a, x16),
    "copy": lambda a, a64, x, x16: x.clone(),
}


def random_matrix(nodes: int, nonzeros: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(nodes, (2, nonzeros), generator=generator)
    return csr(row, col, torch.rand(nonzeros, generator=generator), (nodes, nodes))


def of_graph(graph: gfgnn.Graph) -> Tensor:
    return build_operator(graph, Operator()).to(torch.float32, "cpu").matrix


CASES: dict[str, Callable[[], Tensor]] = {
    "small": lambda: random_matrix(20_000, 200_000),
    "random": lambda: random_matrix(200_000, 4_000_000),
    "arxiv": lambda: of_graph(gfgnn.load("ogbn_arxiv")),
    "grid": lambda: of_graph(gfgnn.data.grid_graph(450, 450)),
}


def measure(case: str, matrix: Tensor, width: int, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds of every product in every round, the products in turn."""
    torch.set_num_threads(threads)
    wide = torch.sparse_csr_tensor(
        matrix.crow_indices().long(), matrix.col_indices().long(), matrix.values(), matrix.shape
    )
    x = torch.randn(matrix.size(1), width, generator=torch.Generator().manual_seed(0))
    given = (matrix, wide, x, x.bfloat16())
    torch.testing.assert_close(spmm(matrix, x), matrix @ x)
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    for _ in range(rounds):
        for name, function in TIMED.items():
            started = time.perf_counter()
            function(*given)
            seconds[name].append(time.perf_counter() - started)
    return {
        "case": case, "width": width, "threads": threads, "nodes": matrix.size(0),
        "nonzeros": matrix.values().numel(), "product": native.describe(), "seconds": seconds,
    }  # fmt: skip


def run(cases: list[str], widths: list[int], threads: list[int], rounds: int, results: Path) -> None:
    keep_freed_memory()  # as training does
    for case in cases:
        matrix = CASES[case]()
        for width in widths:
            for count in threads:
                load = round(os.getloadavg()[0], 2)
                line = measure(case, matrix, width, count, rounds)
                about = {"date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(), "machine": machine()}
                append(results, {**line, **about, "load_before": load})
                print(row(line), flush=True)


def row(line: dict[str, Any]) -> str:
    """One row of the table: medians, and medians of ratios within rounds."""
    seconds = line["seconds"]

    def ratio(above: str, below: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))

    # What must at least pass through the core: one row of x for a non-zero, its value and index, and the result.
    moved = line["nonzeros"] * (4 * line["width"] + 8) + 4 * line["nodes"] * line["width"]
    copied = 8 * line["nodes"] * line["width"]
    share = ratio("copy", "native") * moved / copied
    cells = [
        line["case"], line["width"], line["threads"],
        *[f"{1000 * statistics.median(seconds[name]):.1f}" for name in ("torch", "native")],
        f"{ratio('torch', 'native'):.2f}", f"{ratio('torch int64', 'native int64'):.2f}",
        f"{ratio('torch', 'native bfloat16'):.2f}", f"{share:.2f}",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def report(results: Path) -> None:
    latest = {(line["case"], line["width"], line["threads"]): line for line in read(results)}
    print(
        "| graph | width | threads | torch, ms | ours, ms | torch / ours | with int64 | ours in bfloat16 "
        "| of copying's bytes/s |\n|---|---|---|---|---|---|---|---|---|"
    )
    order = list(CASES)
    for key in sorted(latest, key=lambda key: (key[2], order.index(key[0]), key[1])):
        print(row(latest[key]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    running.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    running.add_argument("--threads", nargs="+", type=int, default=list(THREADS))
    running.add_argument("--rounds", type=int, default=15)
    commands.add_parser("report")
    given = parser.parse_args(arguments)
    if given.command == "run":
        run(given.cases, given.widths, given.threads, given.rounds, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
