"""``gfgnn partition``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgnn.checks import InputError
from gfgnn.cli import options as o

if TYPE_CHECKING:
    from gfgnn.graph.partition import Partition

PANEL = "Partition"


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


def partition_command(
    parts: Annotated[int, _option("Number of parts.")],
    out: Annotated[Path, _option("File for the partition, .npz.")],
    data: o.Data = None,
    root: o.Root = None,
    features: o.Features = None,
    split: o.Split = None,
    split_seed: o.SplitSeed = None,
    split_index: o.SplitIndex = None,
    normalise: o.Normalise = None,
    symmetrise: o.Symmetrise = None,
    max_year: o.MaxYear = None,
    feature_storage: o.FeatureStorage = None,
    download: o.Download = False,
    method: Annotated[str, _option("auto, pymetis, metis or ldg.")] = "auto",
    balance: Annotated[
        str, _option("What to balance: nodes, edges, labelled, or several: nodes,labelled.")
    ] = "nodes",
    shares: Annotated[str | None, _option("Sizes relative to each other, such as 1,1,2 (equal).")] = None,
    imbalance: Annotated[float, _option("How far above its share a part may go.")] = 0.03,
    seed: Annotated[int, _option("Seed of the method.")] = 0,
    overwrite: Annotated[bool, _option("Replace the file where it exists.", "--overwrite")] = False,
    as_json: o.Json = False,
) -> None:
    """Divide the nodes of a graph into parts with few edges between them."""
    o.show_warnings_plainly()
    if out.is_dir() or (out.exists() and not overwrite):  # before the work, which may take long
        raise InputError(
            f"{out} is a folder; --out takes a file."
            if out.is_dir()
            else f"{out} exists; choose another file, or add --overwrite to replace it."
        )
    target_shares = None if shares is None else _numbers(shares)
    from gfgnn.data.partition_file import save_partition
    from gfgnn.graph.partition import partition_nodes

    graph = o.load_graph(
        o.given(
            name=data, root=root, features=features, split=split, split_seed=split_seed, split_index=split_index,
            normalise=normalise, symmetrise=symmetrise, max_year=max_year, feature_storage=feature_storage,
        ),
        download=download,
    )  # fmt: skip
    partition = partition_nodes(
        graph,
        parts,
        method=method,
        balance=tuple(kind.strip() for kind in balance.split(",")),
        target_shares=target_shares,
        imbalance=imbalance,
        seed=seed,
    )
    save_partition(out, partition)
    if as_json:
        print(json.dumps(_summary(graph.name, partition)))
        return
    print(f"{graph.name}: {partition.describe()}")
    print(f"Written to {out}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise InputError(
            f"--shares must be numbers separated by commas, such as 1,1,2; got {text!r}."
        ) from None


def _summary(dataset: str, partition: Partition) -> dict[str, Any]:
    """The object of ``--json``: everything but the assignment, with the report's entries beside the others."""
    names = ("num_parts", "method", "seed", "fingerprint", "notes")
    return {
        "dataset": dataset,
        "num_nodes": partition.assignment.numel(),
        **{name: getattr(partition, name) for name in names},
        "balanced": partition.balance,
        **asdict(partition.report),
    }
