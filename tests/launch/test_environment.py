"""A job under torchrun: the same context, and a failure that names its rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gfgnn.checks import InputError
from gfgnn.launch.environment import torchrun_context, under_torchrun

SCRIPT = """
import sys
from pathlib import Path
import torch
from gfgnn.launch.environment import describe_failure, torchrun_context, under_torchrun
assert under_torchrun()
context = torchrun_context(20, folder=Path("."), on_message=lambda rank, message: print("message", rank, message))
try:
    world = context.connect()
    total = world.all_reduce(torch.tensor([1.0 + context.rank]), purpose="control").wait()
    context.progress(7)
    context.send({"total": total.item()})
    assert not context.stop_requested()
    world.barrier()
    if context.rank == 1:
        raise ValueError("no such thing")
except ValueError as error:
    sys.exit(describe_failure(error, context, "part 1"))
"""


def test_a_job_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(script),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 1
    assert result.stdout == "message 0 {'total': 3.0}\n"
    assert "\nrank 1 (part 1) raised ValueError: no such thing after iteration 7\n" in "\n" + result.stderr


def test_the_environment_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not under_torchrun()
    with pytest.raises(InputError, match="torchrun sets RANK to a whole number; the environment has ''"):
        torchrun_context(5, folder=tmp_path)
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    context = torchrun_context(5, folder=tmp_path)
    assert (context.rank, context.size, context.device) == (5, 8, "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        InputError, match="process 1 of this machine needs a CUDA device of its own; there are 1"
    ):
        torchrun_context(5, "cuda", folder=tmp_path)
