"""Processes beside this one, for work that only one thread of Python's can do at a time; and how they are talked to.

A message is its length in eight bytes, JSON, and the bytes that follow it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from regard.errors import RegardError


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_module(
    module: str, arguments: Sequence[str] = (), piped: bool = False, inherited: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A module of Regard's as a program, with these descriptors. An OSError where no process can be started."""
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments],
        stdin=pipe,
        stdout=pipe,
        pass_fds=inherited,
        env=environment_beside() | {"TOKENIZERS_PARALLELISM": "false"},
    )


def environment_beside() -> dict[str, str]:
    """Of a process: the same modules from the same places, but none from the current folder; and a thread for sums."""
    places = os.pathsep.join(place for place in sys.path if place)
    own = {"PYTHONPATH": places, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | own


def has_ended(what: str, status: int, remedy: str) -> RegardError:
    """The error of a process that ended before its work did."""
    by = signal.Signals(-status).name if -status in set(signal.Signals) else ""
    return RegardError(
        f"A process that {what} has ended.",
        f"It was ended by {by}, perhaps for want of memory." if by else f"Its exit status is {status}.",
        remedy,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """A process that is piped, at once. What it was not sent is lost."""
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            pipe.close()


def send(file: BinaryIO, message: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> None:
    text = json.dumps(message).encode()
    file.write(b"".join((len(text).to_bytes(8), text, *blobs)))
    file.flush()


def receive(file: BinaryIO) -> dict[str, Any] | None:
    """None at the end of the stream."""
    length = file.read(8)
    text = file.read(int.from_bytes(length)) if len(length) == 8 else b""
    return json.loads(text) if len(text) == int.from_bytes(length) > 0 else None
