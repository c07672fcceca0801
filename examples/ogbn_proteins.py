"""OGB's protein associations: 132,534 proteins of 8 species, 40 million links, 112 functions that each has or has not.

    python examples/ogbn_proteins.py --root DIR            # both solvers
    python examples/ogbn_proteins.py --root DIR --sage     # GraphSAGE, OGB's better baseline here

DIR holds OGB's raw files, unpacked as ``DIR/ogbn_proteins``. Links have 8 features and proteins none: a protein gets
the mean of its links', as in OGB's baseline, whose network this is: 3 layers with 256 columns. The score is ROC-AUC,
averaged over the functions.
"""

from __future__ import annotations

from ogbn_common import options, train_both

import gfgnn


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains both ways and returns the official test ROC-AUC of each."""
    parser = options("ogbn-proteins", epochs=1000)
    parser.add_argument("--sage", action="store_true", help="GraphSAGE in place of GCN")
    given = parser.parse_args(arguments)

    graph = gfgnn.load("ogbn-proteins", root=given.root)
    print(graph)
    network = gfgnn.ModelConfig(family="sage" if given.sage else "gcn", layers=3, hidden=given.hidden)

    # The baseline's settings of Adam: learning rate .01, no dropout, no batch normalisation, no weight decay. It is
    # evaluated every 5 epochs: ROC-AUC sorts the scores of every function.
    adam = gfgnn.AdamConfig(lr=0.01, weight_decay=0.0, dropout=0.0)
    return train_both(network, graph, adam, given, eval_every=5)


if __name__ == "__main__":
    main()
