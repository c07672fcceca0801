"""How commands end when something is wrong: one line on standard error and an exit status."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from gfgnn.checks import InputError, is_out_of_memory
from gfgnn.interrupts import noticed

BAD_INPUT, FAILED, INTERRUPTED, NO_READER = 2, 1, 130, 141
NOTHING_KEPT = "interrupted before there was anything to keep."


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with errors told in one line.

    The status is 2 for bad input, 1 for files that failed or memory that was short, 130 for Ctrl-C, and 141, without a
    word, where the reader of standard output has gone (``| head``).
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with noticed() as interrupts:
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except typer.Exit:
                raise
            except InputError as error:
                raise _end(str(error), BAD_INPUT) from None
            except BrokenPipeError:
                _drop_output()
                raise typer.Exit(NO_READER) from None
            except OSError as error:
                _drop_output_that_fails()
                raise _end(str(error), FAILED) from None
            except KeyboardInterrupt:
                raise _end(NOTHING_KEPT, INTERRUPTED) from None
            except Exception as error:
                if _is_of_ranks(error):
                    raise _end(str(error), FAILED) from None
                if interrupts:
                    raise _end(NOTHING_KEPT, INTERRUPTED) from None
                if is_out_of_memory(error):
                    raise _end(f"not enough memory: {str(error).splitlines()[0]}", FAILED) from None
                raise

    return run


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Lets SIGTERM end the block like an error, so that temporary files and other processes go.

    Where somebody else has taken or ignored the signal, nothing is changed.
    """
    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(text: str, status: int) -> typer.Exit:
    print(f"error: {text}", file=sys.stderr)
    return typer.Exit(status)


def _is_of_ranks(error: Exception) -> bool:
    """A rank has failed; where ranks are threads, no launcher says which. Imports torch, and so only now."""
    from gfgnn.comm.base import CommError
    from gfgnn.launch.failure import RankFailure

    return isinstance(error, RankFailure | CommError)


def _drop_output_that_fails() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Lets what is still buffered go nowhere, so that Python does not complain about it at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
