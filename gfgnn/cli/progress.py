"""The live display of a training run, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class TrainingProgress:
    """Iteration, loss, accuracies, seconds and rate on standard error; silent unless that is a terminal."""

    def __init__(self, name: str, iterations: int) -> None:
        self.name, self.iterations = name, iterations
        self._progress: Any = None

    def __enter__(self) -> TrainingProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"), console=Console(stderr=True),
            )  # fmt: skip
            self._progress.start()
            self._task = self._progress.add_task(self.name, total=self.iterations, numbers="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def on_iteration(self, line: dict[str, Any]) -> None:
        if self._progress is None:
            return
        if line["loss"] is not None:
            self._progress.update(self._task, completed=line["iteration"], numbers=describe(line))
        else:
            self._progress.update(self._task, completed=line["iteration"])


def describe(line: dict[str, Any]) -> str:
    """One evaluated history line in words."""
    parts = [f"loss {line['loss']:.4f}"]
    parts += [f"{key} {line[key]:.3f}" for key in ("train", "val") if line[key] is not None]
    parts += [f"{line['seconds']:.1f} s", f"{line['iteration'] / line['seconds']:.1f}/s"]
    return "  ".join(parts)
