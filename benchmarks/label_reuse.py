"""Labels as inputs against the same network without, on the arxiv graph with features made from its edges.

    python benchmarks/label_reuse.py run [SEEDS]     trains in turn, seed by seed, one thread
    python benchmarks/label_reuse.py report          the table of docs/post.md from results/label_reuse.jsonl

Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names. Accuracies of the network with label inputs are those of
:func:`gfgnn.predict`, with the labels of all training nodes put in, for each number of reuses.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace

from common import HERE, commit, machine, read

import gfgnn
from gfgnn import metrics

RESULTS = HERE / "results" / "label_reuse.jsonl"
REUSES = (0, 1, 3)
CONFIG = gfgnn.TrainConfig(iters=60, eval_every=5, threads=1)


def run(seeds: int) -> None:
    """A line for each seed and network: validation and test accuracy, and seconds of training."""
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True, normalise="columns")
    for seed in range(seeds):
        for label_inputs in (False, True):
            config = gfgnn.ModelConfig(family="gcn", layers=3, hidden=128, label_inputs=label_inputs)
            result = gfgnn.train(config, graph, replace(CONFIG, seed=seed))
            for reuses in REUSES if label_inputs else (0,):
                model = replace(result.model, config=replace(config, label_reuses=reuses))
                probability = gfgnn.predict((model, result.weights), graph).probability
                assert probability is not None
                line = {
                    "label_inputs": label_inputs, "reuses": reuses, "seed": seed, "seconds": result.seconds,
                    "best_iteration": result.best_iteration, "half": [result.val_accuracy, result.test_accuracy],
                    **{
                        split: metrics.score(graph.task, probability, graph.y, graph.labelled(mask))
                        for split, mask in (("val", graph.val_mask), ("test", graph.test_mask))
                    },
                    "commit": commit(), "machine": machine(),
                }  # fmt: skip
                print({k: v for k, v in line.items() if k != "machine"}, flush=True)
                with open(RESULTS, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def report() -> None:
    """Means over seeds, and the spread of the test accuracy."""
    print("| inputs | reuses | seeds | validation | test | training, s |\n|---|---|---|---|---|---|")
    lines = read(RESULTS)
    for label_inputs, reuses in ((False, 0), *((True, reuses) for reuses in REUSES)):
        found = [r for r in lines if (r["label_inputs"], r["reuses"]) == (label_inputs, reuses)]
        val, test, seconds = (statistics.mean(r[name] for r in found) for name in ("val", "test", "seconds"))
        spread = max(r["test"] for r in found) - min(r["test"] for r in found)
        inputs = "features and labels" if label_inputs else "features"
        print(
            f"| {inputs} | {reuses} | {len(found)} | {val:.4f} | {test:.4f} (range {spread:.4f}) | {seconds:.0f} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(int(sys.argv[2]) if len(sys.argv) > 2 else 3)
    elif sys.argv[1:] == ["report"]:
        report()
    else:
        raise SystemExit(__doc__)
