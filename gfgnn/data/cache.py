"""A folder of arrays that take long to make and depend on nothing but their key."""

from __future__ import annotations

import contextlib
import fcntl
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
#: file in a folder that is being made, locked by the process that makes it
OWNER = "gfgnn.lock"


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


def cached_arrays(
    name: str, key: str, make: Callable[[Path], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays of ``make(folder)``, mapped from ``NAME-KEY/*.npy`` in the cache: read as used, never altered.

    They are those it returns and those it writes to ``folder`` as ``ARRAY.npy`` itself, which then need not fit into
    memory. The folder is made under another name and gets its own when it is complete, so that a process that is killed
    leaves nothing that is trusted later; what such left is removed. A damaged entry is made again. Where no cache can
    be had the files lie in the system's temporary folder, for this process alone.

    Raises:
        OSError: there is no room for the files.
    """
    folder = cache_folder() / f"{name}-{key}"
    if folder.is_dir():
        try:
            return _mapped(folder)
        except (OSError, EOFError, ValueError):
            shutil.rmtree(folder, ignore_errors=True)
    with work_folder(folder.name) as work:
        arrays = make(work)
        for part, array in arrays.items():
            np.save(work / f"{part}.npy", array, allow_pickle=False)
        files = sorted(work.glob("*.npy"))
        for path in files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())  # a new name must not reach the disk before what it names
        (work / NAMES).write_text("\n".join(path.stem for path in files), encoding="utf-8")
        if work.parent == folder.parent and not folder.is_dir():  # another process may have been quicker
            for owner in work.glob(f"{OWNER}*"):
                owner.unlink()
            os.rename(work, folder)
            work = folder
        return _mapped(work)  # arrays stay valid where their files are removed


@contextlib.contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """A folder to make ``NAME`` in, beside its place where that can be written; what is left of it is removed."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=cache_folder(), prefix=f".{name}.", suffix=".tmp"))
    except OSError:
        made = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp"))
    try:
        with _owned(made):
            for other in cache_folder().glob(".*.tmp"):
                if _abandoned(other):
                    shutil.rmtree(other, ignore_errors=True)
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Within the block a lock on a file in ``folder`` says that its process lives, which the system knows best."""
    with open(folder / f"{OWNER}.new", "wb") as file:
        with contextlib.suppress(OSError):  # a file system without locks: then age decides
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(file.name, folder / OWNER)
        yield


def _abandoned(folder: Path) -> bool:
    """Whether the process that made the work folder is known to be dead, or was never known and the folder is old."""
    try:
        with open(folder / OWNER, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return folder.is_dir() and time.time() - folder.stat().st_mtime > ABANDONED
    except OSError:
        return False


def _mapped(folder: Path) -> dict[str, np.ndarray]:
    """Copies on write: a change of an array stays in this process. All that are listed must be there."""
    names = (folder / NAMES).read_text(encoding="utf-8").split()
    return {name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in names}
