"""Case files: which contenders meet on which data, with which networks, budgets and seeds."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gfgnn.bench.contenders import check_settings, missing
from gfgnn.bench.outcome import Budget
from gfgnn.checks import InputError, check_at_least, check_between, check_bytes, check_count, check_flag
from gfgnn.config import MAX_THREADS, ModelConfig

FOLDER = Path(__file__).resolve().parent / "cases"
SUITES = tuple(sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))
#: seconds of a process whose budget has no seconds, and what loading, warming up and evaluation may take beside others
LONGEST, BESIDE, FACTOR = 3600.0, 120.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Data:
    """A graph of a case.

    Attributes:
        label: its name in tables.
        options: of :func:`gfgnn.load`.
        reach: test scores, the time to which is compared.
    """

    name: str
    label: str
    options: dict[str, Any] = field(default_factory=dict)
    reach: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A contender as a case has it.

    Attributes:
        name: of :data:`gfgnn.bench.contenders.CONTENDERS`, or ``module:function``.
        label: its name in tables.
        settings: handed to it.
        model: what is different about its network.
        data: what is different about its data: features normalised in another way.
        budget: of each run.
        layers: the depths it takes part at; None for all of the case.
        warm_up: train on a small graph first, in the same process.
        missing: why it cannot take part; None where it can.
    """

    name: str
    label: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    layers: tuple[int, ...] | None = None
    warm_up: bool = True
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """See docs/benchmarks.md for the file.

    Attributes:
        against: the label of the contender that others are compared with, pair by pair.
        limit_seconds: of a process, after which it is killed.
        memory: bytes that a run's processes may hold together; None for no limit.
    """

    name: str
    title: str
    data: tuple[Data, ...]
    model: dict[str, Any]
    layers: tuple[int, ...]
    entrants: tuple[Entrant, ...]
    against: str
    seeds: int = 5
    threads: int = 1
    limit_seconds: float | None = None
    memory: int | None = None

    def limit(self, budget: Budget) -> float:
        """Seconds after which the process of a run with this budget is killed."""
        if self.limit_seconds is not None:
            return self.limit_seconds
        return LONGEST if budget.seconds is None else FACTOR * budget.seconds + BESIDE


def suite(name: str) -> list[Case]:
    """The cases of a suite that comes with the package.

    Raises:
        InputError: there is no such suite.
    """
    if name not in SUITES:
        raise InputError(f"no suite {name!r}. There are {', '.join(SUITES)}; or give a case file.")
    return [read_case(path) for path in sorted((FOLDER / name).glob("*.toml"))]


def read_case(path: Path) -> Case:
    """The case in a TOML file.

    Raises:
        InputError: it cannot be read, is no TOML, or holds a key or value that does not fit; the message names it.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from None
    return case_of(values, path.stem, str(path))


def case_of(values: Mapping[str, Any], name: str, source: str) -> Case:
    """A case from what its file says; ``source`` is what messages call it."""
    try:
        return _case(values, name)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _case(values: Mapping[str, Any], name: str) -> Case:
    _check_keys(
        values,
        (
            "title",
            "seeds",
            "threads",
            "against",
            "limit_seconds",
            "memory",
            "budget",
            "data",
            "model",
            "contender",
        ),
    )
    seeds, threads = values.get("seeds", 5), values.get("threads", 1)
    check_count("seeds", seeds, 1, 1000)
    check_count("threads", threads, 1, MAX_THREADS)
    limit, memory = values.get("limit_seconds"), values.get("memory")
    if limit is not None:
        check_at_least("limit_seconds", limit, 1)
    model = dict(_table(values, "model"))
    layers = _layers("model.layers", model.pop("layers", 16))
    budget = _budget(_table(values, "budget"), "budget.")
    entrants = tuple(
        _entrant(table, f"contender {number}", model, layers, budget)
        for number, table in enumerate(_tables(values, "contender"), start=1)
    )
    data = tuple(_data(table) for table in _tables(values, "data"))
    labels = [entrant.label for entrant in entrants]
    for kind, names in (("contender", labels), ("data", [graph.label for graph in data])):
        if twice := {name for name in names if names.count(name) > 1}:
            raise InputError(
                f"{kind}: {', '.join(sorted(twice))} is there twice; give each a label of its own."
            )
    against = values.get("against", labels[0])
    if against not in labels:
        raise InputError(f"against must be the label of a contender, {', '.join(labels)}; got {against!r}.")
    return Case(
        name=name,
        title=str(values.get("title", name)),
        data=data,
        model=model,
        layers=layers,
        entrants=entrants,
        against=against,
        seeds=seeds,
        threads=threads,
        limit_seconds=limit,
        memory=None if memory is None else check_bytes("memory", memory),
    )


def _data(table: Mapping[str, Any]) -> Data:
    options = dict(table)
    name, reach = options.pop("name", None), options.pop("reach", [])
    if not isinstance(name, str) or not name:
        raise InputError(f"data.name must name a data set; got {name!r}.")
    for score in reach if isinstance(reach, list) else [reach]:
        check_between("data.reach", score, 0.0, 1.0)
    label = str(options.pop("label", name))
    _check_load(options, "data.")
    reach = tuple(reach) if isinstance(reach, list) else (reach,)
    return Data(name=name, label=label, options=options, reach=reach)


def _entrant(
    table: Mapping[str, Any], where: str, model: Mapping[str, Any], layers: tuple[int, ...], budget: Budget
) -> Entrant:
    _check_keys(
        table, ("name", "label", "settings", "model", "data", "budget", "layers", "warm_up"), f"{where}: "
    )
    name = table.get("name")
    if not isinstance(name, str):
        raise InputError(f"{where}: name must name a contender; got {name!r}.")
    settings, own, data = (dict(_table(table, key)) for key in ("settings", "model", "data"))
    depths = table.get("layers")
    chosen = layers if depths is None else _layers(f"{where}: layers", depths)
    if strange := set(chosen) - set(layers):
        raise InputError(f"{where}: layers {sorted(strange)} are not among the case's, {list(layers)}.")
    for depth in chosen:
        _check_model({**model, **own}, depth, where)
    _check_load(data, f"{where}: data.")
    check_flag(f"{where}: warm_up", table.get("warm_up", True))
    absent = missing(name)
    if absent is None:
        check_settings(name, settings, where)
    given = _table(table, "budget")
    return Entrant(
        name=name,
        label=str(table.get("label", name)),
        settings=settings,
        model=own,
        data=data,
        budget=_budget({**_plain(budget), **given}, f"{where}: budget."),
        layers=None if depths is None else chosen,
        warm_up=table.get("warm_up", True),
        missing=absent,
    )


def _check_model(values: Mapping[str, Any], layers: int, where: str) -> None:
    known = [f.name for f in fields(ModelConfig) if f.name != "layers"]
    _check_keys(values, known, f"{where}: model.")
    try:
        ModelConfig(**values, layers=layers)
    except TypeError as error:
        raise InputError(f"{where}: a value in model has the wrong type: {error}.") from None


def _check_load(options: Mapping[str, Any], prefix: str) -> None:
    from gfgnn.data import load

    own = ("name_or_path", "root", "download", "progress", "split_seed")
    _check_keys(options, [name for name in inspect.signature(load).parameters if name not in own], prefix)


def _budget(values: Mapping[str, Any], prefix: str) -> Budget:
    _check_keys(values, ("seconds", "iterations"), prefix)
    if (seconds := values.get("seconds")) is not None:
        check_at_least(f"{prefix}seconds", seconds, 0)
    if (iterations := values.get("iterations")) is not None:
        check_count(f"{prefix}iterations", iterations, 1)
    return Budget(seconds=seconds, iterations=iterations)


def _plain(budget: Budget) -> dict[str, Any]:
    return {"seconds": budget.seconds, "iterations": budget.iterations}


def _layers(name: str, value: Any) -> tuple[int, ...]:
    depths = value if isinstance(value, list) else [value]
    for depth in depths:
        check_count(name, depth, 1)
    if not depths or len(set(depths)) < len(depths):
        raise InputError(f"{name} must be depths, each of them once; got {value!r}.")
    return tuple(depths)


def _check_keys(values: Mapping[str, Any], known: Any, prefix: str = "") -> None:
    if unknown := sorted(values.keys() - set(known)):
        named = ", ".join(f"{prefix}{key} = {values[key]!r}" for key in unknown)
        raise InputError(f"unknown settings: {named}. Known: {', '.join(known)}.")


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise InputError(f"{key} must be a table, [{key}]; got {table!r}.")
    return table


def _tables(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """One table or a list of them; at least one."""
    found = values.get(key)
    given = found if isinstance(found, list) else [found]
    tables: list[Mapping[str, Any]] = [table for table in given if isinstance(table, dict)]
    if not tables or len(tables) < len(given):
        raise InputError(f"{key} must be a table or several, [[{key}]]; got {found!r}.")
    return tables
