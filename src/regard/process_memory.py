"""How much memory this process takes at its peak, and how much more it may take."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# Of glibc's malloc: from this size on, memory is taken from the kernel and given back at once. Small, and the peak is
# that of the tensors, without the gaps between them; large, as glibc has it after a while, and they are made faster.
MMAP_THRESHOLD, SMALL, LARGE = -3, 1 << 16, 1 << 25
# Where the kernel tells what a container may use, and what it does: in its newer and its older form.
CONTAINER = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def growth_during(run: Callable[[], Any], gaps: bool = False) -> int:
    """Bytes of memory by which this process grew at its peak.

    `gaps`: with those that malloc leaves between tensors; without them it is the same every time.
    """
    try:
        library = ctypes.CDLL(None)
        give_back()  # or what was freed would not be seen to be used again
        Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
        before = _peak_resident()
    except (OSError, AttributeError):  # not Linux: only a peak above all earlier ones is seen
        unit = 1 if os.uname().sysname == "Darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    if gaps:
        run()
        return _peak_resident() - before
    library.mallopt(MMAP_THRESHOLD, SMALL)
    try:
        run()
        return _peak_resident() - before
    finally:
        library.mallopt(MMAP_THRESHOLD, LARGE)


def give_back() -> None:
    """Of what was freed, all that the C library has kept."""
    with suppress(OSError, AttributeError):  # another one than glibc
        ctypes.CDLL(None).malloc_trim(0)


def resident_memory() -> int:
    """Bytes that this process holds in memory now."""
    try:
        return _kilobytes(Path("/proc/self/status"), "VmRSS")
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if os.uname().sysname == "Darwin" else 1024)


def _peak_resident() -> int:
    return _kilobytes(Path("/proc/self/status"), "VmHWM")


def available_memory() -> int:
    """Bytes that can still be taken before something is killed: of the machine, or of the container if that is less."""
    try:
        free = [_kilobytes(Path("/proc/meminfo"), "MemAvailable")]
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for limit, used in CONTAINER:
        try:
            most, taken = (Path("/sys/fs/cgroup", file).read_text().strip() for file in (limit, used))
        except OSError:
            continue
        if most.isdecimal():  # else "max"
            free.append(int(most) - int(taken))
    return max(0, min(free))


def _kilobytes(file: Path, name: str) -> int:
    """A figure of a table of the kernel, in bytes."""
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{file} does not tell {name}")
