"""``gfgnn data``."""

from __future__ import annotations

import json
import warnings
from typing import Annotated, Any

import typer

from gfgnn.checks import InputError
from gfgnn.cli import options as o
from gfgnn.cli.errors import friendly

data_app = typer.Typer(help="Look at data sets.", no_args_is_help=True)


@data_app.command("info")
@friendly
def info_command(
    name: Annotated[
        str, typer.Argument(help="A name, a .npz file, Planetoid:Cora, ogbn-arxiv, synthetic:...")
    ],
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
    as_json: o.Json = False,
) -> None:
    """Print the statistics of a data set and whether it can be trained on."""
    o.show_warnings_plainly()
    from gfgnn.graph.statistics import statistics

    given = o.given(
        name=name, root=root, features=features, split=split, split_seed=split_seed, split_index=split_index,
        normalise=normalise, symmetrise=symmetrise, max_year=max_year, feature_storage=feature_storage,
    )  # fmt: skip
    graph = o.load_graph(given, download=download)
    values = {**statistics(graph), "checks": _checks(graph)}
    if as_json:
        from gfgnn.checkpoint import jsonable

        print(json.dumps(jsonable(values)))
        return
    for key, value in values.items():
        print(f"{key.replace('_', ' '):<18}{_text(value)}")


def _checks(graph: Any) -> list[str]:
    """What stands in the way of training, and what is worth knowing before."""
    from gfgnn.graph.validate import check_trainable

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_trainable(graph)
        except InputError as error:
            return [f"cannot be trained on: {error}"]
    return [str(warning.message) for warning in caught] or ["ready to be trained on"]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list) and value and isinstance(value[0], str):
        return ("\n" + " " * 18).join(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else "-" if value is None else str(value)
