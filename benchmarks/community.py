"""Community-based layerwise ADMM on graphs of its authors' program, with one community and with three.

    python benchmarks/community.py run [--cases ...] [--seeds 5] [--hidden 128]
    python benchmarks/community.py report                      the table, from results/community.jsonl

Two layers without bias, nu = rho = .001. Cora, CiteSeer and PubMed: public splits, features as they are, and a ridge,
as in that program. Amazon Photo and Computers: row-normalised features, no ridge, and for every seed a new split of 100
training nodes a class, as in that program, and 30 a class for validation, which it has not; test takes the rest. Three
communities are parts of a partition, on threads. Needs cora.npz, pubmed.npz, amazon_photo.npz and amazon_computers.npz
in the folder that GFGNN_DATA names.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from common import HERE, percent, read, run

import gfgnn

RESULTS = HERE / "results" / "community.jsonl"
SPLIT = "per_class=100,val_per_class=30"
#: case -> (data, what is drawn of it, features, ridge)
CASES: dict[str, tuple[str, str | None, str | None, float]] = {
    "cora": ("cora", None, None, 0.01),
    "citeseer": ("citeseer", None, None, 0.01),
    "pubmed": ("pubmed", None, None, 0.01),
    "photo": ("amazon_photo", SPLIT, "rows", 0.0),
    "computers": ("amazon_computers", SPLIT, "rows", 0.0),
}
COMMUNITIES = (1, 3)
COLUMNS = ("iteration", "seconds", "train", "val", "test")


def train_all(
    names: list[str], seeds: int, hidden: int, iters: int, settings: dict[str, str], results: Path
) -> None:
    for name in names:
        data, split, normalise, ridge = CASES[name]
        model = gfgnn.ModelConfig(family="gcn", layers=2, hidden=hidden, bias=False)
        community = gfgnn.CommunityConfig(ridge=ridge, **settings)
        for seed in range(seeds):
            drawn = {} if split is None else {"split": split, "split_seed": seed}
            graph = gfgnn.load(data, normalise=normalise, **drawn)
            for count in COMMUNITIES:
                config = gfgnn.TrainConfig(
                    solver="community-admm", iters=iters, seed=seed, threads=1, parts=count, backend="thread",
                    community=community,
                )  # fmt: skip
                label = ", ".join([f"communities {count}", *settings.values()])
                run(results, model, graph, config, columns=COLUMNS, case=name, label=label, hidden=hidden)


def report(results: Path) -> None:
    """Means and standard deviations over seeds; iterations are medians."""
    latest = {(line["case"], line["label"], line["hidden"], line["seed"]): line for line in read(results)}
    print("| data | steps | seeds | hidden | test at best validation | last test | best at |")
    print("|---|---|---|---|---|---|---|")
    for case, label, hidden in sorted({key[:3] for key in latest}):
        lines = [line for key, line in latest.items() if key[:3] == (case, label, hidden)]
        best, last = (
            percent([line[key] for line in lines]) for key in ("test_accuracy", "last_test_accuracy")
        )
        at = statistics.median(line["best_iteration"] for line in lines)
        print(f"| {case} | {label} | {len(lines)} | {hidden} | {best} | {last} | {at:.0f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--iters", type=int, default=100)
    parser.add_argument("--nodes", choices=("all", "train"), help="whose scores count, in place of train")
    parser.add_argument("--layers", choices=("parallel", "sweep"), help="in place of parallel")
    parser.add_argument("--steps", choices=("community", "joint"), help="in place of community")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    settings = {
        name: value for name in ("nodes", "layers", "steps") if (value := getattr(given, name)) is not None
    }
    if given.command == "run":
        train_all(given.cases, given.seeds, given.hidden, given.iters, settings, given.results)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
