"""Peak memory of ranks against its prediction.

    python benchmarks/grid_memory.py run [--models gcn gcnii] [--grids 1x1 ...] [--kept] [--storage bf16] [--recompute]
    python benchmarks/grid_memory.py report

arxiv with structure features, 8 layers, hidden 128, three iterations, one thread a rank; PxK means P parts by K
stages, asynchronous with staleness 1. Needs ogbn_arxiv.npz in the folder that GFGNN_DATA names. The grid 1x1 runs
in a rank process like any other, so that the memory of loading and cutting the graph does not count.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import HERE, append, commit, machine, read

import gfgnn
from gfgnn.config import TargetConfig
from gfgnn.launch.grid import train_on_grid
from gfgnn.model.build import build_model
from gfgnn.plan.memory import PartMemory, rank_memory
from gfgnn.planning import make_plan
from gfgnn.shards import make_shards

RESULTS = HERE / "results" / "grid_memory.jsonl"
GRIDS = ("1x1", "2x1", "4x1", "1x2", "1x4", "2x2")


def run(models: list[str], grids: list[str], ways: list[bool], target: TargetConfig) -> None:
    import torch

    settings = {"storage": target.storage, "recompute": target.recompute}
    graph = gfgnn.load("ogbn_arxiv", features="structure", symmetrise=True)
    for family in models:
        model = build_model(gfgnn.ModelConfig(family=family, layers=8, hidden=128), graph)
        for grid in grids:
            parts, stages = (int(number) for number in grid.split("x"))
            for lean in ways:
                config = gfgnn.TrainConfig(
                    iters=3,
                    threads=1,
                    parts=parts,
                    stages=stages,
                    staleness=int(stages > 1),
                    lean=lean,
                    target=target,
                )
                plan = make_plan(model, graph, config)
                shards = make_shards(
                    model, graph, plan.assignment(graph.num_nodes), parts, dtype=torch.float32
                )
                held = [PartMemory.of(shard) for shard in shards]
                with TemporaryDirectory() as logs:
                    _, ranks = train_on_grid(model, graph, config, plan, folder=Path(logs) / "ranks")
                rows = []
                for rank in ranks:
                    memory = rank_memory(
                        model, plan.stages.bounds, rank["stage"], held[rank["part"]],
                        staleness=config.staleness, itemsize=4, **settings,
                    )  # fmt: skip
                    widest = max(memory.moments, key=lambda name: memory.moments[name])
                    rows.append(
                        {k: rank[k] for k in ("rank", "part", "stage", "blocks", "nodes", "halo")}
                        | {"measured": rank["peak_rss_bytes"], "predicted": memory.peak, "widest": widest}
                    )
                line = {
                    "case": family, "label": grid, "lean": lean, "date": time.strftime("%Y-%m-%d %H:%M:%S"),
                    "commit": commit(), "machine": machine(), "ranks": rows, **settings,
                }  # fmt: skip
                append(RESULTS, line)
                print(_row(line), flush=True)


def report() -> None:
    """The latest run of each grid."""
    told = ("case", "label", "lean", "storage", "recompute")
    latest = {tuple(line.get(name) or False for name in told): line for line in read(RESULTS)}
    print("| network | grid | freed memory | predicted MB | measured MB | measured / predicted, each rank |")
    print("|---|---|---|---|---|---|")
    for line in latest.values():
        print(_row(line))


def _row(line: dict[str, Any]) -> str:
    ranks = line["ranks"]
    measured, predicted = (max(rank[name] for rank in ranks) / 1e6 for name in ("measured", "predicted"))
    ratios = ", ".join(f"{rank['measured'] / rank['predicted']:.2f}" for rank in ranks)
    freed = "given back (`--lean`)" if line["lean"] else "kept"
    kept = f", {line['storage']}" if line.get("storage") else ""
    kept += ", recompute" if line.get("recompute") else ""
    name = f"{line['case']}, 8 layers{kept}"
    return f"| {name} | {line['label']} | {freed} | {predicted:.0f} | {measured:.0f} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--models", nargs="+", default=["gcn", "gcnii"])
    runs.add_argument("--kept", action="store_true", help="also without --lean")
    runs.add_argument("--grids", nargs="+", choices=GRIDS, default=list(GRIDS))
    runs.add_argument("--storage", choices=("bf16", "fp16"))
    runs.add_argument("--recompute", action="store_true")
    commands.add_parser("report")
    given = parser.parse_args()
    if given.command == "run":
        target = TargetConfig(storage=given.storage, recompute=given.recompute)
        run(given.models, given.grids, [True, False] if given.kept else [True], target)
    else:
        report()


if __name__ == "__main__":
    main()
