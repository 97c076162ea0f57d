"""Work in a second thread, while the first goes on: a picture, which takes a second that nobody has to wait for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Self


class Beside:
    """One piece of work at a time. What goes wrong in it is raised when it is waited for."""

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """After the piece before."""
        self.wait()
        thread = Thread(target=self._run, args=(work,))
        try:
            thread.start()
        except RuntimeError:  # there is no memory for one more
            self._run(work)
        else:
            self.thread = thread

    def wait(self) -> None:
        if self.thread is not None:
            self.thread.join()
        error, self.thread, self.error = self.error, None, None
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """All work has ended here, whatever happens; but the first error counts."""
        try:
            self.wait()
        except BaseException:
            if error is None:
                raise

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = error
