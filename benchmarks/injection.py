"""Faults at chosen system calls: the Python side of faults.c, which is compiled when it is first needed."""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# As in faults.c.
KINDS = {"write": 1, "flush": 2, "rename": 4, "mkdir": 8, "open": 16, "remove": 32, "symlink": 64}
ACTIONS = {"nothing": 0, "fail": 1, "full": 2, "short": 3, "kill": 4, "kill half-way": 5}
ANY = tuple(KINDS)


@dataclass(frozen=True)
class Fault:
    """What happens to one call: the `number`th, counted from 1, of these kinds that concerns a path with this part."""

    action: str = "nothing"
    number: int = 0
    kinds: tuple[str, ...] = ANY
    error: str = "EIO"
    part: str = ""

    def before(self, folder: Path, trace: Path) -> str:
        """Python that arms a process with it, for paths below a folder; to be run first, as `BEFORE_REGARD` is."""
        kinds = sum(KINDS[kind] for kind in self.kinds)
        numbers = f"{kinds}, {self.number}, {ACTIONS[self.action]}, {getattr(errno, self.error)}"
        return f"""
import ctypes, os
trace = os.open({str(trace)!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
library = ctypes.CDLL({str(library())!r})
library.arm.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_int] * 2 + [ctypes.c_long] + [ctypes.c_int] * 2
failed = library.arm({os.fsencode(folder.resolve())!r}, {self.part.encode()!r}, trace, {numbers})
assert not failed, os.strerror(failed)
"""

    def __str__(self) -> str:
        return f"{self.action}{' ' + self.error if self.action == 'fail' else ''}"


@dataclass(frozen=True)
class Call:
    kind: str
    path: str
    result: int  # negative: an error number
    hit: bool  # it is the one that was chosen


def read_trace(trace: Path) -> list[Call]:
    """Every call that concerned the folder, in order. The last may be one that ended the process."""
    names = {bit: kind for kind, bit in KINDS.items()}
    calls: list[Call] = []
    hit: Call | None = None
    for line in trace.read_text().splitlines() if trace.exists() else []:
        what, bit, result, path = line.split(" ", 3)
        call = Call(names[int(bit)], path, int(result), what == "hit" or hit is not None)
        hit = call if what == "hit" else None
        if what == "call":
            calls.append(call)
    return [*calls, hit] if hit else calls


@functools.cache
def library() -> Path:
    """The compiled faults.c. Raises OSError where it cannot be made."""
    folder = Path(tempfile.mkdtemp(prefix="regard-faults-"))
    atexit.register(shutil.rmtree, folder)
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", folder / "faults.so", Path(__file__).with_name("faults.c")]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode:
        raise OSError(f"faults.c cannot be compiled: {compiled.stderr.strip().splitlines()[-1]}")
    return folder / "faults.so"


@functools.cache
def why_not() -> str:
    """Why no faults can be injected on this machine; "" if they can."""
    try:
        loaded = ctypes.CDLL(str(library()))
    except OSError as error:
        return f"no faults can be injected: {error}"
    child = os.fork()
    if child == 0:
        os._exit(1 if loaded.arm(b"/nowhere", b"", -1, 0, ctypes.c_long(0), 0, 0) else 0)
    _, status = os.waitpid(child, 0)
    return "no faults can be injected: seccomp is not allowed here" if status else ""
