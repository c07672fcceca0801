"""The folder of a run: what is in it, and who may write there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from gfgnn.checkpoint import (
    EMBEDDINGS_FILE,
    MODEL_FILE,
    WriteError,
    atomic_write,
    jsonable,
    save_embedding_scores,
    save_model,
)
from gfgnn.checks import InputError
from gfgnn.curves import draw_curves
from gfgnn.profiling.trace import profile_trace
from gfgnn.result import Result
from gfgnn.timeline import chrome_trace, draw_timeline
from gfgnn.toml import RunConfig, differences, dumps, loads_run

CONFIG_FILE, METRICS_FILE, RESULT_FILE, CURVES_FILE = (
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "curves.png",
)
ADAM_METRICS_FILE, BOARD_FOLDER = "metrics_adam.jsonl", "tensorboard"
TIMELINE_FILE, TRACE_FILE, LOGS_FOLDER = "timeline.png", "timeline.json", "ranks"
PROFILE_FILE = "profile_trace.json"
OUTPUTS = (
    METRICS_FILE, RESULT_FILE, CURVES_FILE, MODEL_FILE, EMBEDDINGS_FILE, ADAM_METRICS_FILE, TIMELINE_FILE, TRACE_FILE,
    PROFILE_FILE,
)  # fmt: skip


class RunFolder:
    """Receives the lines of a run while it goes on, and its results at the end.

    Nothing is written before the context is entered, and every file is written atomically. While training runs,
    its lines are also found in ``metrics.jsonl.part``. Results of an earlier run of the same configuration stay until
    those of this one replace them; results of another configuration go when training begins.

    Args:
        path: made if it does not exist.
        config: stored as ``config.toml``; a folder that holds another one is refused unless ``overwrite``.
        tensorboard: also write TensorBoard events to ``tensorboard/``.

    Raises:
        InputError: the folder belongs to another configuration, or TensorBoard is not installed.
    """

    def __init__(
        self, path: str | Path, config: RunConfig, *, overwrite: bool = False, tensorboard: bool = False
    ) -> None:
        self.path = Path(path)
        self.part = self.path / f"{METRICS_FILE}.part"
        self.config = config
        self._live: TextIO | None = None
        self._same = self._check_free(overwrite)
        self._board = _Board(self.path / BOARD_FOLDER) if tensorboard else None

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._same:  # results of another run must not stand beside this one's configuration
            for name in OUTPUTS:
                (self.path / name).unlink(missing_ok=True)
        if self._board is not None or not self._same:  # or both runs would be drawn
            for events in (self.path / BOARD_FOLDER).glob("events.out.tfevents.*"):
                events.unlink(missing_ok=True)
        atomic_write(self.path / CONFIG_FILE, dumps(self.config.to_dict()).encode())
        try:
            self._live = open(self.part, "w", encoding="utf-8")
        except OSError as error:
            _warn(f"{self.part} cannot be written ({error.strerror}); lines follow when training ends")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_live()
        if self._board is not None:
            self._board.close()

    def on_iteration(self, line: dict[str, Any]) -> None:
        """Writes one line of the history; a full disk ends the live lines, not the training."""
        if self._live is not None:
            try:
                self._live.write(json.dumps(jsonable(line)) + "\n")
                self._live.flush()
            except OSError as error:
                _warn(f"{self.part} cannot be written ({error.strerror}); lines follow when training ends")
                self._close_live()
        if self._board is not None:
            try:
                self._board.add(line)
            except OSError as error:
                _warn(f"{self.path / BOARD_FOLDER} cannot be written ({error.strerror}); its events end here")
                self._board = None

    def finish(self, result: Result, summary: dict[str, Any], adam: Result | None = None) -> None:
        """Writes everything; where a file fails, the others are still written.

        Args:
            summary: the object that ``result.json`` holds.
            adam: the baseline's run, where there was one, for the curves and its own lines.

        Raises:
            WriteError: a file could not be written; each file is complete or as it was before.
        """
        self._close_live()
        contents: dict[str, Callable[[], bytes]] = {
            RESULT_FILE: lambda: (json.dumps(jsonable(summary), indent=2) + "\n").encode(),
            METRICS_FILE: lambda: _json_lines(result),
            CURVES_FILE: lambda: draw_curves([result] if adam is None else [result, adam]),
        }
        if adam is not None:
            contents[ADAM_METRICS_FILE] = lambda: _json_lines(adam)
        if result.config.timeline and result.ranks:
            contents[TIMELINE_FILE] = lambda: draw_timeline(result.ranks)
            contents[TRACE_FILE] = lambda: json.dumps(chrome_trace(result.ranks)).encode()
        if result.profile is not None:
            contents[PROFILE_FILE] = lambda: json.dumps(profile_trace(result.profile_spans)).encode()
        writes = [lambda: save_model(self.path / MODEL_FILE, result.model, result.weights)]
        if (scores := result.embedding_scores) is not None:
            writes.append(lambda: save_embedding_scores(self.path / EMBEDDINGS_FILE, scores, result.graph))
        writes += [partial(_write, self.path / name, make) for name, make in contents.items()]
        failed: list[WriteError] = []
        for write in writes:
            try:
                write()
            except WriteError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def files(self) -> list[str]:
        """What the folder holds of this run."""
        names = (CONFIG_FILE, *OUTPUTS, BOARD_FOLDER, LOGS_FOLDER)
        return sorted(name for name in names if (self.path / name).exists())

    def _check_free(self, overwrite: bool) -> bool:
        """Refuses a folder that holds something else; True where it holds a run of this very configuration."""
        existing = self.path / CONFIG_FILE
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out must be a folder; {self.path} is a file.")
        changed: list[str] = []
        if existing.is_file():
            try:
                old = loads_run(existing.read_text(encoding="utf-8"), str(existing)).to_dict()
                changed = differences(old, self.config.to_dict())
            except (InputError, UnicodeDecodeError) as error:
                changed = [str(error)]
        if changed and not overwrite:
            raise InputError(
                f"{self.path} holds a run with another configuration: {', '.join(changed)}. "
                "Choose another --out, or add --overwrite."
            )
        foreign = [name for name in OUTPUTS if (self.path / name).exists()]
        if foreign and not existing.is_file() and not overwrite:
            raise InputError(
                f"{self.path} holds {foreign[0]} but no {CONFIG_FILE}: it is not known what made it. "
                "Choose another --out, or add --overwrite."
            )
        return existing.is_file() and not changed

    def _close_live(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            with suppress(OSError):  # what was buffered did not fit; the file goes anyway
                live.close()
        self.part.unlink(missing_ok=True)


def _write(path: Path, make: Callable[[], bytes]) -> None:
    atomic_write(path, make())


def _json_lines(result: Result) -> bytes:
    return "".join(json.dumps(jsonable(line)) + "\n" for line in result.history).encode()


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


class _Board:
    """Each number of a line as a TensorBoard scalar; nothing is written before the first."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "--tensorboard needs the tensorboard package: pip install tensorboard."
            ) from None
        self._folder, self._kind = str(folder), SummaryWriter
        self._writer: Any = None

    def add(self, line: dict[str, Any]) -> None:
        if self._writer is None:
            self._writer = self._kind(self._folder)
        values = {**{k: v for k, v in line.items() if k not in ("iteration", "extra")}, **line["extra"]}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, line["iteration"])

    def close(self) -> None:
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
