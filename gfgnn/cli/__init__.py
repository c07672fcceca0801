"""The command line: ``gfgnn train``, ``predict``, ``partition``, ``data``, ``bench``. Each calls the public API."""

from __future__ import annotations

from typing import Annotated

import typer

from gfgnn._version import __version__
from gfgnn.cli.bench import bench_app
from gfgnn.cli.data import data_app
from gfgnn.cli.errors import friendly
from gfgnn.cli.partition import partition_command
from gfgnn.cli.predict import predict_command
from gfgnn.cli.train import train_command

app = typer.Typer(
    name="gfgnn",
    help="Deep graph neural networks trained without backpropagation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(friendly(train_command))
app.command("predict")(friendly(predict_command))
app.command("partition")(friendly(partition_command))
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        from gfgnn.ops.native import describe

        print(f"gfgnn {__version__}\nsparse product: {describe()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version and which sparse product serves, and end.",
        ),
    ] = False,
) -> None:
    """Deep graph neural networks trained without backpropagation."""


def main() -> None:
    """The ``gfgnn`` command."""
    app()
