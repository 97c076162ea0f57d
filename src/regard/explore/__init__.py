"""The page that looks inside a run: a small server with the model behind it, or one file that works offline.

page/        plain ES modules, served as they are
session      the loaded runs, and the inputs traced most recently
questions    what the page may ask, by name
matrices     what the page may fetch, by name, with `stages`: the vectors between the parts of a model
arrays       matrices on their way to the page
steps        one position's walk through a model
arithmetic   how any number was computed, with `sums`, `sums_of_attention`, `sums_of_embedding`, `sums_of_mixers`
server       HTTP, on this machine only
recording    the page with its answers inside, as one file
"""

from __future__ import annotations

import socket

from regard.errors import RegardError

HOST = "127.0.0.1"  # nobody else can ask


def listen(port: int = 0) -> socket.socket:
    """A socket on this machine; 0: any free port.

    Its protocol is named because asyncio sends small answers at once only on sockets known to be TCP. Otherwise the
    second half of each waits for an acknowledgement, 40 ms: two seconds for the modules of the page.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise RegardError(
            f"Port {port} cannot be used.", f"{error.strerror}.", "Choose another with --port, or leave it out."
        ) from None
    return listener
