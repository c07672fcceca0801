"""A generated graph of ogbn-products' shape in OGB's raw layout, from files to the cache; times, memory, disk.

    python benchmarks/products.py generate --out DIR [--nodes 244903 --edges 6185914]     writes DIR/ogbn_products
    python benchmarks/products.py cache --root DIR [--feature-storage fp16]               first and second load
    python benchmarks/products.py partition --root DIR --parts 8                          METIS or its stand-in
    python benchmarks/products.py train --root DIR [--memory-limit 16GB] [--out-of-core]  GCN-3, 3 iterations
    python benchmarks/products.py report                                                  from results/products.jsonl

Every load is a process of its own; its cache is DIR/cache, emptied of the data set before the first. Peak memory is
that of the process (VmHWM), pages of mapped files included; partition and train set it back before each phase.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, append, commit, machine, read
from numpy.typing import NDArray

RESULTS = HERE / "results" / "products.jsonl"
NAME = "ogbn-products"
#: mean number of nodes in a community, and the share of edges that stay in one
COMMUNITY, INSIDE = 2500, 0.8
#: shares of nodes in the splits of products
SPLITS = {"train": 0.08, "valid": 0.02, "test": 0.90}
#: edges, or numbers of features, made at once
PIECE = 1 << 20


def generate(out: Path, nodes: int, edges: int, features: int, classes: int, seed: int) -> None:
    """Writes the files of ``out/ogbn_products``, piece by piece."""
    rng = np.random.default_rng(seed)
    folder = out / "ogbn_products"
    raw, split = folder / "raw", folder / "split" / "sales_ranking"
    for path in (raw, split):
        path.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    # communities are stretches of places; a permutation hides them, and many of them make a class
    count = max(classes, nodes // COMMUNITY)
    starts = np.concatenate(
        [[0], np.sort(rng.choice(np.arange(1, nodes), count - 1, replace=False)), [nodes]]
    )
    node_at, community = rng.permutation(nodes), np.repeat(np.arange(count), np.diff(starts))
    label = np.empty(nodes, np.int64)
    label[node_at] = rng.permutation(np.arange(count) % classes)[community]
    write(raw / "num-node-list.csv.gz", iter([whole(np.array([[nodes]]))]))
    write(raw / "num-edge-list.csv.gz", iter([whole(np.array([[edges]]))]))
    write(raw / "node-label.csv.gz", iter([whole(label[:, None])]))
    write(raw / "edge.csv.gz", edge_pieces(rng, edges, starts, community, node_at))
    centres = 0.5 * rng.standard_normal((classes, features))
    size = max(1, PIECE // features)
    pieces = (label[begin : begin + size] for begin in range(0, nodes, size))
    write(
        raw / "node-feat.csv.gz",
        (decimal(centres[y] + rng.standard_normal((y.size, features))) for y in pieces),
    )
    order, begin = rng.permutation(nodes), 0
    for part, share in SPLITS.items():
        end = nodes if part == "test" else begin + round(share * nodes)
        write(split / f"{part}.csv.gz", iter([whole(np.sort(order[begin:end])[:, None])]))
        begin = end
    print(f"{folder}: {size_of(folder) / 1e6:,.0f} MB in {time.perf_counter() - started:.0f} s", flush=True)


def edge_pieces(
    rng: np.random.Generator, edges: int, starts: NDArray[Any], community: NDArray[Any], node_at: NDArray[Any]
) -> Iterator[bytes]:
    """Undirected edges, once each but for chance; the first places of a community have most of them."""

    def chosen(of: NDArray[Any]) -> NDArray[Any]:
        skewed = rng.random(of.size) ** 1.7
        return starts[of] + (skewed * (starts[of + 1] - starts[of])).astype(np.int64)

    for begin in range(0, edges, PIECE):
        size = min(PIECE, edges - begin)
        own, other = (community[rng.integers(0, community.size, size)] for _ in range(2))
        source, target = chosen(own), chosen(np.where(rng.random(size) < INSIDE, own, other))
        target[source == target] = (source[source == target] + 1) % community.size
        yield whole(node_at[np.stack([source, target], axis=1)])


def whole(rows: NDArray[np.int64]) -> bytes:
    """Numbers from 0 on as lines of text, separated by commas."""
    width = len(str(int(rows.max(initial=0))))
    text = np.empty((*rows.shape, width + 1), np.uint8)
    keep, rest = np.ones(text.shape, bool), rows
    for place in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        text[..., place] = digit + ord("0")
        if place:
            keep[..., place - 1] = rest > 0
    return separated(text, keep)


def decimal(rows: NDArray[np.float64]) -> bytes:
    """Numbers between -10 and 10 as lines of text with two decimals, separated by commas."""
    hundredths = np.rint(100 * np.clip(rows, -9.99, 9.99)).astype(np.int16)
    text = np.empty((*rows.shape, 6), np.uint8)
    text[..., 0], text[..., 2] = ord("-"), ord(".")
    size = np.abs(hundredths)
    for place, unit in ((1, 100), (3, 10), (4, 1)):
        text[..., place] = size // unit % 10 + ord("0")
    keep = np.ones(text.shape, bool)
    keep[..., 0] = hundredths < 0
    return separated(text, keep)


def separated(text: NDArray[np.uint8], keep: NDArray[np.bool_]) -> bytes:
    text[..., -1] = ord(",")
    text[:, -1, -1] = ord("\n")
    return text[keep].tobytes()


def write(path: Path, pieces: Iterator[bytes]) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces:
            file.write(piece)


def cache(root: Path, storage: str, results: Path) -> None:
    """Two loads, each in a fresh process, with what they took."""
    folder = root / "cache"
    for old in folder.glob(f"{NAME}-*"):
        shutil.rmtree(old)
    for case in ("first", "second"):
        with Watched(folder) as disk:
            values = in_fresh_process(root, storage)
        values |= {"raw_bytes": size_of(root / "ogbn_products"), "cache_bytes": size_of(folder)}
        record(results, "cache", f"{case} load", storage=storage, **values, peak_disk_bytes=disk.peak)


def in_fresh_process(root: Path, storage: str, *command: str) -> Any:
    """What a process says of itself that only loads, or does another hidden command."""
    done = subprocess.run(
        [
            sys.executable,
            __file__,
            *(command or ("load",)),
            "--root",
            str(root),
            "--feature-storage",
            storage,
        ],
        env={**os.environ, "GFGNN_CACHE": str(root / "cache")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def load(root: Path, storage: str) -> None:
    """Loads once and prints seconds, those of the phases, and memory before and at the peak."""
    import gfgnn

    gfgnn.load("synthetic:nodes=100,classes=2")  # what is imported on the way
    before, phases = peak_memory(), {}
    started = time.perf_counter()
    graph = gfgnn.load(
        NAME,
        root,
        feature_storage=storage,
        progress=lambda phase, share: phases.setdefault(phase, time.perf_counter() - started),
    )
    seconds = time.perf_counter() - started
    ends = [*list(phases.values())[1:], seconds][: len(phases)]
    print(json.dumps({
        "seconds": seconds, "phases": {p: e - b for (p, b), e in zip(phases.items(), ends, strict=True)},
        "memory_before": before, "peak_memory": peak_memory(), "nodes": graph.num_nodes, "edges": graph.num_edges,
        "features": graph.num_features, "notes": graph.notes,
    }))  # fmt: skip


class Phases:
    """Seconds and peak memory of the parts of a run."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @contextmanager
    def phase(self, case: str) -> Iterator[dict[str, Any]]:
        """One part; what is put into the dictionary is recorded with it."""
        more: dict[str, Any] = {}
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is counted anew
        started = time.perf_counter()
        yield more
        self.found.append(
            {
                "case": case,
                "seconds": time.perf_counter() - started,
                "peak_memory": peak_memory(),
                **more,
            }
        )


def loaded(given: argparse.Namespace, phases: Phases) -> Any:
    import gfgnn

    with phases.phase("load"):
        return gfgnn.load(NAME, given.root, feature_storage=given.feature_storage)


def partition(given: argparse.Namespace) -> None:
    """Partitions once and prints what came of it."""
    from gfgnn.graph.partition import partition_nodes

    phases = Phases()
    graph = loaded(given, phases)
    for method in ("auto", "ldg"):
        with phases.phase(f"{given.parts} parts, {method}") as more:
            found = partition_nodes(graph, given.parts, method=method, balance=("nodes",))
            more |= {"method": found.method, "cut_share": found.report.cut_share, "notes": found.notes}
    finish(graph, phases)


def train(given: argparse.Namespace) -> None:
    """Trains and predicts once and prints what each phase took."""
    import gfgnn
    from gfgnn.planning import fit_memory

    phases = Phases()
    graph = loaded(given, phases)
    model = gfgnn.build_model(
        gfgnn.ModelConfig(family="gcn", layers=given.layers, hidden=given.hidden), graph
    )
    config = gfgnn.TrainConfig(
        iters=given.iters, memory_limit=given.memory_limit, out_of_core=given.out_of_core, parts=given.parts,
        threads=given.threads,
    )  # fmt: skip
    with phases.phase("choice") as more:
        fit = fit_memory(model, graph, config)
        more |= {"words": fit.words, "predicted": fit.peak, "limit": fit.limit}
    steps = []
    with phases.phase("training") as more:
        result = gfgnn.train(model, graph, config, on_iteration=steps.append, fit=fit)
        more |= {
            "setup_seconds": result.setup_seconds, "seconds_per_iteration": result.seconds_per_iteration,
            "seconds_trained": result.seconds, "test": result.test_accuracy, "notes": result.notes,
            "words": fit.words, "predicted": fit.peak, "limit": fit.limit, "threads": torch_threads(given.threads),
        }  # fmt: skip
    with phases.phase("prediction") as more:
        parts = fit.config.parts if given.out_of_core else None
        found = gfgnn.predict(result, graph, parts=parts, memory_limit=given.memory_limit)
        right = (found.prediction == graph.y)[graph.test_mask].double().mean()
        more["test"] = float(right)
    finish(graph, phases)


def torch_threads(asked: int | None) -> int:
    import torch

    return asked or torch.get_num_threads()


def finish(graph: Any, phases: Phases) -> None:
    about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    print(json.dumps([about | phase for phase in phases.found]))


def peak_memory() -> int:
    """Bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def size_of(folder: Path) -> int:
    """Bytes of all files below; some may go while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


class Watched:
    """Looks at the size of a folder five times a second."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.peak = folder, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.peak = max(self.peak, size_of(self.folder))

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def record(results: Path, command: str, case: str, **values: Any) -> None:
    """One line of the results: a phase of a run with its seconds and bytes."""
    line = {
        "command": command, "case": case, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(),
        "machine": machine(), "load_before": round(os.getloadavg()[0], 2), **values,
    }  # fmt: skip
    append(results, line)
    print(row(line), flush=True)


def row(line: dict[str, Any]) -> str:
    """A line of the table."""
    sizes = (line.get(key) for key in ("peak_memory", "cache_bytes", "peak_disk_bytes"))
    cells = ["-" if size is None else f"{size / 2**20:,.0f}" for size in sizes]
    cells.append(
        "" if line.get("predicted") is None else f"{line['words']}, {line['predicted'] / 2**20:,.0f}"
    )
    seconds = f"{line['seconds']:,.1f}"
    if "seconds_per_iteration" in line:
        seconds += f" (set-up {line['setup_seconds']:.1f}, an iteration {line['seconds_per_iteration']:.1f})"
    about = (
        f"| {line['command']}, {line['case']} | {line['storage']} | {line['nodes']:,} | {line['edges']:,} "
    )
    return about + f"| {seconds} | {' | '.join(cells)} |"


def report(results: Path) -> None:
    """The latest line of each phase and size."""
    latest = {(line["command"], line["case"], line["nodes"], line["storage"]): line for line in read(results)}
    print(
        "| phase | features | nodes | stored edges | seconds | peak MiB | cache MiB | disk at most, MiB "
        "| settings, predicted MiB |"
    )
    print("|---" * 9 + "|")
    for line in latest.values():
        print(row(line))


#: What may be asked for; the last three are for the processes that the others start.
COMMANDS = ("generate", "cache", "partition", "train", "report", "load", "one-partition", "one-training")


def recorded(given: argparse.Namespace, command: str, hidden: str) -> None:
    """The phases of a hidden command in a fresh process, as lines of the results."""
    options = ["--parts", given.parts, "--memory-limit", given.memory_limit, "--layers", given.layers]
    options += ["--hidden", given.hidden, "--iters", given.iters]
    options += ["--out-of-core"] if given.out_of_core else []
    options += ["--threads", given.threads] if given.threads else []
    for phase in in_fresh_process(given.root, given.feature_storage, hidden, *map(str, options)):
        case = phase.pop("case") + (f", {given.memory_limit}" if command == "train" else "")
        case += ", out of core" if given.out_of_core else ""
        record(given.results, command, case, storage=given.feature_storage, **phase)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--out", type=Path, help="of generate")
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=61_859_140, help="each in one direction")
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, help="folder of ogbn_products")
    parser.add_argument("--feature-storage", choices=["float32", "fp16"], default="float32")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--memory-limit", default="16GB")
    parser.add_argument("--out-of-core", action="store_true")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--iters", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command != "report" and (given.out if given.command == "generate" else given.root) is None:
        parser.error("generate needs --out, cache --root")
    if given.command == "generate":
        generate(given.out, given.nodes, given.edges, given.features, given.classes, given.seed)
    elif given.command == "cache":
        cache(given.root, given.feature_storage, given.results)
    elif given.command in ("partition", "train"):
        recorded(given, given.command, "one-partition" if given.command == "partition" else "one-training")
    elif given.command == "report":
        report(given.results)
    elif given.command == "load":
        load(given.root, given.feature_storage)
    else:
        partition(given) if given.command == "one-partition" else train(given)


if __name__ == "__main__":
    main()
