"""Stands in for `regard`, or for `python -m regard`: passes all that a process is given on to a fork of the server.

Signals are passed on too, and its exit code is the fork's. If it is killed, the server kills the fork. It imports
little and starts in hundredths of a second.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("i")
LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS)


def main(address: str, program: str, executable: str, *arguments: str) -> None:
    """`program` is what the fork sees as its name, `executable` what it sees as its Python."""
    pid = 0
    early: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        if pid:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)
        else:
            early.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    request = {
        "arguments": [program, *arguments],
        "executable": executable,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "limits": [(what, resource.getrlimit(what)) for what in LIMITS],
    }
    with ask(address, request, [0, 1, 2]) as server:
        pid = NUMBER.unpack(server.recv(NUMBER.size))[0]
        for number in early:
            os.kill(pid, number)
        for stream in (0, 1, 2):
            os.close(stream)  # the reader of a pipe sees its end when the command closes it
        code = NUMBER.unpack(server.recv(NUMBER.size))[0]
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be handled anyway
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def ask(address: str, request: dict[str, object], streams: list[int]) -> socket.socket:
    """Give the server a request. It answers twice: with the number of the fork, and with its exit code."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    message = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(server, [message], streams)
    server.sendall(message[sent:])
    return server


if __name__ == "__main__":
    main(*sys.argv[1:])
