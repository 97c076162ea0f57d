"""Processes beside this one, for work that only one thread of Python's can do at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_module(module: str, arguments: Sequence[str] = (), piped: bool = False) -> subprocess.Popen[bytes]:
    """A module of Regard's as a program. An OSError where no process can be started."""
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments],
        stdin=pipe,
        stdout=pipe,
        env=environment_beside(),
    )


def environment_beside() -> dict[str, str]:
    """Of a process: the same modules from the same places, but none from the current folder; and a thread for sums."""
    places = os.pathsep.join(place for place in sys.path if place)
    own = {"PYTHONPATH": places, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | own
