"""Batches made in a second thread, a few ahead of the loop that takes them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Iterator
from queue import Full, Queue
from typing import Any

from regard.data.batch import Batch, DataState


def ahead(
    batches: Iterator[tuple[Batch, DataState]], pinned: bool, depth: int = 8
) -> Generator[tuple[Batch, DataState]]:
    """Make batches in a second thread, a few ahead of the loop."""
    queue: Queue[Any] = Queue(maxsize=depth)
    stopped = threading.Event()
    # The loop gives the interpreter's lock away whenever it calls torch; let it have the lock back at once, not
    # only after the 5 ms that a busy thread may otherwise keep it. A GPU's steps are short, and each is several calls.
    sys.setswitchinterval(0.0001 if pinned else 0.0005)

    def put(item: Any) -> None:
        while not stopped.is_set():
            try:
                queue.put(item, timeout=0.1)
            except Full:
                continue
            break

    def work() -> None:
        try:
            for batch, state in batches:
                if pinned:
                    batch = batch.in_one_piece(pinned=True)
                _ = batch.targets  # counted here, not in the loop
                put((batch, state))
                if stopped.is_set():
                    return
        except BaseException as error:
            put(error)

    maker = threading.Thread(target=work, daemon=True)
    maker.start()
    try:
        while True:
            item = queue.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        maker.join()  # a thread that frees tensors while Python ends aborts the process
