"""The installed command, driven as a user would drive it."""

from __future__ import annotations

import atexit
import functools
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REGARD = Path(sys.executable).parent / "regard"
NO_CURVES = "from regard.tasks.task import Task; Task.draw = lambda task: None\n"
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
    before: str = "",
    code: int = 0,
    curves: bool = False,
) -> Result:
    """Run one verb to its end; its exit code must be `code`. `limits` is of resources: {RLIMIT_FSIZE: 1000}.

    It runs in a fork of a process that has the imports done, see `fork_server.py`. `before` is Python that is run in
    the fork first, see `when`. `curves`: to draw those of a training takes longer than a tiny training.
    """
    variables = {"BEFORE_REGARD": before if curves else NO_CURVES + before}
    with running(
        *arguments, stdin=subprocess.PIPE, cwd=cwd, limits=limits, variables=variables, program=forked_regard()
    ) as process:
        result = finish(process, stdin.encode() if isinstance(stdin, str) else stdin)
    assert result.code == code, result.stderr
    return result


@contextmanager
def running(
    *arguments: str | Path,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    limits: dict[int, int] | None = None,
    variables: dict[str, str] | None = None,
    program: Path = REGARD,
) -> Iterator[subprocess.Popen[bytes]]:
    """A verb at work, that does not outlive the test; the installed command unless `program` says otherwise."""

    def limit() -> None:
        for what, most in (limits or {}).items():
            resource.setrlimit(what, (most, most))

    process = subprocess.Popen(
        [program, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment() | (variables or {}),
        preexec_fn=limit if limits else None,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def when(event: str, path: str, then: str) -> str:
    """Python for `before`: the first time that an audit event (open, os.rename) concerns a path, `then` is run.

    So a signal comes at a moment of the training, not of the clock.
    """
    return f"""
import os, signal, sys
waiting = True
def look(event, arguments):
    global waiting
    if waiting and event == {event!r} and {path!r} in str(arguments):
        waiting = False
        {then}
sys.addaudithook(look)
"""


def finish(process: subprocess.Popen[bytes], stdin: bytes | None = None) -> Result:
    stdout, stderr = process.communicate(stdin, timeout=PATIENCE)
    result = Result(process.returncode, stdout.decode(), stderr.decode())
    assert "Traceback" not in result.stderr, result.stderr
    assert "\x1b" not in result.stdout + result.stderr, "escape codes where there is no terminal"
    return result


@functools.cache
def forked_regard() -> Path:
    """A program to run instead of `regard`. The first call in a process starts the server that it asks."""
    folder = Path(tempfile.mkdtemp(prefix="regard-tests-"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        command = [sys.executable, HERE / "fork_server.py", str(listener.fileno())]
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env=environment(),
            start_new_session=True,  # Ctrl-C reaches the tests, and the server through them
        )
    # What a command itself starts with its `sys.executable -m regard` is forked, too.
    ask = shlex.join([sys.executable, "-IS", str(HERE / "fork_client.py"), str(folder / "socket"), str(REGARD)])
    python = _program(folder / "python", f'shift 2\nexec {ask} {folder / "python"} "$@"')
    program = _program(folder / "regard", f'exec {ask} {python} "$@"')

    def stop() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(stop)
    return program


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


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
