"""How the process keeps memory between iterations, and how much more it may have."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator

import numpy as np
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
#: What was last asked for in this process.
_asked = {"lean": False}
_LARGE = 1 << 20  #: bytes of what is worth a call of the system
_MADV_PAGEOUT = 21  #: since Linux 5.4; Python has no name for it
_NEVER = -1  #: a size that never trims; any other is at most 2 GB


def keep_freed_memory() -> bool:
    """Tells the C library to keep freed memory for the next allocation; returns whether it could.

    glibc gives every block above 32 MB back to the system when it is freed and gets zeroed pages for the next one. An
    iteration allocates the same few N x d blocks again and again, and an elementwise step then spends two thirds
    of its time in page faults (arxiv, width 128: scaling the rows took 48 ms, and 16 ms with freed blocks kept).
    The cost: memory freed during training is not returned before the process ends, and blocks of many sizes leave
    holes.
    """
    _asked["lean"] = False
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, _NEVER))
    except (AttributeError, OSError):  # another C library
        return False


def return_freed_memory() -> bool:
    """The opposite: every block of a megabyte and more is given back as soon as it is freed; returns whether it could.

    A process then holds what it uses and no more; iterations take a third longer (docs/distributed.md).
    """
    _asked["lean"] = True
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        # a stated threshold also ends glibc's habit of raising it to the size of each block that is freed
        limits = ((_M_MMAP_MAX, 1 << 16), (_M_MMAP_THRESHOLD, 1 << 20), (_M_TRIM_THRESHOLD, 1 << 20))
        return all(libc.mallopt(name, value) for name, value in limits)
    except (AttributeError, OSError):  # another C library
        return False


def is_lean() -> bool:
    """Whether :func:`return_freed_memory` was the last of the two to be called."""
    return _asked["lean"]


def release_freed_memory() -> bool:
    """Gives freed memory back to the system once; returns whether it could.

    For the end of a set-up: what it has freed lies in pieces between what it keeps, where no later block would fit.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):  # another C library
        return False


def resident_bytes() -> int | None:
    """Memory that this process has in use now; None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):  # no Linux
        return None


def page_out(tensors: Iterable[Tensor]) -> None:
    """Lets go of the memory of tensors that are mapped from files; it is read again when they are next looked at.

    What was written to private maps stays, and so does whatever no file is behind. Nobody may be writing meanwhile.
    """
    if not sys.platform.startswith("linux"):
        return
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    for tensor in _mapped(tensors):
        address = tensor.data_ptr()
        begin, end = -(-address // page) * page, (address + tensor.nbytes) // page * page
        # the first keeps the pages for whoever looks next, but would undo what was written
        advice = mmap.MADV_DONTNEED if _as_in_the_file(begin, end) else _MADV_PAGEOUT
        libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), advice)


def mapped_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of those tensors that are mapped from files, whether they are in memory or not."""
    return sum(tensor.nbytes for tensor in _mapped(tensors))


def _mapped(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    files: list[tuple[int, int]] | None = None
    for tensor in tensors:
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.nbytes < _LARGE:
            continue
        files = _file_ranges() if files is None else files
        if any(begin <= tensor.data_ptr() < end for begin, end in files):
            yield tensor


def _as_in_the_file(begin: int, end: int) -> bool:
    """Whether no page between these addresses is this process' own copy."""
    present, swapped, of_file = (np.uint64(1 << bit) for bit in (63, 62, 61))  # Linux, admin-guide/mm/pagemap
    try:
        with open("/proc/self/pagemap", "rb") as file:
            file.seek(begin // mmap.PAGESIZE * 8)
            pages = np.frombuffer(file.read((end - begin) // mmap.PAGESIZE * 8), np.uint64)
    except OSError:
        return False
    own = ((pages & present) != 0) & ((pages & of_file) == 0) | ((pages & swapped) != 0)
    return not own.any()


def _file_ranges() -> list[tuple[int, int]]:
    """Addresses at which files are mapped."""
    found = []
    for line in _read("/proc/self/maps").splitlines():
        addresses, _, _, _, inode, *_ = line.split()
        if inode != "0":
            begin, end = addresses.split("-")
            found.append((int(begin, 16), int(end, 16)))
    return found


def available_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int | None:
    """Bytes that the process may still take: the least of what the machine, its control groups and limits leave.

    None where the system does not say (it is no Linux). Pages of files that can be dropped count as free.

    Args:
        proc, cgroups: where the system shows its state.
    """
    left = [*_of_machine(proc), *_of_address_space(proc), *_of_groups(proc, cgroups)]
    return max(0, min(left)) if left else None


def _of_machine(proc: str) -> Iterator[int]:
    for line in _read(f"{proc}/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield 1024 * int(line.split()[1])


def _of_address_space(proc: str) -> Iterator[int]:
    for line in _read(f"{proc}/self/limits").splitlines():
        if line.startswith("Max address space"):
            limit, pages = line.split()[3], _read(f"{proc}/self/statm").split()
            if limit != "unlimited" and pages:
                yield int(limit) - 4096 * int(pages[0])


def _of_groups(proc: str, cgroups: str) -> Iterator[int]:
    """What the limits of the process' control groups, and of those these lie in, leave; of either version."""
    for line in _read(f"{proc}/self/cgroup").splitlines():
        _, kind, path = line.split(":", 2)
        if kind not in ("", "memory"):
            continue
        root = f"{cgroups}/{kind}".rstrip("/")
        limit, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if kind else ("memory.max", "memory.current")
        )
        names = [name for name in path.split("/") if name]
        for depth in range(len(names) + 1):
            folder = "/".join([root, *names[:depth]])
            most, now = _read(f"{folder}/{limit}").strip(), _read(f"{folder}/{used}").strip()
            if most.isdigit() and now.isdigit():
                stat = dict(row.split() for row in _read(f"{folder}/memory.stat").splitlines())
                yield int(most) - int(now) + int(stat.get("inactive_file", 0))


def _read(path: str) -> str:
    """The text of a file of the system; nothing where there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
