"""Train a 16-layer graph neural network without backpropagation, and see how far Adam gets in a few seconds.

    python examples/quickstart.py

The data come with the package: CiteSeer, 3,327 papers, 120 of them labelled for training.
"""

from __future__ import annotations

import gfgnn


def main(iterations: int | None = None, adam_seconds: float = 5.0) -> float:
    """Trains both ways and returns the test accuracy without backpropagation."""
    graph = gfgnn.load("citeseer", normalise="rows")
    network = gfgnn.ModelConfig(family="gcnii", layers=16, hidden=64)

    # The block solver: closed-form targets and one ridge solve per layer; no gradients, no learning rate.
    result = gfgnn.train(network, graph, gfgnn.TrainConfig(iters=iterations))
    print(f"{graph.name}, {network.family} with {network.layers} layers")
    print(describe("without backprop", result))

    # The very same network trained with Adam, stopped after a few seconds.
    config = gfgnn.TrainConfig(solver="adam", max_seconds=adam_seconds)
    print(describe("Adam", gfgnn.train(network, graph, config)))

    # Predictions for every node, by the iterate that was best on the validation nodes.
    predictions = gfgnn.predict(result, graph)
    assert predictions.prediction is not None
    right = predictions.prediction == graph.y
    accuracy = float(right[graph.test_mask].double().mean())
    print(f"{int(right.sum()):,} of {graph.num_nodes:,} papers are classified rightly.")
    return accuracy


def describe(name: str, result: gfgnn.Result) -> str:
    """One line about a run."""
    return (
        f"{name:<17} test accuracy {result.test_accuracy:.3f} after {result.best_iteration} iterations, "
        f"{result.seconds_to_best:.1f} s"
    )


if __name__ == "__main__":
    main()
