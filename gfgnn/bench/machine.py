"""The machine and the versions that a figure was measured with."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gfgnn

#: the folder that holds the package: of the checkout, or of everything that is installed
HOME = Path(gfgnn.__file__).resolve().parent.parent


@cache
def machine() -> dict[str, Any]:
    """Processor, cores, memory and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "torch_geometric", "numpy", "scipy")},
        "gfgnn": gfgnn.__version__,
    }


@cache
def commit() -> str:
    """The commit of this checkout, with a plus sign where the package has been changed since; ``unknown`` where the
    package is no part of a git checkout."""
    try:
        _git("ls-files", "--error-unmatch", "gfgnn/__init__.py")
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "gfgnn") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load_average() -> float | None:
    """How many processes wanted to run, in the mean of the last minute; None where the system does not tell."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
