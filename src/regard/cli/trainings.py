"""Trainings as processes of their own: some at a time, watched, logged, and stopped together.

Each process has the memory of its own training only, so the peak that it notes is a variant's own. Stopping asks
each to save a checkpoint; a second signal kills what is still there.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard import console

PAUSE = 0.1  # seconds between two looks at the processes


@dataclass(frozen=True)
class Training:
    """One call of `regard train`, or of another command, and where its messages go."""

    label: str  # stands before its messages; without one, they speak for themselves
    command: list[str]
    log: Path


class Signals:
    """How often Ctrl-C, SIGTERM or the end of the terminal asked to stop."""

    def __init__(self, told: str = "Stopping: the trainings save a checkpoint …") -> None:
        self.asked, self.told = 0, told

    def _note(self, number: int, frame: object) -> None:
        self.asked += 1
        if self.asked == 1:
            console.say(self.told)

    @contextmanager
    def caught(self) -> Iterator[Signals]:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # ignored under nohup: let it be
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Process:
    """A training under way."""

    def __init__(self, training: Training, lock: int):
        self.training = training
        training.log.parent.mkdir(parents=True, exist_ok=True)
        with training.log.open("ab") as log:
            log.write(f"$ {shlex.join(training.command)}\n".encode())
            log.flush()
            self.read_to = log.tell()
            # A session of its own: Ctrl-C in the terminal reaches it once, through us.
            self.process = subprocess.Popen(
                training.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                pass_fds=[lock],
            )
        self.lines: list[str] = []
        self.told_to_stop = False

    def new_lines(self) -> list[str]:
        """The whole lines that came since the last look."""
        with self.training.log.open("rb") as log:
            log.seek(self.read_to)
            content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        self.read_to += len(whole)
        lines = [line for line in whole.decode(errors="replace").splitlines() if line.strip()]
        self.lines += lines
        return lines

    def error(self) -> str:
        """Why it failed, in one line: what it says went wrong, or else the last that it said."""
        self.new_lines()
        named = [line.removeprefix("Error: ") for line in self.lines if line.startswith("Error: ")]
        code = self.process.returncode
        ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return named[-1] if named else (self.lines[-1].strip() if self.lines and code > 0 else ended)


def run_all(trainings: Sequence[Training], parallel: int, signals: Signals, lock: int, done: int = 0) -> dict[str, str]:
    """Run them all, `parallel` at a time; what stopped those that failed, by label.

    `done` were finished before, and are only counted. When asked to stop, starts no more and returns early.
    """
    waiting, under_way, failed = list(trainings), list[_Process](), dict[str, str]()
    total = done + len(waiting)
    try:
        while under_way or (waiting and not signals.asked):
            while waiting and len(under_way) < parallel and not signals.asked:
                training = waiting.pop(0)
                done += 1
                if training.label:
                    console.say(f"[{done}/{total}] {training.label}")
                under_way.append(_Process(training, lock))
            time.sleep(PAUSE)
            _pass_on(under_way, signals)
            for each in list(under_way):
                ended = each.process.poll() is not None
                for line in each.new_lines():
                    console.say(f"  {each.training.label}: {line}" if each.training.label else line)
                if ended:
                    under_way.remove(each)
                    if each.process.returncode and not signals.asked:
                        failed[each.training.label] = each.error()
    finally:
        for each in under_way:  # only after a mistake of our own
            each.process.kill()
            each.process.wait()
    return failed


def watch(training: Training, enough: Callable[[], bool], signals: Signals, lock: int) -> tuple[list[str], str]:
    """Run one until `enough`, then stop it: its messages, and the error if it failed before."""
    one = _Process(training, lock)
    try:
        while one.process.poll() is None and not enough():
            time.sleep(PAUSE)
            if signals.asked:
                break
    finally:
        ended = one.process.poll() is not None
        if not ended:
            one.process.terminate()
        one.process.wait()
    one.new_lines()
    return one.lines, one.error() if ended and one.process.returncode else ""


def _pass_on(under_way: Sequence[_Process], signals: Signals) -> None:
    """A first signal asks to save and stop, a second ends at once."""
    for each in under_way:
        if signals.asked > 1:
            each.process.kill()
        elif signals.asked and not each.told_to_stop:
            each.process.terminate()
            each.told_to_stop = True
