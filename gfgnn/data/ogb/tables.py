"""OGB's gzipped CSV files, read in pieces of bounded size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgnn.checks import InputError
from gfgnn.data.progress import report

#: numbers in a piece: 16 MB of float64, whatever the number of columns
PIECE = 1 << 21


def read_table(path: Path, kind: type[np.generic], rows: int | None = None) -> NDArray[Any]:
    """The whole file as ``[rows, columns]`` of type ``kind``.

    Args:
        rows: how many the file must have; memory is then that of the table and one piece, else of two tables.
    """
    if rows is None:
        return np.concatenate(list(pieces(path, kind)))
    table, filled = np.empty((0, 0), kind), 0
    for piece in pieces(path, kind, rows):
        if filled == 0:
            table = np.empty((rows, piece.shape[1]), kind)
        table[filled : filled + len(piece)] = piece
        filled += len(piece)
    return table


def pieces(
    path: Path, kind: type[np.generic], rows: int | None = None, size: int | None = None
) -> Iterator[NDArray[Any]]:
    """Consecutive rows ``[k, columns]``, telling how much of the file is read, see :func:`report`.

    Args:
        rows: how many there must be in all.
        size: k, of all pieces but the last; None for pieces of :data:`PIECE` numbers.

    Raises:
        InputError: the file cannot be read, or has another number of rows.
    """
    total = 0
    for piece in _parsed(path, kind, size):
        total += len(piece)
        if rows is not None and total > rows:
            break
        yield piece
    if rows is not None and total != rows:
        count = f"{total:,}" if total < rows else "more"
        raise InputError(f"{path} must have {rows:,} rows, as the files beside it say; it has {count}.")


def _parsed(path: Path, kind: type[np.generic], size: int | None) -> Iterator[NDArray[Any]]:
    import pandas

    try:
        with open(path, "rb") as file, gzip.open(file) as text:
            width = text.peek(1 << 16).split(b"\n", 1)[0].count(b",") + 1
            chunk = max(1, PIECE // width) if size is None else size
            for frame in pandas.read_csv(text, header=None, dtype=kind, chunksize=chunk):
                report(f"reading {path.parent.name}/{path.name}", file.tell(), path.stat().st_size)
                yield frame.to_numpy()
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        if "out of memory" in str(error):  # pandas says so like any other fault of the text
            raise MemoryError(f"reading {path}") from error
        raise InputError(f"{path} cannot be read as OGB's gzipped CSV: {error}") from error


def read_counts(path: Path) -> dict[str, int]:
    """A file of a row of names and a row of whole numbers."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            names, counts = (line.strip().split(",") for line in file.read().split("\n")[:2])
        return dict(zip(names, map(int, counts), strict=True))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path} cannot be read as names and their numbers: {error}") from error
