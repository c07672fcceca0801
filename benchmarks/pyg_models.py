"""Unmodified PyG modules: trained by ``gfgnn.fit`` and by Adam, which the module itself is then asked about.

    python benchmarks/pyg_models.py run [--cases ...] [--seeds 5]    both, seed by seed, in turn
    python benchmarks/pyg_models.py steps [--seeds 3]                sums over neighbours: the sweep and the polar step
    python benchmarks/pyg_models.py report                            the tables, from results/pyg_models.jsonl

Needs cora.npz and pubmed.npz in the folder that GFGNN_DATA names; citeseer is shipped. Adam has the settings of PyG's
examples ``gcn.py`` and ``gcn2_cora.py``, which are those of the papers: row-normalised features; GCN 200 epochs at .01,
weight decay 5e-4 on the first layer, dropout .5; GCNII 1,000 epochs (``--epochs`` caps them) at .01, weight decay .01
on the propagation layers and 5e-4 on the linear ones, dropout .6. ``fit`` gets the features as they are. Accuracies are
those of the module alone, ``module.eval()(x, edge_index)``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import HERE, append, commit, machine, percent, read
from torch import Tensor
from torch.nn import Linear, Module, ModuleList
from torch_geometric.nn import GCN2Conv
from torch_geometric.nn.models import GCN, GIN, GraphSAGE

import gfgnn

RESULTS = HERE / "results" / "pyg_models.jsonl"
#: case -> (data, layers); 2 layers are PyG's GCN, more the GCNII below
CASES = {
    "cora-gcn-2": ("cora", 2), "cora-gcnii-16": ("cora", 16), "citeseer-gcn-2": ("citeseer", 2),
    "citeseer-gcnii-16": ("citeseer", 16), "pubmed-gcn-2": ("pubmed", 2),
}  # fmt: skip
HIDDEN = 64
#: networks whose sums over the neighbours nothing normalises, and one that is normalised
SUMS: dict[str, tuple[type[Module], dict[str, Any]]] = {
    "gin-2": (GIN, {"num_layers": 2}), "gin-3": (GIN, {"num_layers": 3}),
    "sage-2, sum": (GraphSAGE, {"num_layers": 2, "aggr": "sum"}), "gcn-2": (GCN, {"num_layers": 2}),
}  # fmt: skip


class GCNII(Module):
    """Chen et al. 2020 as a user of PyG writes it."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, layers: int) -> None:
        super().__init__()
        self.lins = ModuleList([Linear(in_channels, hidden), Linear(hidden, out_channels)])
        self.convs = ModuleList(
            [GCN2Conv(hidden, alpha=0.1, theta=0.5, layer=layer + 1) for layer in range(layers)]
        )
        self.dropout = 0.6

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, training=self.training)
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = F.dropout(x, self.dropout, training=self.training)
            x = conv(x, x_0, edge_index).relu()
        x = F.dropout(x, self.dropout, training=self.training)
        return self.lins[1](x).log_softmax(dim=-1)


def network(layers: int, data: Any) -> tuple[Module, list[dict[str, Any]], int]:
    """The module, Adam's groups of parameters with their weight decay, and Adam's epochs."""
    sizes = data.num_features, HIDDEN
    classes = int(data.y.max()) + 1
    if layers == 2:
        gcn = GCN(*sizes, num_layers=2, out_channels=classes, dropout=0.5)
        decays = [(gcn.convs[0], 5e-4), (gcn.convs[1], 0.0)]
        return gcn, [{"params": m.parameters(), "weight_decay": decay} for m, decay in decays], 200
    deep = GCNII(*sizes, classes, layers)
    decayed = [(deep.convs, 0.01), (deep.lins, 5e-4)]
    return deep, [{"params": m.parameters(), "weight_decay": decay} for m, decay in decayed], 1000


def accuracies(module: Module, data: Any) -> tuple[float, float]:
    """Of the module alone: validation, test."""
    module.eval()
    with torch.no_grad():
        right = module(data.x, data.edge_index).argmax(dim=1) == data.y
    return float(right[data.val_mask].double().mean()), float(right[data.test_mask].double().mean())


def load(name: str, normalise: str | None) -> Any:
    data = gfgnn.load(name, normalise=normalise).to_pyg()
    data.x = data.x.to_dense()
    return data


def by_adam(name: str, layers: int, seed: int, epochs: int | None) -> dict[str, Any]:
    data = load(name, "rows")
    torch.manual_seed(seed)
    module, groups, published = network(layers, data)
    optimizer = torch.optim.Adam(groups, lr=0.01)
    best, seconds, to_best, test = (0.0, 0.0), 0.0, 0.0, 0.0
    for _ in range(min(published, epochs or published)):
        started = time.perf_counter()
        module.train()
        optimizer.zero_grad()
        out = module(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        seconds += time.perf_counter() - started
        val, test = accuracies(module, data)
        if val > best[0]:
            best, to_best = (val, test), seconds
    return {
        "val": best[0],
        "test": best[1],
        "last_test": test,
        "seconds": seconds,
        "seconds_to_best": to_best,
    }


def by_fit(name: str, layers: int, seed: int, iters: int | None) -> dict[str, Any]:
    data = load(name, None)
    torch.manual_seed(seed)
    module, _, _ = network(layers, data)
    started = time.perf_counter()
    result = gfgnn.fit(module, data, seed=seed, iters=iters)
    wall = time.perf_counter() - started
    val, test = accuracies(module, data)
    assert result.test_accuracy is not None
    return {
        "val": val, "test": test, "last_test": result.last_test_accuracy, "seconds": result.seconds, "wall": wall,
        "seconds_to_best": result.seconds_to_best, "reported_test": result.test_accuracy,
    }  # fmt: skip


def run(names: list[str], seeds: int, epochs: int | None, iters: int | None, results: Path = RESULTS) -> None:
    torch.set_num_threads(1)
    for name in names:
        data, layers = CASES[name]
        for seed in range(seeds):
            for solver in ("fit", "adam"):
                found = (
                    by_fit(data, layers, seed, iters)
                    if solver == "fit"
                    else by_adam(data, layers, seed, epochs)
                )
                about = {"case": name, "solver": solver, "seed": seed, "epochs": epochs}
                stamp = {"commit": commit(), "machine": machine(), "date": time.strftime("%Y-%m-%d %H:%M:%S")}
                append(results, about | found | stamp | {"threads": 1})
                print(
                    f"{name} {solver} seed {seed}: val {found['val']:.4f} test {found['test']:.4f}, last "
                    f"{found['last_test']:.4f}, {found['seconds_to_best']:.2f} of {found['seconds']:.2f} s", flush=True,
                )  # fmt: skip


def steps(name: str, seeds: int, iters: int | None, results: Path = RESULTS) -> None:
    """Both steps of the block solver, whatever its rule would choose."""
    torch.set_num_threads(1)
    data = load(name, None)
    for case, (kind, options) in SUMS.items():
        for step in ("sweep", "polar"):
            for seed in range(seeds):
                module = kind(data.num_features, HIDDEN, out_channels=int(data.y.max()) + 1, **options)
                config = gfgnn.TrainConfig(seed=seed, iters=iters or 40, target=gfgnn.TargetConfig(step=step))
                result = gfgnn.fit(module, data, config)
                found = {
                    "val": result.val_accuracy, "test": result.test_accuracy, "seconds": result.seconds,
                    "last_test": result.last_test_accuracy, "seconds_to_best": result.seconds_to_best,
                }  # fmt: skip
                about = {"case": case, "solver": step, "seed": seed, "data": name}
                append(results, about | found | {"commit": commit(), "machine": machine(), "threads": 1})
                print(
                    f"{case} {step} seed {seed}: test {found['test']:.4f}, last {found['last_test']:.4f}",
                    flush=True,
                )


def report(results: Path = RESULTS) -> None:
    """Prints the tables: means and standard deviations over seeds, medians of seconds."""
    latest = {(line["case"], line["solver"], line["seed"]): line for line in read(results)}
    print(
        "| module | solver | seeds | test at best validation | last test | seconds to best | seconds in all |"
    )
    print("|---|---|---|---|---|---|---|")
    pairs = [(case, solver) for case in CASES for solver in ("fit", "adam")]
    pairs += [(case, step) for case in SUMS for step in ("sweep", "polar")]
    for case, solver in pairs:
        lines = [line for (c, s, _), line in latest.items() if (c, s) == (case, solver)]
        if lines:
            best, last = (percent([line[key] for line in lines]) for key in ("test", "last_test"))
            to_best, total = (
                statistics.median(line[key] for line in lines) for key in ("seconds_to_best", "seconds")
            )
            print(f"| {case} | {solver} | {len(lines)} | {best} | {last} | {to_best:.2f} | {total:.2f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "steps", "report"))
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--data", default="cora", help="of steps")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="caps Adam's epochs")
    parser.add_argument("--iters", type=int, help="iterations of the block solver")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        run(given.cases, given.seeds, given.epochs, given.iters, given.results)
    elif given.command == "steps":
        steps(given.data, given.seeds, given.iters, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
