"""The installed command, driven as a user would drive it."""

from __future__ import annotations

import atexit
import functools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from fork_server import ForkServer

REGARD = str(Path(sys.executable).parent / "regard")
PATIENCE = 300  # seconds; reached only when something hangs
PIPE_SIZE = 2**16


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
    """Run one verb to its end; its exit code must be `code`. `limits` is of resources: {RLIMIT_FSIZE: 1000}.

    It runs in a fork of a process that has the imports done; `running` starts the installed command.
    """
    content = stdin.encode() if isinstance(stdin, str) else stdin
    assert len(content) <= PIPE_SIZE, "a pipe that nobody reads yet does not hold more"
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    with open(reader), TemporaryFile() as stdout, TemporaryFile() as stderr:
        ended = fork_server().run(
            [REGARD, *map(str, arguments)],
            (reader, stdout.fileno(), stderr.fileno()),
            cwd or Path.cwd(),
            environment(),
            limits or {},
            PATIENCE,
        )
        texts = []
        for stream in (stdout, stderr):
            stream.seek(0)
            texts.append(stream.read().decode())
    return checked(Result(ended, *texts), code)


@functools.cache
def fork_server() -> ForkServer:
    """One for each process that runs tests."""
    server = ForkServer(environment())
    atexit.register(server.close)
    return server


def checked(result: Result, code: int | None = None) -> Result:
    """A result fit to be seen by a user, with the exit code that was expected."""
    assert "Traceback" not in result.stderr, result.stderr
    assert "\x1b" not in result.stdout + result.stderr, "escape codes where there is no terminal"
    assert code in (None, result.code), result.stderr
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


def finish(process: subprocess.Popen[bytes]) -> Result:
    stdout, stderr = process.communicate(timeout=PATIENCE)
    return checked(Result(process.returncode, stdout.decode(), stderr.decode()))


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
