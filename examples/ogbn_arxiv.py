"""OGB's arXiv citation graph, trained without backpropagation and with Adam, scored by OGB's own evaluator.

    python examples/ogbn_arxiv.py --root DIR

DIR holds OGB's raw files, unpacked as ``DIR/ogbn_arxiv``; gfgnn downloads nothing and says what is missing. The network
is that of OGB's baseline: a GCN of 3 layers with 256 columns, on citations in both directions.
"""

from __future__ import annotations

from ogbn_common import options, train_both

import gfgnn


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains both ways and returns the official test accuracy of each."""
    given = options("ogbn-arxiv", epochs=500).parse_args(arguments)

    # The first load converts OGB's text files; later ones map what it left in the cache.
    graph = gfgnn.load("ogbn-arxiv", root=given.root, symmetrise=True)
    print(graph)
    network = gfgnn.ModelConfig(family="gcn", layers=3, hidden=given.hidden)

    # The baseline's settings of Adam: learning rate .01, dropout .5, batch normalisation, no weight decay.
    adam = gfgnn.AdamConfig(lr=0.01, weight_decay=0.0, dropout=0.5, batch_norm=True)
    return train_both(network, graph, adam, given)


if __name__ == "__main__":
    main()
