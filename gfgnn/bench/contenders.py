"""Names of contenders, and the functions behind them, imported when they are wanted."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from gfgnn.bench.outcome import Budget, Contender
from gfgnn.checks import InputError

#: Each is a :class:`gfgnn.bench.outcome.Contender` with settings of its own as further keyword arguments.
CONTENDERS = {
    "target": "gfgnn.bench.ours:run_target",
    "admm": "gfgnn.bench.ours:run_admm",
    "pdadmm-g": "gfgnn.bench.ours:run_pdadmm",
    "community-admm": "gfgnn.bench.ours:run_community",
    "adam": "gfgnn.bench.ours:run_adam",
    "adam-tuned": "gfgnn.baseline.adam_tuned:run",
    "revgnn": "gfgnn.baseline.revgnn:run",
    "cluster-gcn": "gfgnn.baseline.cluster:run",
    "graphsaint": "gfgnn.baseline.saint:run",
    "label-propagation": "gfgnn.baseline.propagation:run",
    "correct-and-smooth": "gfgnn.baseline.propagation:run_smoothed",
    "dfa": "gfgnn.baseline.feedback:run",
    "adam-graph-parallel": "gfgnn.baseline.parallel:run",
    "pipegcn": "gfgnn.baseline.parallel:run_stale",
    "gpipe": "gfgnn.baseline.pipeline:run_gpipe",
    "pipeline-1f1b": "gfgnn.baseline.pipeline:run_1f1b",
    "ist": "gfgnn.baseline.subnets:run",
}


def place_of(name: str) -> str:
    """``module:function`` of a name of :data:`CONTENDERS`, or of one that is such a place itself.

    Raises:
        InputError: it is neither.
    """
    place = CONTENDERS.get(name, name)
    module, separator, function = place.partition(":")
    if not (separator and module and function.isidentifier()):
        raise InputError(f"no contender {name!r}. Known: {', '.join(CONTENDERS)}; or give module:function.")
    return place


def missing(name: str) -> str | None:
    """Why a contender cannot run here, in a line; None where its module, and all that it imports, are there."""
    module = place_of(name).partition(":")[0]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"not available: there is no module {error.name}"
    except ImportError as error:
        return f"not available: {error}"
    return None


def contender(name: str) -> Contender:
    """The function behind a name.

    Raises:
        InputError: the name means nothing, or its module has no such function.
    """
    module, _, function = place_of(name).partition(":")
    try:
        found: Contender = getattr(importlib.import_module(module), function)
    except AttributeError:
        raise InputError(f"contender {name!r}: module {module} has no function {function}.") from None
    return found


def check_settings(name: str, settings: dict[str, Any], source: str) -> None:
    """Raises :class:`InputError` for settings that the contender does not take, as far as its signature tells; those of
    our own solvers are checked in full."""
    if decided := sorted(settings.keys() & {"budget", "seed", "threads"}):
        raise InputError(
            f"{source}: {', '.join(decided)} cannot be set here; budget, seeds and threads decide."
        )
    function = contender(name)
    try:
        inspect.signature(function).bind(
            None,
            None,
            budget=Budget(),
            seed=0,
            threads=1,
            **settings,
        )
    except TypeError as error:
        raise InputError(f"{source}: contender {name} does not take these settings: {error}.") from None
    if (check := getattr(function, "check", None)) is not None:
        check(settings, source)
