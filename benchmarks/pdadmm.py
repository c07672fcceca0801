"""pdADMM-G as its authors train it, beside their published accuracies.

    python benchmarks/pdadmm.py run [--cases ...] [--seeds 5] [--neurons 100]
    python benchmarks/pdadmm.py report                          the table, from results/pdadmm.jsonl

Ten linear layers on X, S X, ..., S^4 X of row-normalised features, grown 2, 5, 10 (200, 10 and 100 iterations), with
nu = rho = .001 that rise where the loss stalls; and two layers. Of ten layers the test accuracy is that of the best
iterate on validation from the iteration on at which all have joined. Graphs without a published split get 20 training
nodes a class (the paper's numbers of training nodes) and 30 for validation, drawn anew for every seed. Needs cora,
pubmed, amazon_computers, amazon_photo and coauthor_cs as .npz in the folder that GFGNN_DATA names; citeseer is shipped.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from common import HERE, percent, read, run

import gfgnn

RESULTS = HERE / "results" / "pdadmm.jsonl"
#: Wang et al. 2021, ten layers of 500 neurons
PUBLISHED = {
    "cora": 0.786, "citeseer": 0.713, "pubmed": 0.786, "amazon_computers": 0.751, "amazon_photo": 0.873,
    "coauthor_cs": 0.920,
}  # fmt: skip
DRAWN = ("amazon_computers", "amazon_photo", "coauthor_cs")
COLUMNS = ("iteration", "seconds", "train", "val", "test")
GROWTH, JOINED, ITERS = "2,5@200,10@210", 210, 310


def train_all(names: list[str], seeds: int, neurons: int, iters: int | None, results: Path) -> None:
    for name in names:
        for seed in range(seeds):
            graph = load(name, seed)
            for layers in (10, 2):
                model = gfgnn.ModelConfig(family="sign", layers=4, hidden=neurons, mlp_layers=layers)
                grow = GROWTH if layers == 10 and iters is None else None
                most = iters or (ITERS if layers == 10 else 200)
                config = gfgnn.TrainConfig(
                    solver="pdadmm-g", iters=most, seed=seed, threads=1, eval_every=2,
                    pdadmm=gfgnn.PdadmmConfig(nu=1e-3, rho=1e-3, raise_penalties=True, grow=grow),
                )  # fmt: skip
                run(
                    results,
                    model,
                    graph,
                    config,
                    columns=COLUMNS,
                    case=name,
                    label=f"{layers} layers",
                    neurons=neurons,
                )


def load(name: str, seed: int) -> gfgnn.Graph:
    split = "per_class=20,val_per_class=30" if name in DRAWN else None
    return gfgnn.load(name, normalise="rows", split=split, split_seed=seed if name in DRAWN else 0)


def at_full_depth(line: dict[str, Any]) -> float:
    """Test accuracy of the best iterate on validation among those of the whole network."""
    curve = [dict(zip(line["columns"], record, strict=True)) for record in line["curve"]]
    grown = line["settings"]["grow"] is not None
    whole = [c for c in curve if c["val"] is not None and (not grown or c["iteration"] >= JOINED)]
    return float(max(whole, key=lambda c: c["val"])["test"])


def report(results: Path) -> None:
    latest = {(line["case"], line["label"], line["neurons"], line["seed"]): line for line in read(results)}
    print("| data | network | seeds | neurons | test | published, 10 layers of 500 | seconds in all |")
    print("|---|---|---|---|---|---|---|")
    for case, label, neurons in sorted({key[:3] for key in latest}):
        lines = [line for key, line in latest.items() if key[:3] == (case, label, neurons)]
        if lines:
            found = percent([at_full_depth(line) for line in lines])
            published = f"{100 * PUBLISHED[case]:.1f}" if label == "10 layers" and case in PUBLISHED else ""
            seconds = statistics.median(line["seconds"] for line in lines)
            shown = f"{found} | {published} | {seconds:.1f}"
            print(f"| {case} | {label} | {len(lines)} | {neurons} | {shown} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--cases", nargs="+", default=list(PUBLISHED))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--neurons", type=int, default=500)
    parser.add_argument("--iters", type=int, help="of all layers at once, in place of the growth")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        train_all(given.cases, given.seeds, given.neurons, given.iters, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
