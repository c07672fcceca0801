"""No process outlives its test, whatever becomes of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from grid_processes import STARTED


@pytest.fixture(autouse=True)
def _end_processes() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)  # torchrun's do not die with it
            process.kill()
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.communicate()
