"""OGB's arXiv citation graph, trained without backpropagation and with Adam, scored by OGB's own evaluator.

    python examples/ogbn_arxiv.py --root DIR

DIR holds OGB's raw files, unpacked as ``DIR/ogbn_arxiv``; gfgnn downloads nothing and says what is missing. The network
is that of OGB's baseline: a GCN of 3 layers with 256 columns, on citations in both directions.
"""

from __future__ import annotations

import argparse

import gfgnn
from gfgnn.data.ogb import official_score


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains both ways and returns the official test accuracy of each."""
    parser = argparse.ArgumentParser(
        description="Train OGB's GCN on ogbn-arxiv, with and without backpropagation."
    )
    parser.add_argument("--root", required=True, help="folder that holds ogbn_arxiv")
    parser.add_argument("--iters", type=int, help="iterations of the block solver (its own number)")
    parser.add_argument("--epochs", type=int, default=500, help="epochs of Adam")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)

    # The first load converts OGB's text files; later ones map what it left in the cache.
    graph = gfgnn.load("ogbn-arxiv", root=given.root, symmetrise=True)
    print(graph)
    network = gfgnn.ModelConfig(family="gcn", layers=3, hidden=given.hidden)

    # The baseline's settings of Adam: learning rate .01, dropout .5, batch normalisation, no weight decay.
    baseline = gfgnn.AdamConfig(lr=0.01, weight_decay=0.0, dropout=0.5, batch_norm=True)
    solvers = {
        "without backprop": gfgnn.TrainConfig(iters=given.iters, seed=given.seed),
        "Adam": gfgnn.TrainConfig(solver="adam", iters=given.epochs, seed=given.seed, adam=baseline),
    }
    scores = {}
    for name, config in solvers.items():
        result = gfgnn.train(network, graph, config)
        # Predictions of the iterate that was best on the validation papers; OGB scores those of the test papers.
        predicted = gfgnn.predict(result, graph).prediction
        assert predicted is not None
        scores[name] = official_score(graph.name, graph.y[graph.test_mask], predicted[graph.test_mask])
        print(
            f"{name:<17} validation {result.val_accuracy:.4f}, official test {scores[name]:.4f}, "
            f"best at {result.best_iteration} of {result.iterations}, {result.seconds:.1f} s"
        )
    return scores


if __name__ == "__main__":
    main()
