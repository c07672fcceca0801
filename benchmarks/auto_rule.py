"""The ``auto`` rule against hand settings, on graphs it was not fitted on.

    python benchmarks/auto_rule.py run [--cases ...]    auto and five hand settings around it, every seed
    python benchmarks/auto_rule.py report               the table, from results/auto_rule.jsonl

The rule was fitted on Cora, PubMed and arxiv. Needs the .npz files in the folder that GFGNN_DATA names; citeseer is
shipped. Hand settings are compared by their *test* accuracy: the best of them is what a user could at most have found.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from typing import Any

from common import HERE, read, run

import gfgnn

RESULTS = HERE / "results" / "auto_rule.jsonl"
DRAWN = "per_class=20,val_per_class=30"

#: name -> (load options, layers, seeds, iterations)
CASES: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "citeseer": ({}, 2, 3, 40),
    "amazon_photo": ({"split": DRAWN, "normalise": "rows"}, 2, 3, 40),
    "amazon_computers": ({"split": DRAWN, "normalise": "rows"}, 2, 3, 40),
    "coauthor_cs": ({"split": DRAWN, "normalise": "rows"}, 2, 2, 30),
    "actor": ({}, 2, 3, 40),
    "geo_koppen_0p2deg": ({"normalise": "columns"}, 3, 1, 30),
}


def variants(settings: dict[str, Any]) -> dict[str, gfgnn.TargetConfig]:
    """What a user would try around the rule's choice."""
    encoder, output = settings["ridge_encoder"], settings["ridge_output"]
    other = "polar" if settings["step"] == "sweep" else "sweep"
    return {
        "encoder ridge x 1/3": gfgnn.TargetConfig(ridge_encoder=encoder / 3),
        "encoder ridge x 3": gfgnn.TargetConfig(ridge_encoder=encoder * 3),
        "output ridge x 1/3": gfgnn.TargetConfig(ridge_output=output / 3),
        "output ridge x 3": gfgnn.TargetConfig(ridge_output=output * 3),
        f"{other} step": gfgnn.TargetConfig(step=other),
    }


def compare(names: list[str]) -> None:
    for name in names:
        options, layers, seeds, iters = CASES[name]
        drawn = "split" in options
        for seed in range(seeds):
            graph = gfgnn.load(name, **options, **({"split_seed": seed} if drawn else {}))
            model = gfgnn.ModelConfig(family="gcn", layers=layers, hidden=64)
            every = 5 if graph.num_nodes > 100_000 else 1
            config = gfgnn.TrainConfig(iters=iters, seed=seed, threads=1, eval_every=every)
            auto = run(RESULTS, model, graph, config, case=name, label="auto")
            for label, target in variants(auto["settings"]).items():
                run(RESULTS, model, graph, replace(config, target=target), case=name, label=label)


def report() -> None:
    """Prints mean test accuracies and the gap of auto to the best hand setting."""
    latest = {(line["case"], line["label"], line["seed"]): line for line in read(RESULTS)}
    print("| data | step chosen | auto | best hand setting | gap |\n|---|---|---|---|---|")
    for name in CASES:
        scores: dict[str, list[float]] = {}
        for (case, label, _), line in latest.items():
            if case == name:
                scores.setdefault(label, []).append(line["test_accuracy"])
        if "auto" not in scores:
            continue
        means = {label: statistics.mean(values) for label, values in scores.items()}
        auto = means.pop("auto")
        best = max(means, key=lambda label: means[label])
        step = next(
            line["settings"]["step"]
            for (case, label, _), line in latest.items()
            if case == name and label == "auto"
        )
        print(
            f"| {name} | {step} | {auto:.4f} | {means[best]:.4f} ({best}) | {100 * (auto - means[best]):+.1f} points |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    compare(options.cases) if options.command == "run" else report()


if __name__ == "__main__":
    main()
