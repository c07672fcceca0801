"""Peak memory and seconds of cutting a graph: partitioners, the propagation matrix, the shards of all parts.

    python benchmarks/partition_memory.py run [--sizes 100000:25 ...] [--work pymetis ldg ...] [--folder FOLDER]
    python benchmarks/partition_memory.py report

Each piece of work runs in a process of its own on one thread, on a generated graph whose edges it has read from a file
in FOLDER: communities of 2% of the nodes, hubs, a fifth of the edges anywhere. The peak is above what was held before.
Shards are those of eight parts to which nodes go by number: every part has a halo of nearly all other nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, append, commit, held, machine, read

RESULTS = HERE / "results" / "partition_memory.jsonl"
SIZES = ("100000:5", "400000:5", "1000000:1.5", "100000:26", "200000:26", "50000:100")
WORK = ("pymetis", "metis", "metis, 2 constraints", "ldg", "ldg, 2 constraints", "S", "shards")
PARTS = 8


def generate(nodes: int, per_node: float, path: Path) -> None:
    """Writes sorted edges ``[2, E]`` without directions, ``per_node`` of them for each node."""
    rng, drawn = np.random.default_rng(0), int(nodes * per_node)
    source, community = rng.integers(nodes, size=drawn), nodes // 50
    near = source // community * community + (community * rng.random(drawn) ** 2).astype(np.int64)
    far = (nodes * rng.random(drawn) ** 1.5).astype(np.int64)
    target = np.where(rng.random(drawn) < 0.8, near, far).clip(0, nodes - 1)
    number = rng.permutation(nodes)
    source, target = number[source], number[target]
    other = source != target
    source, target = source[other], target[other]
    key = np.concatenate([target * nodes + source, source * nodes + target])
    key.sort()
    key = key[np.diff(key, prepend=-1) != 0]
    np.save(path, np.stack([key % nodes, key // nodes]))


def job(work: str, nodes: int, path: Path) -> None:
    """One piece of work; prints a JSON object."""
    import torch

    from gfgnn import ModelConfig
    from gfgnn.graph import graph as module
    from gfgnn.graph.operators import Operator, build_operator
    from gfgnn.graph.partition import partition_nodes
    from gfgnn.graph.partition.memory import metis_bytes
    from gfgnn.graph.partition.nodes import LIBRARIES
    from gfgnn.graph.partition.problem import PartitionProblem, neighbours, node_weights
    from gfgnn.model.build import build_model
    from gfgnn.ops.memory import release_freed_memory
    from gfgnn.shards import iter_shards

    module.check_graph = lambda graph: None  # the file is ours
    index = torch.arange(nodes)
    graph = module.Graph(
        edge_index=torch.from_numpy(np.load(path)), num_nodes=nodes, y=index % 2, num_classes=2,
        train_mask=index % 10 == 0, val_mask=index % 10 == 1, test_mask=index % 10 == 2, x=torch.ones(nodes, 1),
    )  # fmt: skip
    method, balance = work.split(",")[0], ("nodes", "labelled")[: 1 + ("2" in work)]
    about: dict[str, Any] = {}
    if method in LIBRARIES:
        indptr, indices = neighbours(graph)
        problem = PartitionProblem(
            indptr=indptr, indices=indices, weights=node_weights(graph, balance), shares=np.full(PARTS, 1 / PARTS),
            imbalance=0.03, seed=0,
        )  # fmt: skip
        about["estimate"] = metis_bytes(problem, LIBRARIES[method].index_dtype(LIBRARIES[method].load()))
        del problem
    model = build_model(ModelConfig(layers=3, hidden=4), graph)
    parts = index % PARTS
    release_freed_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before, start = held("VmRSS"), time.perf_counter()
    if work == "S":
        build_operator(graph, Operator(), torch.float32)
    elif work == "shards":
        for shard in iter_shards(model, graph, parts, PARTS, dtype=torch.float32):
            del shard
    else:
        found = partition_nodes(graph, PARTS, method=method, balance=balance, memory=2**62)
        about |= {"cut": found.report.cut_share, "balance": found.report.balance}
    about |= {"seconds": time.perf_counter() - start, "peak": held("VmHWM") - before}
    print(json.dumps({**about, "edges": graph.num_edges}))


def run(sizes: list[str], chosen: list[str], folder: Path) -> None:
    for size in sizes:
        nodes, per_node = int(size.split(":")[0]), float(size.split(":")[1])
        path = folder / f"edges-{nodes}-{per_node:g}.npy"
        if not path.exists():
            generate(nodes, per_node, path)
        for work in chosen:
            command = [sys.executable, __file__, "job", work, str(nodes), str(path)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            line = {
                "case": size, "label": work, "nodes": nodes, **json.loads(done.stdout.splitlines()[-1]),
                "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(), "machine": machine(),
            }  # fmt: skip
            append(RESULTS, line)
            print(_row(line), flush=True)


def report() -> None:
    """The latest run of each piece of work on each graph."""
    latest = {(line["case"], line["label"]): line for line in read(RESULTS)}
    print(
        "| nodes | stored edges | work | peak MiB | bytes an edge | estimate / peak | seconds | edges cut |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for line in latest.values():
        print(_row(line))


def _row(line: dict[str, Any]) -> str:
    ratio = f"{line['estimate'] / line['peak']:.2f}" if "estimate" in line else ""
    cut = f"{line['cut']:.1%}" if "cut" in line else ""
    return (
        f"| {line['nodes']:,} | {line['edges']:,} | {line['label']} | {line['peak'] / 2**20:.0f} | "
        f"{line['peak'] / line['edges']:.1f} | {ratio} | {line['seconds']:.1f} | {cut} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--sizes", nargs="+", default=list(SIZES), help="nodes:edges of each node")
    runs.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    runs.add_argument("--folder", type=Path, default=None, help="for the edges; they stay there")
    one = commands.add_parser("job")
    one.add_argument("what")
    one.add_argument("nodes", type=int)
    one.add_argument("path", type=Path)
    commands.add_parser("report")
    given = parser.parse_args()
    if given.command == "job":
        job(given.what, given.nodes, given.path)
    elif given.command == "report":
        report()
    else:
        with tempfile.TemporaryDirectory() as name:
            run(given.sizes, given.work, given.folder or Path(name))


if __name__ == "__main__":
    main()
