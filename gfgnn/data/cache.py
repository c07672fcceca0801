"""A folder of arrays that take long to make and depend on nothing but their key."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gfgnn.checks import InputError
from gfgnn.data.npz import read_arrays, write_arrays

#: age in seconds at which a folder that was never completed is taken for that of a process that was killed
ABANDONED = 24 * 3600
#: file of the names of the arrays in a folder
NAMES = "names.txt"


def cache_folder() -> Path:
    """``$GFGNN_CACHE``, else ``~/.cache/gfgnn``."""
    return Path(os.environ.get("GFGNN_CACHE") or Path.home() / ".cache" / "gfgnn").expanduser()


def fingerprint(*parts: np.ndarray | str | int) -> str:
    """A hash of arrays (with shape and type) and settings, 32 hex digits."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"|{part!r}".encode())
    return digest.hexdigest()


def cached(name: str, key: str, make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array ``make()`` returns, from the cache where it is already there.

    A damaged entry is made again, and a cache that cannot be written is done without.
    """
    path = cache_folder() / f"{name}-{key}.npz"
    if path.is_file():
        try:
            return read_arrays(path)["array"]
        except (InputError, KeyError):
            pass
    array = make()
    with contextlib.suppress(OSError):
        write_arrays(path, {"array": array})
    return array


def cached_arrays(name: str, key: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays ``make()`` returns, mapped from ``NAME-KEY/*.npy`` in the cache: read as they are used, never altered.

    The folder is written under another name and gets its own when it is complete, so that a process that is killed
    leaves nothing that is trusted later. A damaged entry is made again, and a cache that cannot be written is done
    without: the arrays are then in memory.
    """
    folder = cache_folder() / f"{name}-{key}"
    if folder.is_dir():
        try:
            return _mapped(folder)
        except (OSError, EOFError, ValueError):
            shutil.rmtree(folder, ignore_errors=True)
    arrays = make()
    try:
        _write_folder(folder, name, arrays)
        return _mapped(folder)
    except (OSError, ValueError):
        return arrays


@contextlib.contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """A folder for large files while ``NAME`` is made: in the cache, or where the system has such if that is not to be.

    It is removed at the end; arrays mapped from its files stay valid.
    """
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        made = tempfile.mkdtemp(dir=cache_folder(), prefix=f".{name}-work.", suffix=".tmp")
    except OSError:
        made = tempfile.mkdtemp(prefix=f".{name}-work.", suffix=".tmp")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _mapped(folder: Path) -> dict[str, np.ndarray]:
    """Copies on write: a change of an array stays in this process. All that are listed must be there."""
    names = (folder / NAMES).read_text(encoding="utf-8").split()
    return {name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in names}


def _write_folder(folder: Path, name: str, arrays: dict[str, np.ndarray]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    for old in folder.parent.glob(f".{name}-*.tmp"):
        if time.time() - old.stat().st_mtime > ABANDONED:
            shutil.rmtree(old, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        for part, array in arrays.items():
            with open(temporary / f"{part}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())  # a new name must not reach the disk before what it names
        (temporary / NAMES).write_text("\n".join(arrays), encoding="utf-8")
        if not folder.is_dir():  # another process may have been quicker
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
