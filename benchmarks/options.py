"""What the block solver's savings cost: 16-bit activations, recomputation, Gram matrices that serve several iterations.

    python benchmarks/options.py run [--cases ...] [--seeds 3]     accuracy and time, option by option, in turn
    python benchmarks/options.py memory [--layers 16]              peaks of one process each, arxiv, hidden 128
    python benchmarks/options.py report                            the tables, from results/options.jsonl

Needs cora.npz and ogbn_arxiv.npz in the folder that GFGNN_DATA names; citeseer is shipped. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from common import HERE, append, held, percent, read, run

import gfgnn
from gfgnn.config import TargetConfig
from gfgnn.ops.memory import keep_freed_memory, release_freed_memory, return_freed_memory

RESULTS = HERE / "results" / "options.jsonl"
OPTIONS = {
    "plain": TargetConfig(),
    "bf16": TargetConfig(storage="bf16"),
    "fp16": TargetConfig(storage="fp16"),
    "recompute": TargetConfig(recompute=True),
    "recompute, bf16": TargetConfig(recompute=True, storage="bf16"),
    "Gram every 4": TargetConfig(gram_every=4),
}
#: case -> (data, family, layers, hidden, iterations, evaluated every)
CASES = {
    "cora-gcnii-16": ("cora", "gcnii", 16, 64, 40, 1),
    "citeseer-gcnii-16": ("citeseer", "gcnii", 16, 64, 40, 1),
    "cora-gcn-8": ("cora", "gcn", 8, 64, 40, 1),
    "arxiv-gcn-3": ("ogbn_arxiv", "gcn", 3, 128, 60, 10),
}


def load(data: str) -> gfgnn.Graph:
    return gfgnn.load(data, **({"features": "structure", "symmetrise": True} if data == "ogbn_arxiv" else {}))


def train_all(cases: list[str], seeds: int, results: Path) -> None:
    for case in cases:
        data, family, layers, hidden, iters, every = CASES[case]
        graph = load(data)
        for seed in range(seeds):
            for label, target in OPTIONS.items():
                model = gfgnn.ModelConfig(family=family, layers=layers, hidden=hidden)
                config = gfgnn.TrainConfig(iters=iters, seed=seed, threads=1, eval_every=every, target=target)
                run(
                    results,
                    model,
                    graph,
                    config,
                    columns=("iteration", "val", "test"),
                    case=case,
                    label=label,
                )


def memory(layers: int, results: Path) -> None:
    for label in OPTIONS:
        for lean in (False, True):
            call = [sys.executable, __file__, "peak", "--layers", str(layers), "--only", label]
            done = subprocess.run(
                call + ["--lean"] * lean, capture_output=True, text=True, check=True, timeout=900
            )
            line = {"case": "memory", "label": label, "layers": layers, "lean": lean}
            line |= json.loads(done.stdout.splitlines()[-1])
            append(results, line)
            print(line, flush=True)


def peak(layers: int, only: str, lean: bool) -> None:
    """Bytes held before the first iteration, and the most that two iterations hold (Linux)."""
    from gfgnn.model.build import build_model
    from gfgnn.problem import prepare
    from gfgnn.train import make_solver

    torch.set_num_threads(1)
    return_freed_memory() if lean else keep_freed_memory()
    graph = load("ogbn_arxiv")
    model = build_model(gfgnn.ModelConfig(family="gcn", layers=layers, hidden=128), graph)
    problem = prepare(model, graph)
    solver = make_solver(gfgnn.TrainConfig(iters=100, target=OPTIONS[only]), model)
    with torch.inference_mode():
        state = solver.init(problem, torch.Generator().manual_seed(0))
        release_freed_memory()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        before = held("VmRSS")
        for _ in range(2):
            state, _info = solver.step(problem, state)
    print(json.dumps({"before": before, "peak": held("VmHWM")}))


def report(results: Path) -> None:
    """Means and standard deviations over seeds; times are medians."""
    lines = read(results)
    latest: dict[tuple[Any, ...], dict[str, Any]] = {
        (line["case"], line["label"], line["seed"]): line for line in lines if line["case"] != "memory"
    }
    print("| case | option | seeds | test at best validation | last test | best at | ms/iteration |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        for label in OPTIONS:
            runs = [line for key, line in latest.items() if key[:2] == (case, label)]
            if runs:
                best, last = (
                    percent([line[key] for line in runs]) for key in ("test_accuracy", "last_test_accuracy")
                )
                at, each = (
                    statistics.median(line[key] for line in runs)
                    for key in ("best_iteration", "seconds_per_iteration")
                )
                print(f"| {case} | {label} | {len(runs)} | {best} | {last} | {at:g} | {1000 * each:.1f} |")
    peaks = {
        (line["layers"], line["label"], line["lean"]): line for line in lines if line["case"] == "memory"
    }
    print("\n| layers | option | MB before | MB more at the peak | with `--lean` |")
    print("|---|---|---|---|---|")
    for layers, label in dict.fromkeys(key[:2] for key in peaks):
        kept, lean = (peaks.get((layers, label, way)) for way in (False, True))
        if kept and lean:
            more, less = ((line["peak"] - line["before"]) / 1e6 for line in (kept, lean))
            print(f"| {layers} | {label} | {kept['before'] / 1e6:.0f} | {more:.0f} | {less:.0f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "memory", "peak", "report"))
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--only", choices=tuple(OPTIONS), default="plain")
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "run":
        train_all(given.cases, given.seeds, given.results)
    elif given.command == "memory":
        memory(given.layers, given.results)
    elif given.command == "peak":
        peak(given.layers, given.only, given.lean)
    else:
        report(given.results)


if __name__ == "__main__":
    main()
