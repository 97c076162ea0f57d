"""Processes that work on the parts of a file, started and watched by the command.

A worker is the same command once more: it reads its options as the first one did, loads what it needs, and then is told
by standard input, in lines of JSON, which part comes next. It answers in the same way. When its input ends, it ends;
in the middle of a part this means that the command was killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

from regard import console
from regard.cli.bulk import WORKER
from regard.cli.lines import LineWork
from regard.cli.parts import Gone, JobFolder, Part, lines_of
from regard.data.processes import environment_beside
from regard.errors import RegardError, UsageError

ONE_THREAD = {"RAYON_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # of tokenizers and of torch
Answer = dict[str, Any]


# ---------------------------------------------------------------- the command


class Worker:
    def __init__(self, number: int, answers: SimpleQueue[tuple[Worker, Answer | None]]):
        self.number, self.answers = number, answers
        self.part: Part | None = None  # what it is at
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_beside() | ONE_THREAD | {WORKER: str(number)},
            start_new_session=True,  # Ctrl-C is for the command, which ends its workers
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in cast(BinaryIO, self.process.stdout):
            try:
                self.answers.put((self, json.loads(line)))
            except ValueError:  # printed by a plug-in, say
                sys.stderr.write(line.decode(errors="replace"))
        self.answers.put((self, None))

    def give(self, part: Part, wait: bool) -> None:
        self.part = part
        self._tell(json.dumps(asdict(part) | {"wait": wait}).encode() + b"\n")

    def end(self) -> None:
        """It has nothing more to do."""
        with suppress(OSError):
            cast(BinaryIO, self.process.stdin).close()

    def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # it has just ended, and will be heard of
            cast(BinaryIO, self.process.stdin).write(line)
            cast(BinaryIO, self.process.stdin).flush()


class Workers:
    """As many as asked for, or as there are parts. The parts that they have made are in `made`."""

    def __init__(self, processes: int, parts: Sequence[Part], show: Callable[[int], None]):
        """`show` is told of lines as they are done."""
        self.waiting, self.later = deque(parts), deque[Part]()  # later: what other commands are at
        self.show = show
        self.made = 0
        self.gone = False
        self.failures: list[tuple[int, RegardError]] = []  # with the number of the part
        self.count = min(processes, len(parts))

    def work(self) -> None:
        """Until all parts are made. If a worker fails, the others finish what they are at, and it is an error."""
        answers: SimpleQueue[tuple[Worker, Answer | None]] = SimpleQueue()
        workers: list[Worker] = []
        try:
            try:
                for number in range(self.count):
                    workers.append(Worker(number, answers))
                    self._give(workers[-1])
            except OSError as error:
                raise RegardError(
                    f"Process {len(workers) + 1} of {self.count} cannot be started.", f"{error}", "Use fewer processes."
                ) from None
            running = self.count
            while running:
                worker, answer = answers.get()
                if answer is None:
                    running -= 1
                    self._ended(worker)
                else:
                    self._heard(worker, answer)
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
        if self.gone:
            raise Gone
        if self.failures:
            raise min(self.failures, key=lambda failure: failure[0])[1]

    def _give(self, worker: Worker) -> None:
        worker.part = None
        if self.failures or self.gone or not (self.waiting or self.later):
            worker.end()
        elif self.waiting:
            worker.give(self.waiting.popleft(), wait=False)
        else:
            worker.give(self.later.popleft(), wait=True)

    def _heard(self, worker: Worker, answer: Answer) -> None:
        if "lines" in answer:
            self.show(answer["lines"])
            return
        assert worker.part is not None
        if "error" in answer:
            kind = UsageError if answer["code"] == UsageError.exit_code else RegardError
            self.failures.append((worker.part.number, kind(*answer["error"])))
        elif answer["done"] == "busy":
            self.later.append(worker.part)
        elif answer["done"] == "gone":
            self.gone = True
        else:
            self.made += answer["done"] == "made"
        self._give(worker)

    def _ended(self, worker: Worker) -> None:
        status = worker.process.wait()
        if worker.part is None and status == 0:
            return
        by = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with exit code {status}"
        why = "Perhaps memory has run out. " if status == -signal.SIGKILL else ""
        error = RegardError(
            f"Worker {worker.number + 1} of {self.count} (process {worker.process.pid}) {by}.",
            f"{why}The others have finished the parts that they were at.",
            "Give the same command again: it continues with the parts that are missing.",
        )
        self.failures.append((worker.part.number if worker.part else sys.maxsize, error))


# ---------------------------------------------------------------- a worker


class _Asks:
    """What the command says, read in a thread: its end is noticed also in the middle of a part."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[bytes | None] = SimpleQueue()
        self.busy = True
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with open(0, "rb", closefd=False) as stdin:
            for line in stdin:
                self.queue.put(line)
        if self.busy:
            os._exit(1)  # the command is no more
        self.queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (line := self.queue.get()) is not None:
            self.busy = True
            yield line


def serve(make: Callable[[], LineWork], file: Path, folder: JobFolder) -> None:
    """Be a worker: load what is needed, then make the parts that are asked for."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is no answer
    asks = _Asks()

    def answer(content: Answer) -> None:
        asks.busy = "lines" in content
        print(json.dumps(content), file=answers, flush=True)

    console.be_quiet(True)
    try:
        work = make()
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # whatever the run's settings say: more would change last bits
        for line in asks:
            asked = json.loads(line)
            wait = asked.pop("wait")
            answer({"done": _make(work, Part(**asked), file, folder, wait, lambda lines: answer({"lines": lines}))})
    except RegardError as error:
        answer({"error": [error.what, error.why, error.fix], "code": error.exit_code})


def _make(work: LineWork, part: Part, file: Path, folder: JobFolder, wait: bool, show: Callable[[int], None]) -> str:
    """What has become of a part."""
    try:
        with folder.claimed(part, wait) as ours:
            if not ours:
                return "busy"
            if folder.whole([part]):  # by now
                show(part.lines)
                return "whole"
            note: dict[str, Any] = {}
            folder.put(part, _texts(work, part, file, folder, note, show), note)
            return "made"
    except Gone:
        return "gone"


def _texts(
    work: LineWork, part: Part, file: Path, folder: JobFolder, note: dict[str, Any], show: Callable[[int], None]
) -> Iterator[bytes]:
    for lines, text in work.outputs(lines_of(file, part, folder), part.first):
        yield text.encode()
        show(lines)
    if work.long:
        note["long"] = work.long.take()
