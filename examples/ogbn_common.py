"""What the OGB examples share: options, and training the same network both ways with OGB's own score of each."""

from __future__ import annotations

import argparse
from typing import Any

import gfgnn
from gfgnn.data.ogb import official_score


def options(name: str, epochs: int) -> argparse.ArgumentParser:
    """The options of an example for data set ``name``, whose published run of Adam has so many epochs."""
    folder = name.replace("-", "_")
    parser = argparse.ArgumentParser(
        description=f"Train OGB's GNN on {name}, with and without backpropagation."
    )
    parser.add_argument("--root", required=True, help=f"folder that holds {folder}")
    parser.add_argument("--iters", type=int, help="iterations of the block solver (its own number)")
    parser.add_argument("--epochs", type=int, default=epochs, help="epochs of Adam; 0 leaves Adam out")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads (all)")
    parser.add_argument("--memory-limit", help="what the block solver may take, such as 16GB")
    parser.add_argument(
        "--out-of-core", action="store_true", help="the block solver keeps one part in memory"
    )
    return parser


def train_both(
    network: gfgnn.ModelConfig,
    graph: gfgnn.Graph,
    adam: gfgnn.AdamConfig,
    given: argparse.Namespace,
    eval_every: int = 1,
) -> dict[str, float]:
    """Trains without backpropagation and with Adam; the official test score of each.

    The iterate that is best on the validation nodes is taken, and OGB's evaluator scores its predictions.
    """
    shared = {"seed": given.seed, "threads": given.threads, "eval_every": eval_every}
    limits: dict[str, Any] = {}
    if given.memory_limit:
        limits["memory_limit"] = given.memory_limit
    if given.out_of_core:
        limits["out_of_core"] = True
    solvers = {"without backprop": gfgnn.TrainConfig(iters=given.iters, **shared, **limits)}
    if given.epochs:
        solvers["Adam"] = gfgnn.TrainConfig(solver="adam", iters=given.epochs, adam=adam, **shared)
    scores = {}
    for name, config in solvers.items():
        result = gfgnn.train(network, graph, config)
        predictions = gfgnn.predict(result, graph)
        # ROC-AUC, of several labels a node, is made from probabilities; accuracy from classes.
        said = predictions.probability if graph.task == "multilabel" else predictions.prediction
        assert said is not None
        scores[name] = official_score(graph.name, graph.y[graph.test_mask], said[graph.test_mask])
        print(
            f"{name:<17} validation {result.val_accuracy:.4f}, official test {scores[name]:.4f}, "
            f"best at {result.best_iteration} of {result.iterations}, {result.seconds:.1f} s, "
            f"{result.peak_rss_bytes / 1e9:.1f} GB at most so far"
        )
    return scores
