"""OGB's Amazon co-purchase graph: 2.4 million products, 62 million links, 47 categories.

    python examples/ogbn_products.py --root DIR                        # both solvers
    python examples/ogbn_products.py --root DIR --epochs 0             # without Adam, which needs more memory
    python examples/ogbn_products.py --root DIR --sage                 # GraphSAGE in place of GCN

DIR holds OGB's raw files, unpacked as ``DIR/ogbn_products``. The network is that of OGB's full-batch baseline: 3 layers
with 256 columns. The 8% best-selling products are there for training and the rarest for the test, so that test accuracy
lies far below validation accuracy.
"""

from __future__ import annotations

from ogbn_common import options, train_both

import gfgnn


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains both ways and returns the official test accuracy of each."""
    parser = options("ogbn-products", epochs=300)
    parser.add_argument("--sage", action="store_true", help="GraphSAGE in place of GCN")
    given = parser.parse_args(arguments)

    # Reading 62 million edges from text takes minutes once; later loads map the cache.
    graph = gfgnn.load("ogbn-products", root=given.root)
    print(graph)
    network = gfgnn.ModelConfig(family="sage" if given.sage else "gcn", layers=3, hidden=given.hidden)

    # The baseline's settings of Adam: learning rate .01, dropout .5, no batch normalisation, no weight decay.
    adam = gfgnn.AdamConfig(lr=0.01, weight_decay=0.0, dropout=0.5)
    return train_both(network, graph, adam, given)


if __name__ == "__main__":
    main()
