"""Errors for users, and the checks that several modules share.

Every complaint about input is an :class:`InputError` that says what was wrong, the value received, and what would be
right. ``assert`` is kept for the package's own invariants.
"""

from __future__ import annotations

from collections.abc import Collection


class InputError(ValueError):
    """Input that gfgnn cannot work with; the message names the value and what would be right."""


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raises :class:`InputError` unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}.")


def check_at_least(name: str, value: float, minimum: float) -> None:
    """Raises :class:`InputError` unless ``value >= minimum``."""
    if not value >= minimum:
        raise InputError(f"{name} must be at least {minimum}; got {value!r}.")


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raises :class:`InputError` unless ``low <= value <= high``."""
    if not low <= value <= high:
        raise InputError(f"{name} must lie between {low} and {high}; got {value!r}.")
