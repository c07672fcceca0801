"""Runs as lines of JSON, appended as they end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gfgnn.checks import InputError

RUNS_FILE = "runs.jsonl"
Line = dict[str, Any]
#: kinds of lines: the beginning of a session, a run, and data or contenders that were passed over
STARTED, RUN, SKIPPED = "started", "run", "skipped"


def read_lines(path: str | os.PathLike[str]) -> list[Line]:
    """The lines of ``path``, oldest first; of a folder, those of its ``runs.jsonl``.

    A last line that was torn, by a full disk or a power cut, is passed over.

    Raises:
        InputError: there is no such file, or another line is no JSON object.
    """
    file = Path(path) / RUNS_FILE if Path(path).is_dir() else Path(path)
    try:
        texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}; name the folder of a benchmark."
        ) from None
    found = []
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if isinstance(line, dict):
            found.append(line)
        elif number < len(texts):
            raise InputError(f"{file}, line {number}, is no JSON object: {text[:60]!r}.")
    return found


def append_line(path: Path, line: Line) -> None:
    """Appends one line and sees to it that it is on the disk; a torn last line goes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line, allow_nan=False) + "\n"
    with path.open("ab+") as file:
        _drop_torn(file)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def runs_of(lines: list[Line]) -> list[Line]:
    """The latest run of each contender and seed, in the order in which they were first made."""
    latest: dict[tuple[Any, ...], Line] = {}
    for line in lines:
        if line.get("kind") == RUN:
            latest[(*cell_of(line), line["label"], line["seed"])] = line
    return list(latest.values())


def skipped_of(lines: list[Line]) -> list[Line]:
    """What the latest session passed over."""
    sessions = [line["session"] for line in lines if line.get("kind") == STARTED]
    return [line for line in lines if line.get("kind") == SKIPPED and line["session"] == sessions[-1]]


def cell_of(line: Line) -> tuple[str, str, int]:
    """Case, data and layers: runs with the same are compared with each other."""
    return line["case"], line["data"], line["model"]["layers"]


def _drop_torn(file: Any) -> None:
    """Truncates a file after its last end of line."""
    size = file.seek(0, os.SEEK_END)
    end = size
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        place = file.read(end - start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end < size:
        file.truncate(end)
    file.seek(0, os.SEEK_END)
