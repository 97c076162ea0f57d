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
    # The same modules from the same places, but none from the current folder; and a thread each for numpy.
    places = os.pathsep.join(place for place in sys.path if place)
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments],
        stdin=pipe,
        stdout=pipe,
        env=os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
