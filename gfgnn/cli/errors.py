"""How commands end when something is wrong: one line on standard error and an exit status."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import typer

from gfgnn.checks import InputError

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with errors told in one line: status 2 for bad input, 1 for files that failed, 130 for Ctrl-C."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except InputError as error:
            raise _end(str(error), BAD_INPUT) from None
        except OSError as error:
            raise _end(str(error), FAILED) from None
        except KeyboardInterrupt:
            raise _end("interrupted before there was anything to keep.", INTERRUPTED) from None

    return run


def _end(text: str, status: int) -> typer.Exit:
    print(f"error: {text}", file=sys.stderr)
    return typer.Exit(status)
