"""Orders of nodes: what they cost, and how much faster sparse products and whole iterations are in them.

    python benchmarks/order.py run [--cases arxiv grid8] [--rounds 9]     products in every order, taken in turn
    python benchmarks/order.py parts [--cases arxiv]                      few and many METIS parts, taken in turn
    python benchmarks/order.py train [--rounds 3]                         iterations with and without, taken in turn
    python benchmarks/order.py report                                     the tables, from results/order.jsonl

Needs the data sets of the cases in the folder that GFGNN_DATA names. The product is the one that training uses, on one
thread or as many as --threads says.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import HERE, append, commit, machine, read

import gfgnn
from gfgnn.data import grid_graph
from gfgnn.graph import order as orders_module
from gfgnn.graph.operators import build_propagation
from gfgnn.graph.order import Order, far_share, find_order, metis_parts, node_order, permuted, reordered
from gfgnn.graph.partition.problem import matrix_of_ones, neighbours
from gfgnn.ops.spmm import spmm

RESULTS = HERE / "results" / "order.jsonl"
WIDTHS = (64, 128)
NAMES = ("given", "random", "rcm", "metis")
PARTS = (16, 64, 256, 1024)

#: what gfgnn.load reads, or the arguments of grid_graph
CASES: dict[str, str | tuple[int, int, int]] = {
    "cora": "cora",
    "amazon_computers": "amazon_computers",
    "pubmed": "pubmed",
    "arxiv": "ogbn_arxiv",
    "communities": "synthetic:nodes=200000,classes=200,degree=22,skew=2.5,features=0",
    "grid8": (1000, 1000, 8),
    "grid4-wide": (250, 4000, 4),
}


@dataclass(frozen=True)
class Found:
    """An order, the seconds that finding it took, and those of a graph and a matrix built in it."""

    order: Order
    found: float
    built: float
    far: float
    matrix: torch.Tensor


def load(case: str) -> gfgnn.Graph:
    source = CASES[case]
    if isinstance(source, tuple):
        return grid_graph(*source[:2], neighbours=source[2])
    return gfgnn.load(source, symmetrise=True)


def find(graph: gfgnn.Graph, name: str) -> Found:
    started = time.perf_counter()
    if name == "random":
        nodes = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    elif name == "given":
        nodes = torch.arange(graph.num_nodes)
    else:
        nodes = torch.from_numpy(find_order(graph, name))
    found, started = time.perf_counter() - started, time.perf_counter()
    order = Order(nodes, name)
    other = reordered(graph, order)
    built = time.perf_counter() - started
    matrix = build_propagation(other).to(torch.float32, "cpu").matrix
    far = far_share(permuted(matrix_of_ones(*neighbours(graph)), nodes.numpy()))
    return Found(order, found, built, far, matrix)


def run(cases: list[str], rounds: int, threads: int, results: Path) -> None:
    torch.set_num_threads(threads)
    for case in cases:
        graph = load(case)
        started = time.perf_counter()
        chosen = node_order(graph).method
        line: dict[str, Any] = {
            **about("products", case, threads), "num_nodes": graph.num_nodes, "num_edges": graph.num_edges,
            "parts": metis_parts(graph), "auto": chosen, "auto_seconds": time.perf_counter() - started,
        }  # fmt: skip
        line["orders"] = figures({name: find(graph, name) for name in NAMES}, rounds)
        append(results, line)
        print("\n".join(rows(line)), flush=True)


def parts(cases: list[str], rounds: int, threads: int, results: Path) -> None:
    """Numbers of METIS parts other than the one that gfgnn takes."""
    torch.set_num_threads(threads)
    for case in cases:
        graph, found = load(case), {}
        found["given"] = find(graph, "given")
        for count in PARTS:
            orders_module.PART_NODES = graph.num_nodes // count
            found[f"metis, {metis_parts(graph):,} parts"] = find(graph, "metis")
        line = about("parts", case, threads) | {"auto": None, "orders": figures(found, rounds)}
        append(results, line)
        print("\n".join(rows(line)), flush=True)


def figures(orders: dict[str, Found], rounds: int) -> dict[str, dict[str, Any]]:
    """What a line of the results says of each order."""
    times = measure(orders, rounds)
    return {
        name: {"found": o.found, "built": o.built, "far": o.far, "products": times[name]}
        for name, o in orders.items()
    }


def measure(orders: dict[str, Found], rounds: int) -> dict[str, dict[int, list[float]]]:
    """Seconds of every product by order and width: one after the other within a round, another first in each.

    Products of small graphs are over before what else the machine does has changed, so they get ten times the rounds.
    """
    times: dict[str, dict[int, list[float]]] = {name: {w: [] for w in WIDTHS} for name in orders}
    for width in WIDTHS:
        nodes = orders["given"].matrix.size(1)
        h = torch.randn(nodes, width, generator=torch.Generator().manual_seed(0))
        for turn in range((rounds if nodes > 100_000 else 10 * rounds) + 1):
            first = turn % len(orders)
            for name in [*orders, *orders][first : first + len(orders)]:
                started = time.perf_counter()
                spmm(orders[name].matrix, h)
                if turn:  # the first one warms up
                    times[name][width].append(time.perf_counter() - started)
    return times


def train(rounds: int, threads: int, iters: int, results: Path) -> None:
    """A 3-layer GCN on the arxiv graph; the first run of a round finds the order, if no cache has it."""
    graph = gfgnn.load("ogbn_arxiv", symmetrise=True, features="structure")
    model = gfgnn.ModelConfig(family="gcn", layers=3, hidden=64)
    for _ in range(rounds):
        for order in ("none", "auto"):
            config = gfgnn.TrainConfig(iters=iters, threads=threads, eval_every=iters, order=order)
            result = gfgnn.train(model, graph, config)
            line = about("train", "arxiv gcn-3", threads) | {
                "order": order, "iters": iters, "seconds_per_iteration": result.seconds_per_iteration,
                "setup_seconds": result.setup_seconds, "val": result.val_accuracy, "notes": result.notes,
            }  # fmt: skip
            append(results, line)
            print(line, flush=True)


def about(kind: str, case: str, threads: int) -> dict[str, Any]:
    return {
        "kind": kind, "case": case, "threads": threads, "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "commit": commit(), "machine": machine(), "load_before": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def rows(line: dict[str, Any]) -> list[str]:
    """The lines of a case in the table: medians, and medians of the ratios within a round."""
    table = []
    for name, order in line["orders"].items():
        cells, given = [], line["orders"]["given"]["products"]
        for width, times in order["products"].items():
            faster = statistics.median(a / b for a, b in zip(given[width], times, strict=True))
            saved = statistics.median(a - b for a, b in zip(given[width], times, strict=True))
            cost = order["found"] + order["built"]
            even = f"{cost / saved:,.0f}" if saved > 0 and name not in ("given", "random") else "-"
            cells += [f"{1000 * statistics.median(times):.2f}", f"{faster:.2f}", even]
        mark = " (auto)" if line["auto"] == name else ""
        table.append(
            f"| {line['case']} | {name}{mark} | {order['far']:.2f} | {order['found']:.2f} + {order['built']:.2f} | "
            + " | ".join(cells) + " |"
        )  # fmt: skip
    return table


def report(results: Path) -> None:
    """The latest lines of each case and number of threads."""
    lines = read(results)
    latest = {(line["threads"], line["kind"], line["case"]): line for line in lines if "orders" in line}
    columns = [f"{text} {width}" for width in WIDTHS for text in ("ms at", "faster at", "breaks even at")]
    for threads in sorted({key[0] for key in latest}):
        print(f"Threads: {threads}\n\n| graph | order | far reads | seconds | {' | '.join(columns)} |")
        print("|---" * (4 + len(columns)) + "|")
        for (used, *_), line in latest.items():
            if used == threads:
                print("\n".join(rows(line)))
        print()
    runs = [line for line in lines if line["kind"] == "train"]
    for threads in sorted({line["threads"] for line in runs}):
        kept, other = (
            [r["seconds_per_iteration"] for r in runs if (r["order"], r["threads"]) == (order, threads)]
            for order in ("none", "auto")
        )
        ratio = statistics.median(a / b for a, b in zip(kept, other, strict=True))
        print(
            f"{runs[0]['case']}, {threads} threads: {statistics.median(kept):.3f} s an iteration in the order given, "
            f"{statistics.median(other):.3f} s in the other, median ratio {ratio:.2f} of {len(kept)} pairs"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "parts", "train", "report"])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iters", type=int, default=10, help="of train")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        run(given.cases, given.rounds, given.threads, given.results)
    elif given.command == "parts":
        parts(given.cases, given.rounds, given.threads, given.results)
    elif given.command == "train":
        train(given.rounds, given.threads, given.iters, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
