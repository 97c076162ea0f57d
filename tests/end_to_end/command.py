"""The installed command, driven as a user would drive it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REGARD = str(Path(sys.executable).parent / "regard")
PATIENCE = 300  # seconds; reached only when something hangs


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> list[str]:
        """The lines from `Error:` on."""
        lines = self.stderr.splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
        return lines[starts[0] :] if starts else []


def regard(
    *arguments: str | Path,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    limits: dict[int, int] | None = None,
    code: int = 0,
) -> Result:
    """Run one verb to its end; its exit code must be `code`. `limits` is of resources: {RLIMIT_AS: 2**32}."""
    with running(*arguments, stdin=subprocess.PIPE, cwd=cwd, limits=limits) as process:
        result = finish(process, stdin.encode() if isinstance(stdin, str) else stdin)
    assert result.code == code, result.stderr
    return result


@contextmanager
def running(
    *arguments: str | Path,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    limits: dict[int, int] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A verb at work, that does not outlive the test."""

    def limit() -> None:
        for what, most in (limits or {}).items():
            resource.setrlimit(what, (most, most))

    process = subprocess.Popen(
        [REGARD, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(),
        preexec_fn=limit,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Result:
    stdout, stderr = process.communicate(stdin, timeout=PATIENCE)
    result = Result(process.returncode, stdout.decode(), stderr.decode())
    assert "Traceback" not in result.stderr, result.stderr
    assert "\x1b" not in result.stdout + result.stderr, "escape codes where there is no terminal"
    return result


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that the process is to do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"it ended before: {finish(process).stderr}"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


def environment() -> dict[str, str]:
    """This environment, with no GPU and no wish about colour."""
    hidden = ("NO_COLOR", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"CUDA_VISIBLE_DEVICES": ""}


def tree(folder: Path) -> set[Path]:
    """Everything in a folder, by its path from there."""
    return {path.relative_to(folder) for path in folder.rglob("*")}
