"""Label-rich graphs: the block solver against Adam + BatchNorm, validation accuracy over seconds.

    python benchmarks/label_rich.py tune CASE        Adam's learning rate and dropout, chosen on validation
    python benchmarks/label_rich.py compare CASE     both solvers in turn, 3 seeds, one thread each
    python benchmarks/label_rich.py ablate CASE      5 trained layers, 2 layers, 5 frozen layers
    python benchmarks/label_rich.py report           table and plot from results/label_rich.jsonl

Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names (official edges, labels and split; features are made from the
graph alone). Every run appends one line to results/label_rich.jsonl.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import gfgnn
from gfgnn.train import train

RESULTS = Path(__file__).parent / "results" / "label_rich.jsonl"

#: name -> (layers, hidden, load options, Adam's epochs, solver's iterations)
CASES: dict[str, tuple[int, int, dict[str, Any], int, int]] = {
    "2014-3": (3, 64, {"max_year": 2014, "split": "train=0.6,val=0.2"}, 400, 100),
    "2014-5": (5, 64, {"max_year": 2014, "split": "train=0.6,val=0.2"}, 400, 100),
    "full-3": (3, 128, {}, 220, 120),
}


def load_case(case: str) -> tuple[gfgnn.Graph, gfgnn.ModelConfig]:
    """Graph and network of a case; structure features are computed on the symmetrised graph and cached."""
    layers, hidden, options, _, _ = CASES[case]
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True, **options)
    return graph, gfgnn.ModelConfig(family="gcn", layers=layers, hidden=hidden)


def run(
    case: str, label: str, graph: gfgnn.Graph, model: gfgnn.ModelConfig, config: gfgnn.TrainConfig
) -> dict[str, Any]:
    """Trains once, records the curve, appends it to the results."""
    result = train(model, graph, config)
    curve = [
        [r["iteration"], round(r["seconds"], 3), r["train"], r["val"], r["test"]] for r in result.history
    ]
    line = {
        "case": case, "label": label, "date": time.strftime("%Y-%m-%d %H:%M"), "processor": platform.processor(),
        **result.summary(), "setup_seconds": result.setup_seconds, "settings": result.settings, "curve": curve,
    }  # fmt: skip
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        f"{case} {label} seed {config.seed}: best val {result.val_accuracy:.4f} test {result.test_accuracy:.4f} at "
        f"iteration {result.best_iteration}, {result.seconds_to_best:.1f} s; last test {result.last_test_accuracy:.4f}; "
        f"{result.seconds_per_iteration:.3f} s/iteration",
        flush=True,
    )
    return line


def adam_config(case: str, dropout: float, lr: float, seed: int) -> gfgnn.TrainConfig:
    adam = gfgnn.AdamConfig(lr=lr, dropout=dropout, weight_decay=0.0, batch_norm=True)
    return gfgnn.TrainConfig(
        solver="adam", iters=CASES[case][3], seed=seed, threads=1, patience=60, adam=adam
    )


def tune(case: str) -> None:
    graph, model = load_case(case)
    done = {line["label"] for line in read() if line["case"] == case}
    for lr in (0.01, 0.003):
        for dropout in (0.0, 0.2, 0.5):
            if f"tune adam lr={lr} dropout={dropout}" in done:
                continue
            run(case, f"tune adam lr={lr} dropout={dropout}", graph, model, adam_config(case, dropout, lr, 0))


def tuned(case: str) -> tuple[float, float]:
    """Adam's dropout and learning rate with the best validation accuracy among the tuning runs."""
    lines = [r for r in read() if r["case"] == case and r["label"].startswith("tune adam")]
    if not lines:
        raise SystemExit(f"no tuning runs of {case} in {RESULTS}: run `label_rich.py tune {case}` first")
    best = max(lines, key=lambda r: r["val_accuracy"])["settings"]
    return best["dropout"], best["lr"]


def compare(case: str, seeds: int) -> None:
    graph, model = load_case(case)
    dropout, lr = tuned(case)
    for seed in range(seeds):
        run(case, "adam", graph, model, adam_config(case, dropout, lr, seed))
        config = gfgnn.TrainConfig(iters=CASES[case][4], seed=seed, threads=1)
        run(case, "target", graph, model, config)


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["tune", "compare"])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    tune(args.case) if args.command == "tune" else compare(args.case, args.seeds)


if __name__ == "__main__":
    main()
