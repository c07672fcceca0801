"""How much memory a process may still take, from what the system shows."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gfgnn.ops.memory import available_memory

MIB = 2**20


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """1000 MiB are available, and nothing is limited."""
    proc = tmp_path / "proc"
    write(proc / "meminfo", f"MemTotal: 9 kB\nMemAvailable:   {1000 * 1024} kB\n")
    write(
        proc / "self/limits",
        "Limit Soft Hard Units\nMax address space  unlimited  unlimited  bytes\n",
    )
    write(proc / "self/statm", f"{300 * 256} 1 1 1 0 1 0\n")
    write(proc / "self/cgroup", "0::/a/b\n")
    return proc


def test_the_machine(proc: Path, tmp_path: Path) -> None:
    assert available_memory(str(proc), str(tmp_path / "none")) == 1000 * MIB
    assert available_memory(str(tmp_path / "none"), str(tmp_path / "none")) is None


def test_the_least_of_all_groups(proc: Path, tmp_path: Path) -> None:
    """A group may use what its own and every outer limit leave; pages of files that can be dropped are free."""
    groups = tmp_path / "groups"
    for name, most, used in (("", "max", 5), ("a", 700 * MIB, 300 * MIB), ("a/b", 900 * MIB, 100 * MIB)):
        write(groups / name / "memory.max", f"{most}\n")
        write(groups / name / "memory.current", f"{used}\n")
    assert available_memory(str(proc), str(groups)) == 400 * MIB
    write(groups / "a/memory.stat", f"anon 7\ninactive_file {50 * MIB}\n")
    assert available_memory(str(proc), str(groups)) == 450 * MIB
    write(groups / "a/memory.current", f"{800 * MIB}\n")
    assert available_memory(str(proc), str(groups)) == 0


def test_groups_of_the_first_kind(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    write(proc / "self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n")
    write(groups / "memory/x/memory.limit_in_bytes", f"{600 * MIB}")
    write(groups / "memory/x/memory.usage_in_bytes", f"{100 * MIB}")
    assert available_memory(str(proc), str(groups)) == 500 * MIB


def test_a_limited_address_space(proc: Path, tmp_path: Path) -> None:
    write(proc / "self/limits", f"Max address space  {800 * MIB}  unlimited  bytes\n")
    assert available_memory(str(proc), str(tmp_path / "none")) == 500 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say")
def test_here() -> None:
    code = (
        "from gfgnn.ops.memory import available_memory as a; import resource as r; free = a();"
        "r.setrlimit(r.RLIMIT_AS, (2**34, r.getrlimit(r.RLIMIT_AS)[1])); print(free, a())"
    )
    if resource.getrlimit(resource.RLIMIT_AS)[1] != resource.RLIM_INFINITY:
        pytest.skip("the address space is limited already")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free, limited = (int(word) for word in done.stdout.split())
    assert 0 < limited < 2**34
    assert free > 2**24
