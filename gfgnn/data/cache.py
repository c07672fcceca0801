"""A folder of arrays that take long to make and depend on nothing but their key."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gfgnn.checks import InputError
from gfgnn.data.npz import read_arrays, write_arrays


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
