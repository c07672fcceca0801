"""Options that several commands share, and how they become settings.

Every option defaults to None, which means *not given*: then the value of ``--config`` or the default of the settings
class stands.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from gfgnn.checks import InputError
from gfgnn.cli.errors import ends_in_order

POST = "After training"

Data = Annotated[
    str | None,
    typer.Option(
        help="Data set: a name, a .npz file, Planetoid:Cora, ogbn-arxiv, synthetic:...",
        rich_help_panel="Data",
    ),
]
Root = Annotated[str | None, typer.Option(help="Folder to look in first.", rich_help_panel="Data")]
Features = Annotated[
    str | None,
    typer.Option(help="structure or structure:K makes features from the edges.", rich_help_panel="Data"),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Draw a split: per_class=20,val_per_class=30 or train=0.6,val=0.2.", rich_help_panel="Data"
    ),
]
SplitSeed = Annotated[int | None, typer.Option(help="Seed of that draw (0).", rich_help_panel="Data")]
SplitIndex = Annotated[
    int | None, typer.Option(help="Which of several published splits (0).", rich_help_panel="Data")
]
Normalise = Annotated[
    str | None, typer.Option(help="Normalise features: rows or columns.", rich_help_panel="Data")
]
Symmetrise = Annotated[
    bool | None,
    typer.Option(
        "--symmetrise/--no-symmetrise", help="Store both directions of edges.", rich_help_panel="Data"
    ),
]
MaxYear = Annotated[
    int | None, typer.Option(help="Keep nodes of that year or earlier.", rich_help_panel="Data")
]
FeatureStorage = Annotated[
    str | None, typer.Option(help="Keep dense features as fp16 or float32 (float32).", rich_help_panel="Data")
]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch OGB's files where they are missing.", rich_help_panel="Data")
]
Post = Annotated[
    str | None,
    typer.Option(help="correct-and-smooth: carry training labels along the edges.", rich_help_panel=POST),
]
Corrections = Annotated[
    int | None, typer.Option(help="Propagations of the errors (50).", rich_help_panel=POST)
]
CorrectionAlpha = Annotated[
    str | None,
    typer.Option(
        help="Share of the neighbours, or auto: chosen on validation (0.979).", rich_help_panel=POST
    ),
]
CorrectionScale = Annotated[
    str | None,
    typer.Option(
        help="Factor of the correction, or auto: as large as the errors (auto).", rich_help_panel=POST
    ),
]
Smoothings = Annotated[
    int | None, typer.Option(help="Propagations of what is corrected (50).", rich_help_panel=POST)
]
SmoothingAlpha = Annotated[
    str | None,
    typer.Option(
        help="Share of the neighbours, or auto: chosen on validation (0.756).", rich_help_panel=POST
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def number_or_auto(name: str, text: str | None) -> float | str | None:
    """A solver setting: a number, or ``auto``."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{name.replace('_', '-')} must be a number or auto; got {text!r}.") from None


def correct_and_smooth(
    corrections: int | None,
    correction_alpha: str | None,
    correction_scale: str | None,
    smoothings: int | None,
    smoothing_alpha: str | None,
) -> dict[str, Any]:
    """The settings of correct and smooth that were given."""
    return given(
        corrections=corrections,
        correction_alpha=number_or_auto("correction_alpha", correction_alpha),
        scale=number_or_auto("correction_scale", correction_scale),
        smoothings=smoothings,
        smoothing_alpha=number_or_auto("smoothing_alpha", smoothing_alpha),
    )


def load_graph(data: dict[str, Any], *, download: bool = False) -> Any:
    """The graph that the data settings describe; ``download`` is none of them, so that no run folder asks for it."""
    from gfgnn.cli.progress import LoadingProgress
    from gfgnn.data import load

    options = dict(data)
    name = options.pop("name", None)
    if name is None:
        raise InputError("--data is missing: name a data set, such as --data citeseer.")
    try:
        with ends_in_order(), LoadingProgress() as shown:
            return load(name, **options, download=download, progress=shown.report)
    except TypeError as error:  # an unknown key in the [data] table of a configuration file
        raise InputError(f"the data settings do not fit: {error}.") from None


def read_text(path: Path) -> str:
    """The text of a configuration file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def show_warnings_plainly() -> None:
    """Warnings as one line on standard error, without the source line that raised them."""

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning) and not str(message).startswith("Sparse"):
            print(f"warning: {message}", file=sys.stderr)

    warnings.showwarning = show
