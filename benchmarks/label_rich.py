"""Label-rich graphs: the block solver against Adam + BatchNorm, validation accuracy over seconds.

    python benchmarks/label_rich.py tune CASE        Adam's learning rate and dropout, chosen on validation
    python benchmarks/label_rich.py compare CASE     both solvers in turn, one thread each
    python benchmarks/label_rich.py ablate           2 layers, 5 layers with the hidden ones frozen, 5 trained layers
    python benchmarks/label_rich.py report           tables and plot from results/label_rich.jsonl

Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names (official edges, labels and split; features are made from the
graph alone, so nothing here may stand beside leaderboard rows).
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from common import HERE, read, run

import gfgnn

RESULTS = HERE / "results" / "label_rich.jsonl"
PLOT = HERE.parent / "docs" / "images" / "label_rich.png"
UP_TO_2014 = {"max_year": 2014, "split": "train=0.6,val=0.2"}

#: name -> (layers, hidden, load options, Adam's epochs, solver's iterations)
CASES: dict[str, tuple[int, int, dict[str, Any], int, int]] = {
    "2014-3": (3, 64, UP_TO_2014, 400, 150),
    "2014-5": (5, 64, UP_TO_2014, 400, 150),
    "full-3": (3, 128, {}, 230, 200),
}
FRACTIONS = (0.25, 0.5, 1.0)
Line = dict[str, Any]


def load_case(case: str, layers: int | None = None) -> tuple[gfgnn.Graph, gfgnn.ModelConfig]:
    """Graph and network of a case; structure features are computed on the symmetrised graph and cached."""
    own, hidden, options, _, _ = CASES[case]
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True, **options)
    return graph, gfgnn.ModelConfig(family="gcn", layers=layers or own, hidden=hidden)


def adam_config(case: str, dropout: float, lr: float, seed: int) -> gfgnn.TrainConfig:
    adam = gfgnn.AdamConfig(lr=lr, dropout=dropout, weight_decay=0.0, batch_norm=True)
    return gfgnn.TrainConfig(
        solver="adam", iters=CASES[case][3], seed=seed, threads=1, patience=60, adam=adam
    )


def tune(case: str) -> None:
    """Adam's grid; settings already in the results are not tried again."""
    graph, model = load_case(case)
    done = {line["label"] for line in read(RESULTS) if line["case"] == case}
    for lr in (0.01, 0.003):
        for dropout in (0.0, 0.2, 0.5):
            label = f"tune adam lr={lr} dropout={dropout}"
            if label not in done:
                run(RESULTS, model, graph, adam_config(case, dropout, lr, 0), case=case, label=label)


def tuned(case: str) -> tuple[float, float]:
    """Adam's dropout and learning rate with the best validation accuracy among the tuning runs."""
    lines = [r for r in read(RESULTS) if r["case"] == case and r["label"].startswith("tune adam")]
    if not lines:
        raise SystemExit(f"no tuning runs of {case} in {RESULTS}: run `label_rich.py tune {case}` first")
    best = max(lines, key=lambda r: r["val_accuracy"])["settings"]
    return best["dropout"], best["lr"]


def compare(case: str, seeds: int) -> None:
    """Adam and the block solver in turn, so that a slower minute hits both."""
    graph, model = load_case(case)
    dropout, lr = tuned(case)
    for seed in range(seeds):
        run(RESULTS, model, graph, adam_config(case, dropout, lr, seed), case=case, label="adam")
        config = gfgnn.TrainConfig(iters=CASES[case][4], seed=seed, threads=1)
        run(RESULTS, model, graph, config, case=case, label="target")


def ablate(seeds: int) -> None:
    """Does training the hidden layers pay, and do more of them?"""
    for layers, frozen in ((2, False), (5, True), (5, False)):
        graph, model = load_case("2014-5", layers)
        for seed in range(seeds):
            target = gfgnn.TargetConfig(freeze_hidden=frozen)
            config = gfgnn.TrainConfig(iters=100, seed=seed, threads=1, eval_every=5, target=target)
            label = f"{layers} layers" + (", hidden ones frozen" if frozen else "")
            run(RESULTS, model, graph, config, case="ablate", label=label)


def best_so_far(line: Line, seconds: float) -> float:
    """Validation accuracy of the best iterate up to ``seconds`` of training; 0 where there was none yet."""
    return max((row[3] for row in line["curve"] if row[1] <= seconds), default=0.0)


def runs(case: str, label: str) -> dict[int, Line]:
    """The latest run of each seed."""
    return {line["seed"]: line for line in read(RESULTS) if line["case"] == case and line["label"] == label}


def report() -> None:
    """Prints the tables as Markdown and draws the curves."""
    print("| case | solver | at 25% | at 50% | at 100% | best val | test there | last test | s/iteration |")
    print("|---|---|---|---|---|---|---|---|---|")
    shown = [case for case in CASES if runs(case, "adam") and runs(case, "target")]
    for case in shown:
        adam, target = runs(case, "adam"), runs(case, "target")
        seeds = sorted(adam.keys() & target.keys())
        for label, lines in (("Adam", adam), ("block solver", target)):
            at = [
                _mean(best_so_far(lines[s], f * adam[s]["seconds_to_best"]) for s in seeds) for f in FRACTIONS
            ]
            cells = [f"{value:.4f}" for value in at]
            cells += [
                _spread(lines[s][k] for s in seeds)
                for k in ("val_accuracy", "test_accuracy", "last_test_accuracy")
            ]
            cells.append(f"{statistics.median(lines[s]['seconds_per_iteration'] for s in seeds):.3f}")
            print(f"| {case}, {len(seeds)} seeds | {label} | " + " | ".join(cells) + " |")
    for case in shown:
        dropout, lr = tuned(case)
        seconds = _mean(line["seconds_to_best"] for line in runs(case, "adam").values())
        print(f"\n{case}: Adam with lr {lr}, dropout {dropout}; {seconds:.0f} s to its best on average.")
    print()
    for label in ("2 layers", "5 layers, hidden ones frozen", "5 layers"):
        if lines := runs("ablate", label):
            scores = {k: _spread(r[k] for r in lines.values()) for k in ("val_accuracy", "test_accuracy")}
            print(f"| {label} | {scores['val_accuracy']} | {scores['test_accuracy']} |")
    draw(shown)


def draw(cases: list[str]) -> None:
    """Validation accuracy over seconds, every run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(cases), figsize=(4.6 * len(cases), 3.4), squeeze=False)
    for axis, case in zip(axes[0], cases, strict=True):
        for label, colour, name in (
            ("adam", "tab:orange", "Adam + BatchNorm, tuned"),
            ("target", "tab:blue", "gfgnn"),
        ):
            for number, line in enumerate(runs(case, label).values()):
                seconds, val = [row[1] for row in line["curve"]], [row[3] for row in line["curve"]]
                axis.plot(seconds, val, color=colour, alpha=0.7, linewidth=1, label=None if number else name)
        layers, hidden, options, _, _ = CASES[case]
        where = "papers to 2014" if options else "arxiv, split by year"
        axis.set(
            title=f"{where}, {layers} layers, {hidden} wide",
            xlabel="training seconds, 1 thread",
            xscale="log",
        )
        axis.set_ylim(bottom=max(0.0, axis.get_ylim()[1] - 0.15))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("validation accuracy")
    axes[0][0].legend(loc="lower right")
    figure.tight_layout()
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=130)


def _mean(values: Any) -> float:
    return statistics.mean(list(values))


def _spread(values: Any) -> str:
    listed = list(values)
    return f"{statistics.mean(listed):.4f} ± {statistics.stdev(listed) if len(listed) > 1 else 0.0:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["tune", "compare", "ablate", "report"])
    parser.add_argument("case", nargs="?", choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.command in ("tune", "compare") and options.case is None:
        parser.error(f"{options.command} needs a case: {', '.join(CASES)}")
    if options.command == "tune":
        tune(options.case)
    elif options.command == "compare":
        compare(options.case, options.seeds)
    elif options.command == "ablate":
        ablate(options.seeds)
    else:
        report()


if __name__ == "__main__":
    main()
