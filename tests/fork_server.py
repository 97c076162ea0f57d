"""A process that has imported all that is heavy, and forks into a `regard` command whenever it is asked to.

Importing torch takes two seconds, and the tests give some three hundred commands. A fork is a process of its own, with
its own arguments, standard streams, folder, environment, limits and exit code, but it finds the imports done.

This file is both ends: `ForkServer` in the tests, and below it what runs in the server. The server runs one command at
a time, has no threads, and ends with the process that started it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

# What verbs import from other packages only when they need it.
LIBRARIES = ["numpy", "torch", "scipy.stats", "sacrebleu", "tokenizers", "safetensors.torch", "PIL.Image"]
LIBRARIES += ["matplotlib.pyplot", "matplotlib.backends.backend_agg", "sklearn.linear_model", "sklearn.svm"]
LIBRARIES += ["sklearn.feature_extraction.text", "sklearn.pipeline", "sklearn.preprocessing", "sklearn.datasets"]

NUMBER = struct.Struct("i")


class ForkServer:
    """The tests' end: starts the server, and asks it for one command after the other."""

    def __init__(self, environment: dict[str, str]):
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the tests, and the server through them
            )

    def run(
        self,
        arguments: list[str],
        streams: tuple[int, int, int],
        cwd: Path,
        environment: dict[str, str],
        limits: dict[int, int],
        patience: float,
    ) -> int:
        """The exit code of a command; negative, as of `Popen`, if a signal ended it."""
        request = {"arguments": arguments, "cwd": str(cwd), "environment": environment, "limits": [*limits.items()]}
        message = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self.channel, [message], streams)
        self.channel.sendall(message[sent:])
        pid = self._number()
        self.channel.settimeout(patience)
        try:
            return self._number()
        except BaseException:
            self.channel.settimeout(None)
            os.kill(pid, signal.SIGKILL)
            self._number()
            raise
        finally:
            self.channel.settimeout(None)

    def _number(self) -> int:
        content = self.channel.recv(NUMBER.size, socket.MSG_WAITALL)
        assert content, "the fork server has ended"
        number: int = NUMBER.unpack(content)[0]
        return number

    def close(self) -> None:
        self.channel.close()
        self.process.wait()


# ---------------------------------------------------------------- in the server


def preload() -> None:
    """Import the libraries and every module of regard; what cannot be imported is left to the command that needs it."""
    import regard

    ours = [module.name for module in pkgutil.walk_packages(regard.__path__, "regard.", onerror=lambda name: None)]
    for name in [*LIBRARIES, *ours]:
        if not name.endswith("__main__"):
            try:
                importlib.import_module(name)
            except Exception as error:
                print(f"fork server: {name} is not preloaded: {error}", file=sys.stderr)
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy the pages of all that was imported


def serve(channel: socket.socket) -> None:
    """Fork for each request. Returns in the forks only, when they are what the command is to run in."""
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    while True:
        message, streams, _, _ = socket.recv_fds(channel, 2**16, 3)
        while message and not message.endswith(b"\n"):
            message += channel.recv(2**16)
        if not message:
            sys.exit()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            os.close(awake)
            os.close(wake)
            become(json.loads(message), streams)
            return
        for stream in streams:
            os.close(stream)
        channel.sendall(NUMBER.pack(pid))
        channel.sendall(NUMBER.pack(wait_for(pid, awake, channel)))


def wait_for(pid: int, awake: int, channel: socket.socket) -> int:
    """The exit code of a fork, which is killed if those who asked for it are gone."""
    while True:
        ready, _, _ = select.select([awake, channel], [], [])
        if channel in ready:  # nothing is sent while a command runs: this is the end
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sys.exit()
        os.read(awake, 2**10)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this process the command's arguments, streams, folder, environment and limits."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    for what, most in request["limits"]:
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not survive the fork
    exit_code = 1  # as after a traceback
    # Registered first, it is called last. To take down all that was imported would take longer than most commands.
    atexit.register(lambda: (sys.stdout.flush(), sys.stderr.flush(), os._exit(exit_code)))
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from regard.cli import main

    try:
        main()
    except SystemExit as leave:
        exit_code = int(leave.code or 0)
