"""The installed command, driven as a user would drive it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fork_client import NUMBER, ask

HERE = Path(__file__).parent
REGARD = Path(sys.executable).parent / "regard"
NO_WAITING = "import os; os.fsync = lambda descriptor: None\n"  # for the disk: no test cuts the power
NO_CURVES = "from regard.tasks.task import Task; Task.draw = lambda task: None\n"
OF_ALL_WORKERS = "REGARD_TESTS_FORK_SERVER"  # the variable that names the folder of their fork server
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
    variables: dict[str, str] | None = None,
    before: str = "",
    code: int = 0,
    curves: bool = False,
) -> Result:
    """Run one verb to its end; its exit code must be `code`. `limits` is of resources: {RLIMIT_FSIZE: 1000}.

    It runs in a fork of a process that has the imports done, see `fork_server.py`. `before` is Python that is run in
    the fork first, see `when`. `curves`: to draw those of a training takes longer than a tiny training.
    """
    forks = fork_server()
    request = {
        "arguments": [str(REGARD), *map(str, arguments)],
        "executable": str(forks.python),
        "folder": str(cwd or Path.cwd()),
        "environment": environment()
        | {"BEFORE_REGARD": NO_WAITING + NO_CURVES * (not curves) + before}
        | (variables or {}),
        "limits": [(what, (most, most)) for what, most in (limits or {}).items()],
    }
    result = finished(forks.socket, request, stdin.encode() if isinstance(stdin, str) else stdin)
    assert result.code == code, result.stderr
    return result


def finished(server: Path, request: dict[str, object], stdin: bytes) -> Result:
    """What a fork gives that is asked for directly: a program that stands in for it takes longer to start than it."""
    (its_input, ours), (output, its_output), (errors, its_errors) = os.pipe(), os.pipe(), os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(ours, "wb") as pipe:
            pipe.write(stdin)

    def read(stream: int) -> bytes:
        with open(stream, "rb") as pipe:
            return pipe.read()

    with ThreadPoolExecutor(3) as pool, ask(str(server), request, [its_input, its_output, its_errors]) as answers:
        for stream in (its_input, its_output, its_errors):
            os.close(stream)
        pool.submit(write)
        printed = [pool.submit(read, stream) for stream in (output, errors)]
        answers.settimeout(PATIENCE)  # what is not done by then ends with this connection
        answers.recv(NUMBER.size)
        code = NUMBER.unpack(answers.recv(NUMBER.size))[0]
    return checked(Result(code, *(stream.result().decode() for stream in printed)))


@contextmanager
def running(
    *arguments: str | Path,
    stdin: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
    program: Path = REGARD,
) -> Iterator[subprocess.Popen[bytes]]:
    """A verb at work, that does not outlive the test; the installed command unless `program` says otherwise."""

    process = subprocess.Popen(
        [program, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment() | (variables or {}),
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
    return checked(Result(process.returncode, stdout.decode(), stderr.decode()))


def checked(result: Result) -> Result:
    """Of no command may there be these."""
    assert "Traceback" not in result.stderr, result.stderr
    assert "\x1b" not in result.stdout + result.stderr, "escape codes where there is no terminal"
    return result


@dataclass(frozen=True)
class ForkServer:
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def regard(self) -> Path:
        """A program to run instead of `regard`,"""
        return self.folder / "regard"

    @property
    def python(self) -> Path:
        """and instead of `python`, which starts only `-m regard`."""
        return self.folder / "python"


def forked_regard() -> Path:
    """A program to run instead of `regard`, where a test wants a process of its own."""
    return fork_server().regard


@functools.cache
def fork_server() -> ForkServer:
    """That of all workers; without workers, that of this process, which its first command starts."""
    return ForkServer(Path(os.environ[OF_ALL_WORKERS])) if OF_ALL_WORKERS in os.environ else start_fork_server()


def share_fork_server() -> None:
    """Processes that this one starts from now on have one server, which ends with this one."""
    os.environ[OF_ALL_WORKERS] = str(start_fork_server().folder)


def start_fork_server() -> ForkServer:
    forks = ForkServer(Path(tempfile.mkdtemp(prefix="regard-tests-")))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(forks.socket))
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
    client = shlex.join([sys.executable, "-IS", str(HERE / "fork_client.py"), str(forks.socket), str(REGARD)])
    _write_program(forks.python, f'shift 2\nexec {client} {forks.python} "$@"')
    _write_program(forks.regard, f'exec {client} {forks.python} "$@"')

    def stop() -> None:
        server.communicate()
        shutil.rmtree(forks.folder)

    atexit.register(stop)
    return forks


def _write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


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
