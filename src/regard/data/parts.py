"""Text tokenised in parts, by several processes, so that what a killed command has done is not done again.

Where a part ends follows from the text alone, so the result is the same for any number of processes. A text of a single
part is tokenised here and now. Of a larger one, this process only reads; others tokenise a part each, and write it to a
file of its own (see `regard.data.cache.Kept`). When the same command is given again, it reads the text again, which is
cheap, and takes the parts that are whole.

Why processes, since the `tokenizers` library has threads: for a pair of sentences, reading takes 2.5 µs and tokenising
27 µs, but 5 µs of those, which make Python objects of text and ids, only one thread can do at a time. By that, threads
cannot exceed four times the speed of one core, and processes ten times. On two cores, where this was measured, it makes
little difference.

In memory are at any time one part for each process, and two more.
"""

from __future__ import annotations

import errno
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import BinaryIO, cast

from regard.data.cache import Keep, Kept
from regard.data.processes import cores, end, has_ended, receive, send, start_module
from regard.data.tokenising import Column, Encoder, digest, packed, read_part, unpacked, write_part

PART_BYTES = 2**23  # of text; a part takes a core some seconds
PART_SAMPLES = 100_000
AHEAD = 2  # parts read before a process is free for them

Texts = tuple[bytes, ...]  # of a sample, one for each column
Part = list[Column]
AGAIN = "Free some memory or lower data.workers, and give the same command again: it continues from there."


def encoded_parts(
    encoder: Encoder, samples: Iterable[Texts], keep: Keep | None = None, workers: int = 0
) -> Iterator[tuple[int, list[bytes]]]:
    """What the encoder makes of each part in turn, with the number of its samples.

    Several parts are kept where `keep` says. `workers`: processes that tokenise; 0: one for each core, 1: this one.
    """
    parts = divided(samples)
    first = list(itertools.islice(parts, 2))
    small = len(first) < 2 or keep is None
    parts = itertools.chain(first, parts)
    del first  # the chain forgets them when they are done
    if small or keep is None:
        for part in parts:
            yield len(part[0]), encoder.encode(part)
    else:
        yield from _in_parallel(encoder, parts, keep(), workers or cores())


def divided(samples: Iterable[Texts]) -> Iterator[Part]:
    """Some samples at a time, by columns."""
    part: list[Texts] = []
    size = 0
    for sample in samples:
        part.append(sample)
        size += sum(map(len, sample))
        if size >= PART_BYTES or len(part) >= PART_SAMPLES:
            yield [*map(list, zip(*part, strict=True))]
            part, size = [], 0
    if part:
        yield [*map(list, zip(*part, strict=True))]


def _in_parallel(
    encoder: Encoder, parts: Iterable[Part], kept: Kept, workers: int
) -> Iterator[tuple[int, list[bytes]]]:
    making, pool = Workers(encoder, kept, workers), ThreadPoolExecutor(workers)
    waiting: deque[tuple[int, Future[list[bytes]]]] = deque()
    try:
        for number, part in enumerate(parts):
            waiting.append((len(part[0]), pool.submit(making.encode, number, packed(part))))
            del part
            if len(waiting) >= workers + AHEAD:
                count, future = waiting.popleft()
                yield count, future.result()
        while waiting:
            count, future = waiting.popleft()
            yield count, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        making.stop()  # else the threads would wait for them
        pool.shutdown()


class Workers:
    """Processes that tokenise, started when they are needed; what one cannot be started for is done here."""

    def __init__(self, encoder: Encoder, kept: Kept, most: int):
        self.encoder, self.kept, self.most = encoder, kept, most
        self.processes: list[Worker] = []
        self.idle: SimpleQueue[Worker] = SimpleQueue()
        self.starting, self.stopped = Lock(), False

    def encode(self, number: int, blobs: list[bytes]) -> list[bytes]:
        """This part, as it is kept; tokenised now if it is not."""
        path, of = self.kept.folder / f"part-{number}", digest(blobs)
        if (encoded := read_part(path, of)) is not None:
            return encoded
        worker = self._free() if self.most > 1 else None
        if worker is not None and worker.ready:
            worker.encode(path, of, blobs)
            self.idle.put(worker)
        else:
            write_part(path, of, self.encoder.encode(unpacked(blobs)))
        if (encoded := read_part(path, of)) is None:
            raise OSError(errno.EIO, "it cannot be read as it was written", str(path))
        return encoded

    def _free(self) -> Worker | None:
        """There are as many threads as processes, so whoever finds none may start one."""
        with suppress(Empty):
            return self.idle.get_nowait()
        with self.starting, suppress(OSError):  # too many processes: those that there are will do
            if self.stopped:
                raise CancelledError
            if sys.executable:
                self.processes.append(Worker(self.encoder, self.kept.lock))
                return self.processes[-1]
        return None

    def stop(self) -> None:
        with self.starting:
            self.stopped = True
        for worker in self.processes:
            worker.stop()


class Worker:
    """A process that tokenises. It has the lock of what is kept, until it has ended as well."""

    def __init__(self, encoder: Encoder, lock: int):
        self.process = start_module("regard.data.tokenising", piped=True, inherited=[lock])
        self.asks, self.answers = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        with suppress(BrokenPipeError):  # it is not ready then, and never will be
            send(self.asks, encoder.to_json())

    @cached_property
    def ready(self) -> bool:
        return receive(self.answers) is not None

    def encode(self, path: Path, of: str, blobs: Sequence[bytes]) -> None:
        answer = None
        with suppress(BrokenPipeError):
            send(self.asks, {"path": str(path.absolute()), "of": of, "sizes": [*map(len, blobs)]}, blobs)
            answer = receive(self.answers)
        if answer is None:
            raise has_ended("tokenises", self.process.wait(), AGAIN)
        if "error" in answer:
            raise OSError(*answer["error"])

    def stop(self) -> None:
        end(self.process)
