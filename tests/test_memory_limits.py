"""Limits on the memory of a process, set by the system: runs that were said to fit do fit, with little to spare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource
import sys
from dataclasses import replace
from pathlib import Path

import torch

import gfgnn
from gfgnn.plan.limit import Settings
from gfgnn.planning import fit_memory, needs_of

how, share = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)
graph = gfgnn.load("synthetic:nodes=40000,classes=4,features=32,degree=6")
model = gfgnn.build_model(gfgnn.ModelConfig(family="gcn", layers=8, hidden=128), graph)
config = gfgnn.TrainConfig(iters=1, threads=1, order="none", partitioner="ldg")
small = gfgnn.load("synthetic:nodes=300,classes=4,features=32")  # what is imported on the way
gfgnn.train(model, small, replace(config, parts=2, out_of_core=True))
gfgnn.predict(gfgnn.train(model, small, config), small)

needs = needs_of(model, graph, 4)
parts = 4 if how == "out-of-core" else 1
limit = needs.peak(Settings(lean=True, parts=parts)) + 1_000_000
asked = replace(config, memory_limit=f"{limit}B", parts=parts, out_of_core=parts > 1)
fit = fit_memory(model, graph, asked)
assert (fit.config.lean, fit.config.target.recompute) == (True, False), fit
sizes = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
used = {kind: 1024 * int(sizes[kind].split()[0]) for kind in ("VmSize", "VmData")}
# parts out of core lie in mapped files, which are no data of the process; threads have stacks
kind, name = (resource.RLIMIT_DATA, "VmData") if parts > 1 else (resource.RLIMIT_AS, "VmSize")
room = used[name] + int(share * (limit - needs.held)) + parts * 10_000_000 * (parts > 1)
resource.setrlimit(kind, (room, room))
Path("/proc/self/clear_refs").write_text("5")
result = gfgnn.train(model, graph, asked)
peak = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
print(needs.held, limit, 1024 * int(peak.split()[1]))
gfgnn.predict(result, graph, memory_limit=f"{limit}B", parts=parts if parts > 1 else None)
"""


def run(how: str, share: float) -> subprocess.Popen[str]:
    """The program, with ``share`` of what the limit leaves above what is in use."""
    command = [sys.executable, "-c", PROGRAM, how, str(share)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no Linux: peaks are not to be had")
@pytest.mark.parametrize("how", ["in memory", "out-of-core"])
def test_a_run_that_was_said_to_fit_fits(how: str) -> None:
    enough = run(how, 1.1)
    too_little = run(how, 0.35) if how == "in memory" else None
    out, errors = enough.communicate(timeout=110)
    assert enough.returncode == 0, errors
    held, limit, peak = map(int, out.split())
    assert peak <= held + 1.1 * (limit - held), f"{peak / 1e6:.0f} MB where {limit / 1e6:.0f} MB were allowed"
    if too_little is not None:
        _, errors = too_little.communicate(timeout=110)
        assert too_little.returncode != 0, "the limit is far above what is needed"
        assert "alloc" in errors or "MemoryError" in errors, errors
