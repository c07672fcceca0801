"""The folder of a run: what is in it, and who may write there."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from gfgnn.checkpoint import MODEL_FILE, atomic_write, jsonable, save_model
from gfgnn.checks import InputError
from gfgnn.curves import draw_curves
from gfgnn.result import Result
from gfgnn.toml import RunConfig, differences, dumps, loads_run

CONFIG_FILE, METRICS_FILE, RESULT_FILE, CURVES_FILE = (
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "curves.png",
)
ADAM_METRICS_FILE = "metrics_adam.jsonl"
OUTPUTS = (METRICS_FILE, RESULT_FILE, CURVES_FILE, MODEL_FILE, ADAM_METRICS_FILE)


class RunFolder:
    """Receives the lines of a run while it goes on, and its results at the end.

    Nothing is written before the context is entered, and every file is written atomically. While training runs,
    its lines are also found in ``metrics.jsonl.part``.

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
        self._check_free(overwrite)
        self._board = _Board(self.path / "tensorboard") if tensorboard else None

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        for name in OUTPUTS:  # results of an earlier run must not stand beside this one's configuration
            (self.path / name).unlink(missing_ok=True)
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
            self._board.add(line)

    def finish(self, result: Result, summary: dict[str, Any], adam: Result | None = None) -> None:
        """Writes everything.

        Args:
            summary: the object that ``result.json`` holds.
            adam: the baseline's run, where there was one, for the curves and its own lines.

        Raises:
            WriteError: a file could not be written; each file is complete or absent.
        """
        self._close_live()
        save_model(self.path / MODEL_FILE, result.model, result.weights)
        atomic_write(self.path / METRICS_FILE, _json_lines(result))
        if adam is not None:
            atomic_write(self.path / ADAM_METRICS_FILE, _json_lines(adam))
        atomic_write(self.path / RESULT_FILE, (json.dumps(jsonable(summary), indent=2) + "\n").encode())
        atomic_write(self.path / CURVES_FILE, draw_curves([result] if adam is None else [result, adam]))

    def _check_free(self, overwrite: bool) -> None:
        """Refuses a folder that holds something else."""
        existing = self.path / CONFIG_FILE
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out must be a folder; {self.path} is a file.")
        if existing.is_file() and not overwrite:
            old = loads_run(existing.read_text(encoding="utf-8"), str(existing)).to_dict()
            changed = differences(old, self.config.to_dict())
            if changed:
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

    def _close_live(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            with suppress(OSError):  # what was buffered did not fit; the file goes anyway
                live.close()
        self.part.unlink(missing_ok=True)


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
            self._writer.close()
