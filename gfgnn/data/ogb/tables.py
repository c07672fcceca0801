"""OGB's gzipped CSV files, read in pieces of bounded size."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError

#: numbers in a piece: 32 MB of float64, whatever the number of columns
PIECE = 1 << 22


def read_table(path: Path, kind: type[np.generic], rows: int | None = None) -> NDArray[Any]:
    """The whole file as ``[rows, columns]`` of type ``kind``.

    Args:
        rows: how many the file must have; memory is then that of the table and one piece, else of two tables.

    Raises:
        InputError: the file cannot be read, or has another number of rows.
    """
    if rows is None:
        return np.concatenate(list(pieces(path, kind)))
    table, filled = np.empty((0, 0), kind), 0
    for piece in pieces(path, kind):
        if filled == 0:
            table = np.empty((rows, piece.shape[1]), kind)
        if filled + len(piece) <= rows:
            table[filled : filled + len(piece)] = piece
        filled += len(piece)
    if filled != rows:
        raise InputError(f"{path} has {filled:,} rows; {rows:,} are expected by the files beside it.")
    return table


def pieces(path: Path, kind: type[np.generic]) -> Iterator[NDArray[Any]]:
    """Consecutive rows ``[k, columns]``; on a terminal a bar shows how much of the file is read."""
    import pandas
    from rich.console import Console
    from rich.progress import wrap_file

    silent = sys.stderr is None or not sys.stderr.isatty()
    try:
        with (
            open(path, "rb") as file,
            wrap_file(
                file, path.stat().st_size, description=f"{path.parent.name}/{path.name}",
                console=Console(stderr=True), transient=True, disable=silent,
            ) as watched,
            gzip.open(watched) as text,
        ):  # fmt: skip
            width = text.peek(1 << 16).split(b"\n", 1)[0].count(b",") + 1
            for frame in pandas.read_csv(text, header=None, dtype=kind, chunksize=max(1, PIECE // width)):
                yield frame.to_numpy()
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as OGB's gzipped CSV: {error}") from error


def read_counts(path: Path) -> dict[str, int]:
    """A file of a row of names and a row of whole numbers."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            names, counts = (line.strip().split(",") for line in file.read().split("\n")[:2])
        return dict(zip(names, map(int, counts), strict=True))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as names and their numbers: {error}") from error
