"""What to expect of the OGB examples in memory and time: measured on the arxiv graph, predicted for the others.

    python benchmarks/ogb_expected.py measure    the arxiv example's network on this machine, one thread
    python benchmarks/ogb_expected.py report     the table of the README, from the latest line of each solver

Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names; in place of its features, which are not there, 128 columns of
normal numbers: an iteration takes as long with these. Predicted seconds are the measured ones times the ratio of the
work that ``gfgnn/plan/cost.py`` counts; Adam's are scaled by the same ratio, which is rougher. Memory is counted by
``gfgnn/plan/memory.py``, which knows the block solver alone, and the graph beside it: two 64-bit numbers an edge and
the features, which a loaded data set maps from the cache. Adam's memory is what it took on arxiv, by the number of
nodes.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from itertools import pairwise

import torch
from common import HERE, append, commit, machine, read

import gfgnn
from gfgnn.model.build import Model, make_model
from gfgnn.plan.cost import Rates, Sizes, block_costs, seconds
from gfgnn.plan.memory import PartMemory, rank_memory
from gfgnn.result import peak_rss_bytes

RESULTS = HERE / "results" / "ogb_expected.jsonl"
ITERS = 6


@dataclass(frozen=True)
class Shape:
    """Published sizes of a data set: ``edges`` are those stored, both directions of a link; ``train`` of the split."""

    nodes: int
    edges: int
    features: int
    outputs: int
    train: int
    task: str = "multiclass"
    epochs: int = 500


SHAPES = {
    "arxiv": Shape(169_343, 2_315_598, 128, 40, 90_941),
    "products": Shape(2_449_029, 123_718_280, 100, 47, 196_615, epochs=300),
    "proteins": Shape(132_534, 79_122_504, 8, 112, 86_619, task="multilabel", epochs=1000),
}


def network(shape: Shape, family: str = "gcn") -> Model:
    config = gfgnn.ModelConfig(family=family, layers=3, hidden=256)
    return make_model(config, shape.features, shape.outputs, shape.task)


def work(shape: Shape, family: str = "gcn") -> float:
    """Seconds of an iteration at the rates of the cost model; labelled rows are taken to have the mean degree."""
    nnz = shape.edges + shape.nodes * (family == "gcn")
    sizes = Sizes(
        num_nodes=shape.nodes,
        nnz=nnz,
        num_train=shape.train,
        head_nnz=nnz * shape.train // shape.nodes,
    )
    return sum(seconds(cost, Rates()) for cost in block_costs(network(shape, family), sizes, "polar"))


def memory(shape: Shape, family: str = "gcn") -> tuple[int, int]:
    """Bytes of training on one device with ``lean``, and those of the graph."""
    n, k = shape.nodes, shape.train
    nnz = n * (family == "gcn") + shape.edges
    # 32-bit columns and row starts; the mean over neighbours is not symmetric and keeps its transpose
    stored = (1 if family == "gcn" else 2) * (8 * nnz + 4 * n)
    part = PartMemory(
        nodes=n,
        train=k,
        moving=0,
        matrices=stored,
        head=2 * 8 * nnz * k // n + 4 * (n + k),
        values=(1 if family == "gcn" else 2) * nnz,
        features=4 * n * shape.features,
        sparse=False,
    )
    model = network(shape, family)
    held = rank_memory(model, (0, len(model.blocks)), 0, part, staleness=0, itemsize=4)
    return held.peak, 16 * shape.edges + part.features


def measure() -> None:
    """A line for each solver: median processor seconds of an iteration, which other work on the machine disturbs least,
    and the highest memory of the process up to then."""
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True)
    x = torch.randn(graph.num_nodes, SHAPES["arxiv"].features, generator=torch.Generator().manual_seed(0))
    graph = graph.replace(x=x)
    config = gfgnn.ModelConfig(family="gcn", layers=3, hidden=256)
    adam = gfgnn.AdamConfig(lr=0.01, weight_decay=0.0, dropout=0.5, batch_norm=True)
    for solver in ("target", "adam"):
        settings = gfgnn.TrainConfig(
            solver=solver, iters=ITERS, eval_every=ITERS, threads=1, lean=solver == "target", adam=adam
        )
        before, clock = peak_rss_bytes(), [time.process_time()]
        result = gfgnn.train(
            config, graph, settings, on_iteration=lambda _, clock=clock: clock.append(time.process_time())
        )
        # the first stretch has the set-up in it, the last one the evaluation
        spent = statistics.median(later - sooner for sooner, later in pairwise(clock[1:-1]))
        line = {
            "solver": solver, "seconds": spent, "wall": result.seconds_per_iteration, "before": before,
            "peak": result.peak_rss_bytes, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit(),
            "machine": machine(),
        }  # fmt: skip
        append(RESULTS, line)
        print(
            f"{solver}: {line['seconds']:.2f} s, {before / 1e9:.2f} GB before, {line['peak'] / 1e9:.2f} GB peak"
        )


def report() -> None:
    """The table, and what was measured beside what the model says of it."""
    latest = {line["solver"]: line for line in read(RESULTS)}
    target, adam = latest["target"], latest["adam"]
    print(
        "| data, network | training, GB | the graph, GB | s/iteration | 60 iterations | Adam, GB | Adam, s/epoch "
        "| its epochs |\n|---|---|---|---|---|---|---|---|"
    )
    unit = target["seconds"] / work(SHAPES["arxiv"])
    for name, shape in SHAPES.items():
        for family in ("gcn",) if name == "arxiv" else ("gcn", "sage"):
            held, graph = memory(shape, family)
            spent = unit * work(shape, family)
            epoch = spent * adam["seconds"] / target["seconds"]
            adams = (adam["peak"] - target["before"]) * shape.nodes / SHAPES["arxiv"].nodes
            kind = "measured" if name == "arxiv" else "predicted"
            print(
                f"| {name}, {family.upper()}, {kind} | {held / 1e9:.1f} | {graph / 1e9:.1f} | {spent:.1f} | "
                f"{_time(60 * spent)} | {adams / 1e9:.0f} | {epoch:.1f} | {_time(shape.epochs * epoch)} |"
            )
    predicted = memory(SHAPES["arxiv"])[0]
    print(
        f"\nOf arxiv, processor seconds are measured and memory is predicted: {predicted / 1e9:.2f} GB beside the "
        f"graph, where the process came to {target['peak'] / 1e9:.2f} GB with it. One thread, "
        f"{target['machine']['processor']}, commit {target['commit']}, {target['date']}."
    )


def _time(spent: float) -> str:
    return f"{spent / 60:.0f} min" if spent < 7200 else f"{spent / 3600:.0f} h"


if __name__ == "__main__":
    commands = {"measure": measure, "report": report}
    if sys.argv[1:] not in ([name] for name in commands):
        raise SystemExit(__doc__)
    commands[sys.argv[1]]()
