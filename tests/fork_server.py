"""A process that has imported all that is heavy, and forks into a `regard` command whenever it is asked to.

Importing torch takes two seconds, and the tests give some four hundred commands. A fork finds the imports done, and is
otherwise a process like any other: with its own arguments, standard streams, folder, environment, limits and exit code.

`fork_client.py` asks for one, and stands in for it. This server has no threads, and ends, with all its forks, when its
standard input does: with the process that started it, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import selectors
import signal
import socket
import sys
from typing import Any

from fork_client import NUMBER
from imports import freeze_imports

# What verbs import from other packages only when they need it.
LIBRARIES = [
    "numpy",
    "torch",
    "torch._dynamo",
    "scipy.stats",
    "sacrebleu",
    "tokenizers",
    "safetensors.torch",
    "PIL.Image",
]
LIBRARIES += ["matplotlib.pyplot", "matplotlib.backends.backend_agg", "sklearn.linear_model", "sklearn.svm"]
LIBRARIES += ["rouge_score.rouge_scorer", "sacrebleu.tokenizers.tokenizer_13a", "pycocotools.cocoeval"]
LIBRARIES += ["PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin", "PIL.PpmImagePlugin"]
LIBRARIES += ["rich._emoji_codes", "typer._click.decorators", "importlib.resources.readers"]
LIBRARIES += ["sklearn.feature_extraction.text", "sklearn.pipeline", "sklearn.preprocessing", "sklearn.datasets"]


def preload() -> None:
    """Import the libraries and every module of regard; what cannot be imported is left to the command that needs it."""
    gc.disable()
    import regard

    ours = [module.name for module in pkgutil.walk_packages(regard.__path__, "regard.", onerror=lambda name: None)]
    for name in [*LIBRARIES, *ours]:
        if not name.endswith("__main__"):
            try:
                importlib.import_module(name)
            except Exception as error:
                if isinstance(error, ModuleNotFoundError) and error.name == "triton":
                    continue  # kernels, which only a machine with a GPU can build
                print(f"fork server: {name} is not preloaded: {error}", file=sys.stderr)
    freeze_imports()


def serve(listener: socket.socket) -> None:
    """Fork for each connection. Returns in the forks only, which are then what the command is to run in."""
    awake, wake = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that a byte comes through the pipe
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    clients: dict[int, socket.socket] = {}  # by the process that runs for them
    with selectors.DefaultSelector() as selector:
        for source in (sys.stdin.fileno(), awake, listener):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin.fileno() in ready:
                for pid in clients:
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            if awake in ready:
                os.read(awake, 2**10)
                report_ended(clients, selector)
            for pid, client in clients.items():
                if client in ready:  # a client has nothing more to say: it was killed
                    os.kill(pid, signal.SIGKILL)
                    selector.unregister(client)
            if listener in ready:
                client, _ = listener.accept()
                if not (asked := receive(client)):
                    client.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for inherited in (client, listener, *clients.values()):
                        inherited.close()
                    os.close(awake)
                    os.close(wake)
                    become(*asked)
                    return
                for stream in asked[1]:
                    os.close(stream)
                clients[pid] = client
                tell(client, pid)
                selector.register(client, selectors.EVENT_READ)


def report_ended(clients: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell those whose command has ended its exit code: negative, as of `Popen`, after a signal."""
    for pid, client in list(clients.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del clients[pid]
            if client in selector.get_map():
                selector.unregister(client)
                tell(client, os.waitstatus_to_exitcode(status))
            client.close()


def tell(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it may have been killed
        client.sendall(NUMBER.pack(number))


def receive(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What a client asks for, with its standard streams; nothing if it was killed before it could."""
    message, streams, _, _ = socket.recv_fds(client, 2**16, 3)
    while not message.endswith(b"\n"):
        if not (more := client.recv(2**16)):
            return None
        message += more
    return json.loads(message), streams


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this process the command's arguments, streams, folder, environment and limits."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    sys.executable = request["executable"]
    for what, limits in request["limits"]:
        resource.setrlimit(what, limits)


if __name__ == "__main__":
    del sys.path[0]  # this folder, which the command does not see
    exit_code = 1  # as after a traceback; a command that ends well leaves by itself

    def leave() -> None:
        """Clearing away all that was imported would take longer than most commands."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)

    atexit.register(leave)  # registered first, it is called last
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not survive the fork
    listener = socket.socket(fileno=int(sys.argv[1]))
    if listener not in select.select([listener, sys.stdin], [], [])[0]:
        sys.exit()  # there was no command
    preload()
    serve(listener)
    atexit._clear()  # in a fork, what libraries clear away at their end is the server's
    atexit.register(leave)
    try:
        exec(os.environ.get("BEFORE_REGARD", ""), {})  # what a test wants to happen in the fork, at some moment
        from regard.cli import script

        script()
    except SystemExit as leave:
        exit_code = int(leave.code or 0)
