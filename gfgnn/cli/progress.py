"""Displays of what takes long: a training run, on a terminal only, and the first load of a large data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

#: seconds that loading may take without a word, and between lines where standard error is no terminal
QUIET, EVERY = 2.0, 30.0


class LoadingProgress:
    """What is being done, how much of it is, and the time left, on standard error; silent where all is over soon.

    A terminal has one line that changes, anything else a line when a phase begins and then one every 30 s at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[
            str, tuple[float, float]
        ] = {}  # when each phase was first heard of, and its share then
        self._shown: set[str] = set()
        self._last = 0.0
        self._progress: Any = None

    def __enter__(self) -> LoadingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def report(self, phase: str, share: float) -> None:
        """For :func:`gfgnn.load`."""
        now = self._clock()
        began, before = self._began.setdefault(phase, (now, share))
        if now - next(iter(self._began.values()))[0] < QUIET or sys.stderr is None:
            return
        left = (now - began) * (1 - share) / (share - before) if share > before else None
        text = f"{phase}: {share:.0%}" + ("" if left is None else f", {duration(left)} left")
        if sys.stderr.isatty():
            self._draw(text, share)
        elif phase not in self._shown or now - self._last >= EVERY:
            self._shown.add(phase)
            self._last = now
            print(text, file=sys.stderr, flush=True)

    def _draw(self, text: str, share: float) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._progress = Progress(
                BarColumn(bar_width=24), TextColumn("{task.description}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._progress.start()
            self._task = self._progress.add_task(text, total=1.0)
        self._progress.update(self._task, completed=share, description=text)


def duration(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
