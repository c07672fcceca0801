"""Settings as TOML: a small writer, and reading back into the frozen settings with checks on every key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_type_hints

from gfgnn.checks import InputError, check_at_least, check_choice, check_flag
from gfgnn.config import POSTS, CorrectAndSmoothConfig, ModelConfig, TrainConfig


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run: data, model, training and what follows it.

    Attributes:
        data: ``name`` and what else was given to :func:`gfgnn.data.load`.
        tune: search settings by the validation score first.
        compare_adam: train the same network with Adam afterwards, for ``adam_seconds`` at most.
        post: ``none``, or ``correct-and-smooth``: what is done to the trained network's probabilities.
    """

    tune: bool = False
    compare_adam: bool = False
    adam_seconds: float | None = None
    post: str = "none"
    data: dict[str, Any] = field(default_factory=dict)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    correct_and_smooth: CorrectAndSmoothConfig = field(default_factory=CorrectAndSmoothConfig)

    def __post_init__(self) -> None:
        check_flag("tune", self.tune)
        check_flag("compare_adam", self.compare_adam)
        if self.adam_seconds is not None:
            check_at_least("adam_seconds", self.adam_seconds, 0)
        check_choice("post", self.post, POSTS)
        if self.post == "none" and self.correct_and_smooth != CorrectAndSmoothConfig():
            raise InputError(
                "corrections, smoothings, their alphas and the correction's scale are for --post correct-and-smooth; "
                "give that, too."
            )
        if not isinstance(self.data, Mapping):
            raise InputError(f"data must be a table, [data]; got {self.data!r}.")

    def to_dict(self) -> dict[str, Any]:
        return _plain(self)


def dumps(values: Mapping[str, Any]) -> str:
    """TOML text of nested mappings of strings, numbers, booleans and lists; None is left out."""
    return "\n".join(_lines(values, "")).lstrip("\n") + "\n"


def loads_run(text: str, source: str = "the configuration") -> RunConfig:
    """A :class:`RunConfig` from TOML text.

    Raises:
        InputError: not TOML, an unknown key or a value that a setting refuses; the message names it.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    run: RunConfig = from_mapping(RunConfig, values, source)
    return run


def from_mapping(kind: type, values: Mapping[str, Any], source: str, prefix: str = "") -> Any:
    """An instance of the settings class ``kind``; nested tables become its nested settings."""
    hints = get_type_hints(kind)
    _refuse_unknown(values, [f.name for f in fields(kind)], source, prefix)
    arguments = dict(values)
    for name, value in values.items():
        if is_dataclass(hints[name]):
            table = _table(values, name, source)
            arguments[name] = from_mapping(hints[name], table, source, f"{prefix}{name}.")
        elif isinstance(value, dict | list) and name != "data":
            raise InputError(f"{source}: {prefix}{name} must be a single value; got {value!r}.")
    try:
        return kind(**arguments)
    except TypeError as error:  # a string compared with a number, and the like
        raise InputError(
            f"{source}: a value in {prefix.rstrip('.') or 'it'} has the wrong type: {error}."
        ) from None


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One phrase for each setting that differs, such as ``train.seed (0 there, 1 now)``."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, now = old.get(key), new.get(key)
        if isinstance(before, Mapping) or isinstance(now, Mapping):
            found += differences(before or {}, now or {}, f"{prefix}{key}.")
        elif before != now:
            found.append(f"{prefix}{key} ({before!r} there, {now!r} now)")
    return found


def _lines(values: Mapping[str, Any], name: str) -> list[str]:
    tables = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    plain = {k: v for k, v in values.items() if k not in tables and v is not None}
    lines = [f"\n[{name}]"] if name and (plain or not tables) else []
    lines += [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    for key, table in tables.items():
        lines += _lines(table, f"{name}.{_key(key)}" if name else _key(key))
    return lines


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    # JSON's escapes are TOML's, but for the delete character, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(settings: Any) -> dict[str, Any]:
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {k: _plain(v) if is_dataclass(v) else v for k, v in values.items() if v is not None}


def _table(values: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{source}: {name} must be a table, [{name}]; got {table!r}.")
    return table


def _refuse_unknown(values: Mapping[str, Any], known: Any, source: str, prefix: str) -> None:
    unknown = sorted(values.keys() - set(known))
    if unknown:
        names = ", ".join(prefix + key for key in unknown)
        raise InputError(f"{source} has unknown settings: {names}. Known: {', '.join(known)}.")
