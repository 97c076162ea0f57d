"""What a person sees: everything but results goes to standard error, and is plain when not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Show = Callable[[int, str | Callable[[], str]], None]  # (done, text); a function is asked only where it is shown

_quiet = False
_silent = False
_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@cache
def _stderr() -> Console:
    from rich.console import Console  # here: it takes longer than all else that `regard --help` loads

    return Console(stderr=True, highlight=False, soft_wrap=True)


def be_quiet(quiet: bool) -> None:
    """Say nothing but warnings and errors."""
    global _quiet
    _quiet = quiet


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing within, not even warnings: of work that is a small part of another."""
    global _quiet, _silent
    before = _quiet, _silent
    _quiet = _silent = True
    try:
        yield
    finally:
        _quiet, _silent = before


def say(text: str) -> None:
    if not _quiet:
        _stderr().print(text, markup=False)


def warn(text: str) -> None:
    if (collected := _collected.get()) is not None:
        collected.append(text)
    if not _silent:
        _stderr().print(f"Warning: {text}", style="yellow", markup=False)


@contextmanager
def collecting() -> Iterator[list[str]]:
    """What this thread is warned of within, in a list as well: for a page that nobody reads the terminal beside."""
    warnings: list[str] = []
    token = _collected.set(warnings)
    try:
        yield warnings
    finally:
        _collected.reset(token)


@contextmanager
def progress(total: int, what: str, done: int = 0, time_left: bool = True) -> Iterator[Show]:
    """A bar, on a terminal only. Yields a function to call with (done, text).

    It shows the time left, going by the speed so far, unless the text says it better (`time_left=False`).
    """
    if _quiet or not sys.stderr.isatty():
        yield lambda done, text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[text]}"),
        *([TimeRemainingColumn()] if time_left else []),
    )
    with Progress(*columns, console=_stderr(), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done, text="")
        last = 0.0

        def update(done: int, text: str | Callable[[], str]) -> None:
            nonlocal last
            if time.monotonic() - last > 0.1 or done >= total:
                last = time.monotonic()
                bar.update(task, completed=done, text=text if isinstance(text, str) else text())

        yield update
