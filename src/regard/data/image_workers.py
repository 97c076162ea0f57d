"""Images decoded in parallel: in threads, or, where there are so many that it pays, in processes of their own.

Of a small image, most of the work is Python's, and only one thread at a time can do that. So the first few images are
timed. If all together take seconds, processes are started, each with a thread here that waits for it. They share a file
that each image is written to by whoever decodes it; what comes back is only its hash fraction and its own size.

Few images are under way at a time, so that memory stays bounded however many there are, and however large.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, cast

import numpy as np

from regard.data.image_decoding import Outcome, Read, decode, send_contents
from regard.data.image_entries import Content, Entry
from regard.data.images import BadImage, Form
from regard.data.processes import cores, end, has_ended, receive, send, start_module

MOST_BYTES = 2**24  # of images, before or after decoding, that a thread or process is given at a time
MOST_IMAGES = {"thread": 64, "process": 512}
THREADS = 16
TIMED, TIMED_SECONDS = 64, 0.05  # images and seconds of them at most, to tell how long all take
AGAIN = "Free some memory, and give the same command again."
WORTH = 0.5  # seconds of work that a process must save; it takes about that long to start

Image = tuple[Entry, Content]
Decode = Callable[[list[Content], int], list[Outcome]]  # of the contents; the row of the first


def decoded_in_order(images: Iterable[Image], total: int, form: Form, target: Path) -> Generator[tuple[Entry, Outcome]]:
    """Every image in the order they come, decoded: image n is row n of the target, a file that is written here."""
    images = iter(images)
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.truncate(descriptor, total * form.bytes)

        def here(contents: list[Content], first: int) -> list[Outcome]:
            return decode(contents, first, form, descriptor)

        done, seconds_each = 0, 0.0
        for entry, outcome, spent in _timed(images, here):
            seconds_each, done = spent / max(done, 1), done + 1
            yield entry, outcome
        workers = Workers(min(cores(), int((total - done) * seconds_each / WORTH)), form, target, here)
        threads = len(workers.processes) or min(THREADS, cores())
        most = min(MOST_IMAGES["process" if workers.processes else "thread"], max(1, MOST_BYTES // form.bytes))
        chunks = _chunks(images, min(most, 1 + (total - done) // (4 * threads)))
        pool = ThreadPoolExecutor(threads)
        try:
            yield from _in_parallel(chunks, done, pool, threads, workers.decode if workers.processes else here)
        finally:
            workers.stop()  # first: else the threads would wait for them
            pool.shutdown(cancel_futures=True)
    finally:
        os.close(descriptor)


def _timed(images: Iterator[Image], here: Decode) -> Iterator[tuple[Entry, Outcome, float]]:
    """The first images, and the seconds spent so far; without the first image, which also loads decoders."""
    spent = 0.0
    for number, (entry, content) in enumerate(islice(images, TIMED)):
        start = time.thread_time()
        [outcome] = here([content], number)
        spent += time.thread_time() - start if number else 0.0
        yield entry, outcome, spent
        if spent > TIMED_SECONDS:
            return


def _in_parallel(
    chunks: Iterable[list[Image]], first: int, pool: ThreadPoolExecutor, threads: int, decode_chunk: Decode
) -> Iterator[tuple[Entry, Outcome]]:
    waiting: deque[tuple[list[Entry], int, Future[list[Outcome]]]] = deque()
    under_way = 0
    for chunk in chunks:
        contents = [content for _, content in chunk]
        size = sum(map(_bytes_of, contents))
        waiting.append(([entry for entry, _ in chunk], size, pool.submit(decode_chunk, contents, first)))
        first += len(chunk)
        del chunk, contents
        under_way += size
        while len(waiting) > 2 * threads or (waiting and under_way > 2 * threads * MOST_BYTES):
            entries, size, future = waiting.popleft()
            yield from zip(entries, future.result(), strict=True)
            under_way -= size
    for entries, _, future in waiting:
        yield from zip(entries, future.result(), strict=True)


def _chunks(images: Iterable[Image], most: int) -> Iterator[list[Image]]:
    """A few images at a time, bounded in number and in bytes."""
    chunk: list[Image] = []
    size = 0
    for entry, content in images:
        chunk.append((entry, content))
        size += _bytes_of(content)
        if len(chunk) >= most or size >= MOST_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _bytes_of(content: Content) -> int:
    """What an image takes in memory before it is decoded."""
    return len(content) if isinstance(content, bytes) else content.nbytes if isinstance(content, np.ndarray) else 0


# ---------------------------------------------------------------- processes


class Worker:
    """A process that decodes, started but perhaps not ready yet."""

    def __init__(self, form: Form, target: Path):
        self.process = start_module("regard.data.image_decoding", piped=True)
        self.asks, self.answers = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        with suppress(BrokenPipeError):  # it is not ready then, and never will be
            send(self.asks, {"form": form, "target": str(target.absolute())})

    @cached_property
    def ready(self) -> bool:
        return receive(self.answers) is not None

    def decode(self, contents: list[Content], first: int) -> list[Outcome]:
        answer = None
        with suppress(BrokenPipeError):
            send_contents(self.asks, contents, first)
            answer = receive(self.answers)
        if answer is None:
            raise has_ended("decodes images", self.process.wait(), AGAIN)
        if "error" in answer:
            raise OSError(*answer["error"])
        told = [BadImage(outcome) if isinstance(outcome, str) else Read(*outcome) for outcome in answer["outcomes"]]
        both = zip(contents, told, strict=True)
        return [content if isinstance(content, BadImage) else outcome for content, outcome in both]  # of its own class

    def stop(self) -> None:
        end(self.process)


class Workers:
    """Processes that decode, as many as could be started; `here` decodes where one fails to start."""

    def __init__(self, many: int, form: Form, target: Path, here: Decode):
        self.processes: list[Worker] = []
        self.idle: SimpleQueue[Worker] = SimpleQueue()
        self.here = here
        with suppress(OSError):  # too many processes: those that there are will do
            for _ in range(many if many > 1 and sys.executable else 0):
                self.processes.append(Worker(form, target))
                self.idle.put(self.processes[-1])

    def decode(self, contents: list[Content], first: int) -> list[Outcome]:
        worker = self.idle.get()
        try:
            return (worker.decode if worker.ready else self.here)(contents, first)
        finally:
            self.idle.put(worker)

    def stop(self) -> None:
        for worker in self.processes:
            worker.stop()
