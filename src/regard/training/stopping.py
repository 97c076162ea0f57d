"""Ctrl-C, SIGTERM and a closed terminal, which ask a training to save and to stop after the step it is in."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from regard import console
from regard.training.processes import Processes


class Stoppable(Protocol):
    stop_asked: bool
    processes: Processes


@contextmanager
def stop_on_signal(trainer: Stoppable) -> Iterator[None]:
    """For as long as this lasts, the first signal asks, and a second Ctrl-C ends at once."""

    def ask(number: int, frame: Any) -> None:
        if trainer.stop_asked and number == signal.SIGINT and trainer.processes.count == 1:
            raise KeyboardInterrupt  # among several, the launcher passes on what the terminal has already sent
        if not trainer.stop_asked:
            console.say("Stopping after this step …")
        trainer.stop_asked = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as with nohup
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
