"""Arrays that never lie in memory as a whole: ``.npy`` files written, and members of an ``.npz`` read, in pieces."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gfgnn.checks import InputError
from gfgnn.data.progress import report

#: bytes read at once on the way to others
SKIP = 1 << 20


def write_header(file: IO[bytes], kind: DTypeLike, shape: tuple[int, ...]) -> None:
    """The head of a ``.npy`` file; the numbers follow row by row."""
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)


def write_features(path: Path, pieces: Iterable[NDArray[Any]], rows: int, kind: DTypeLike) -> None:
    """Writes features that come in pieces ``[k, columns]``, in the order of their nodes, as ``[rows, columns]``.

    Raises:
        InputError: there are more or fewer rows, columns differ, or numbers are not finite or too large for ``kind``.
        OSError: the file cannot be written.
    """
    columns, filled = None, 0
    with open(path, "wb") as file:
        for piece in pieces:
            if columns is None:
                columns = piece.shape[1]
                write_header(file, kind, (rows, columns))
            with np.errstate(over="ignore"):
                values = np.ascontiguousarray(piece, dtype=kind)
            if not np.isfinite(values).all():
                raise InputError(_not_finite(piece, values))
            filled += len(piece)
            if piece.shape[1] != columns or filled > rows:
                break
            values.tofile(file)
        if columns is None or piece.shape[1] != columns or filled != rows:
            raise InputError(f"x must have a row of numbers for each of {rows:,} nodes; it has not.")


def _not_finite(piece: NDArray[Any], values: NDArray[Any]) -> str:
    if not np.isfinite(piece).all():
        return f"x holds {int((~np.isfinite(piece)).sum()):,} NaN or infinite values; features must be finite numbers."
    largest = float(np.abs(piece).max())
    return (
        f"x holds {largest:.4g}, and {values.dtype} ends at {float(np.finfo(values.dtype).max):.4g}; load the features "
        "as float32."
    )


@dataclass(frozen=True)
class Member:
    """An array in an ``.npz``, compressed or not.

    Attributes:
        path: the file.
        name: of the array in it.
        shape: rows and columns; an array of one axis has one column.
        kind: of its numbers.
        by_columns: whether the numbers of a column lie side by side (Fortran's order), not those of a row.
    """

    path: Path
    name: str
    shape: tuple[int, int]
    kind: np.dtype[Any]
    by_columns: bool

    def pieces(self, size: int, *, transposed: bool = False) -> Iterator[NDArray[Any]]:
        """Consecutive rows ``[k, columns]`` of the matrix or of its transpose, ``k`` at most ``size``.

        Where the numbers of such a row lie apart in the file, each column is read by a reader of its own.
        """
        rows, columns = self.shape[::-1] if transposed else self.shape
        apart = self.by_columns != transposed
        width, count = (1, columns) if apart else (columns, 1)
        with _readable(self.path), ExitStack() as opened:
            archive = opened.enter_context(zipfile.ZipFile(self.path))
            readers = [opened.enter_context(archive.open(f"{self.name}.npy")) for _ in range(count)]
            for number, reader in enumerate(readers):
                _header(reader)
                _skip(reader, number * rows * self.kind.itemsize)
            for begin in range(0, rows, size):
                report(f"reading {self.name} of {self.path.name}", begin, rows)
                piece = np.empty((min(size, rows - begin), columns), self.kind)
                for number, reader in enumerate(readers):
                    piece[:, number * width : (number + 1) * width] = _numbers(
                        reader, self.kind, len(piece), width
                    )
                yield piece


def members(path: Path) -> dict[str, Member]:
    """The arrays of an ``.npz`` by their names; nothing but their heads is read.

    Raises:
        InputError: the file is damaged, or an array is no matrix of plain values.
    """
    found = {}
    with _readable(path), zipfile.ZipFile(path) as archive:
        for full in archive.namelist():
            name = full.removesuffix(".npy")
            with archive.open(full) as reader:
                shape, by_columns, kind = _header(reader)
            if kind.hasobject or len(shape) > 2:
                raise InputError(
                    f"{name} in {path} is no matrix of numbers; it has shape {list(shape)} of {kind}."
                )
            rows, columns = (*shape, 1, 1)[:2]
            found[name] = Member(path, name, (rows, columns), kind, by_columns and len(shape) == 2)
    return found


def _header(reader: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(reader)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(reader)
    return np.lib.format.read_array_header_2_0(reader)


def _skip(reader: IO[bytes], size: int) -> None:
    """Reads on in small pieces; the archive's own ``seek`` does so in large ones."""
    while size and (data := reader.read(min(size, SKIP))):
        size -= len(data)


def _numbers(reader: IO[bytes], kind: np.dtype[Any], count: int, width: int) -> NDArray[Any]:
    """The next ``[count, width]`` numbers."""
    data = reader.read(count * width * kind.itemsize)
    if len(data) < count * width * kind.itemsize:
        raise EOFError("it ends too soon")
    return np.frombuffer(data, kind).reshape(count, width)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What goes wrong in reading, as an :class:`InputError` that names the file."""
    try:
        yield
    except InputError:
        raise
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(f"{path} cannot be read as an .npz, it is truncated or damaged: {error}") from error
