"""Labels as inputs, and predictions too, against the same network without, on the arxiv graph with structure features.

    python benchmarks/label_reuse.py run [SEEDS]     trains in turn, seed by seed, one thread
    python benchmarks/label_reuse.py report          the table of docs/post.md from results/label_reuse.jsonl

Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names. *In training* is what the run itself reports, with the labels
of half the training nodes as inputs; *predicted* is :func:`gfgnn.predict`, with all of them; then comes correct and
smooth with the published numbers.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from common import HERE, append, commit, machine, read
from torch import Tensor

import gfgnn
from gfgnn import metrics

RESULTS = HERE / "results" / "label_reuse.jsonl"
CONFIG = gfgnn.TrainConfig(iters=60, eval_every=5, threads=1)
NETWORKS: dict[str, dict[str, Any]] = {
    "features": {},
    "labels, too": {"label_inputs": True},
    "labels and predictions": {"label_inputs": True, "label_reuse": True},
}
SCORED = ("in training", "predicted", "smoothed")


def run(seeds: int) -> None:
    """A line for each seed and network: validation and test accuracy, and seconds of training."""
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True, normalise="columns")

    def scores(probability: Tensor) -> list[float]:
        masks = (graph.val_mask, graph.test_mask)
        return [metrics.score(graph.task, probability, graph.y, graph.labelled(mask)) for mask in masks]

    for seed in range(seeds):
        for name, settings in NETWORKS.items():
            model = gfgnn.ModelConfig(family="gcn", layers=3, hidden=128, **settings)
            result = gfgnn.train(model, graph, replace(CONFIG, seed=seed))
            probability = gfgnn.predict(result, graph).probability
            assert probability is not None
            smoothed = gfgnn.correct_and_smooth(graph, probability)
            line = {
                "network": name, "seed": seed, "in training": [result.val_accuracy, result.test_accuracy],
                "predicted": scores(probability), "smoothed": scores(smoothed), "seconds": result.seconds,
                "best_iteration": result.best_iteration, "date": time.strftime("%Y-%m-%d %H:%M:%S"),
                "commit": commit(), "machine": machine(),
            }  # fmt: skip
            append(RESULTS, line)
            print(name, seed, {key: line[key] for key in (*SCORED, "seconds")}, flush=True)


def report() -> None:
    """Means over seeds of validation / test accuracy, and seconds of training."""
    print("| inputs | seeds | in training | predicted | after correct and smooth | test, range | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in NETWORKS:
        lines = [line for line in read(RESULTS) if line["network"] == name]
        cells = [
            " / ".join(f"{statistics.mean(line[kind][at] for line in lines):.4f}" for at in (0, 1))
            for kind in SCORED
        ]
        test = [line["predicted"][1] for line in lines]
        spent = statistics.mean(line["seconds"] for line in lines)
        print(
            f"| {name} | {len(lines)} | {' | '.join(cells)} | {min(test):.4f} to {max(test):.4f} | {spent:.0f} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    elif sys.argv[1:] == ["report"]:
        report()
    else:
        raise SystemExit(__doc__)
