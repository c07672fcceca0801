"""``gfgnn.nn`` against PyG's own layers: forward and backward of one layer, in turn.

    python benchmarks/nn_layers.py [--nodes 20000 --edges 200000 --width 64 --rounds 15]

Prints medians and the median of the ratios within a round; one thread. Nothing is stored.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
import torch_geometric.nn as pyg

import gfgnn.nn as ours

LAYERS = {"GCNConv": {}, "SAGEConv": {}, "GCN2Conv": {"alpha": 0.1}, "SGConv": {"K": 2}}


def seconds(layer: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor) -> float:
    """One forward and backward pass."""
    started = time.perf_counter()
    out = layer(x, x, edge_index) if isinstance(layer, pyg.GCN2Conv) else layer(x, edge_index)
    out.square().mean().backward()
    return time.perf_counter() - started


def pair(name: str, width: int) -> tuple[Any, Any]:
    """PyG's layer and ours, with the same weights."""
    sizes = (width,) if name == "GCN2Conv" else (width, width)
    theirs, mine = (getattr(package, name)(*sizes, **LAYERS[name]) for package in (pyg, ours))
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("nodes", 20_000), ("edges", 200_000), ("width", 64), ("rounds", 15)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(given.nodes, (2, given.edges // 2), generator=generator)
    edge_index = torch.cat([half, half.flip(0)], dim=1)
    x = torch.randn(given.nodes, given.width, generator=generator, requires_grad=True)
    print("| layer | PyG, ms | gfgnn.nn, ms | PyG / gfgnn |\n|---|---|---|---|")
    for name in LAYERS:
        theirs, mine = pair(name, given.width)
        for layer in (theirs, mine):
            seconds(layer, x, edge_index)  # the first call sorts the edges
        rounds = [(seconds(theirs, x, edge_index), seconds(mine, x, edge_index)) for _ in range(given.rounds)]
        medians = [1000 * statistics.median(times) for times in zip(*rounds, strict=True)]
        ratio = statistics.median(a / b for a, b in rounds)
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
