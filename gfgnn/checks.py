"""Errors for users, and the checks that several modules share.

Every complaint about input is an :class:`InputError` that says what was wrong, the value received, and what would be
right. ``assert`` is kept for the package's own invariants.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class InputError(ValueError):
    """Input that gfgnn cannot work with; the message names the value and what would be right."""


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raises :class:`InputError` unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}.")


def check_count(name: str, value: object, minimum: int, maximum: int | None = None) -> None:
    """Raises :class:`InputError` unless ``value`` is a whole number in that range."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number; got {value!r}.")
    check_at_least(name, int(value), minimum)
    if maximum is not None and int(value) > maximum:
        raise InputError(f"{name} must be at most {maximum}; got {value!r}.")


def check_flag(name: str, value: object) -> None:
    """Raises :class:`InputError` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false; got {value!r}.")


#: bytes of the units that memory is stated in
UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for kind, base in (("B", 1000), ("", 1000), ("iB", 1024))
}


def check_bytes(name: str, value: object) -> int:
    """Bytes of ``value``, such as ``16GB`` (decimal) or ``12GiB``; :class:`InputError` where it is no such thing."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", str(value))
    unit = None if found is None else {u.lower(): size for u, size in UNITS.items()}.get(found[2].lower())
    if found is None or unit is None or float(found[1]) == 0:
        raise InputError(f"{name} must be an amount of memory, such as 16GB or 900MiB; got {value!r}.")
    return int(float(found[1]) * unit)


def check_device(device: str) -> None:
    """Raises :class:`InputError` unless ``device`` is cpu, or a CUDA device that is there."""
    import torch

    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError):
        wanted = None
    if wanted is None or wanted.type not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu or cuda; got {device!r}.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cuda" and count == 0:
        raise InputError(f"device is {device}, but torch finds no CUDA device here; use cpu.")
    if wanted.type == "cuda" and (wanted.index or 0) >= count:
        raise InputError(f"device is {device}, but the CUDA devices here are 0 to {count - 1}.")


def is_out_of_memory(error: BaseException) -> bool:
    """NumPy, torch on the CPU and torch on a GPU each have their own error for it."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether torch would record, for derivatives, what is made of these tensors: compiled kernels would drop it."""
    import torch

    return torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in tensors)


def check_at_least(name: str, value: float, minimum: float) -> None:
    """Raises :class:`InputError` unless ``value`` is a number and ``value >= minimum``."""
    _check_number(name, value)
    if not value >= minimum:
        raise InputError(f"{name} must be at least {minimum}; got {value!r}.")


def check_positive(name: str, value: float) -> None:
    """Raises :class:`InputError` unless ``value`` is a finite number above 0."""
    _check_number(name, value)
    if not 0 < value < inf:
        raise InputError(f"{name} must be a finite number above 0; got {value!r}.")


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raises :class:`InputError` unless ``value`` is a number and ``low <= value <= high``."""
    _check_number(name, value)
    if not low <= value <= high:
        raise InputError(f"{name} must lie between {low} and {high}; got {value!r}.")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number; got {value!r}.")
