"""Contenders measured in turn: every round runs each of them once, so that all meet the same machine.

A ratio is of two contenders in the same round; its median and its lowest and highest over the rounds are told.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch


def in_turn(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device,
    unmeasured: int = 1,
    before: Callable[[], None] = lambda: None,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """The seconds of each contender in each round, after runs that do not count, and what it gave in the last one.

    One that fails is left out. `before` is called before each run, and not counted.
    """
    running = dict(contenders)
    for name, run in contenders.items():
        before()
        try:
            for _ in range(unmeasured):
                run()
        except Exception as error:
            left_out(name, error)
            del running[name]
    seconds: dict[str, list[float]] = {name: [] for name in running}
    given: dict[str, Any] = {}
    for _ in range(rounds):
        for name, run in running.items():
            before()
            taken, given[name] = timed(run, device)
            seconds[name].append(taken)
    return seconds, given


def timed(run: Callable[[], object], device: torch.device) -> tuple[float, object]:
    """How long it takes, and what it gives."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    given = run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, given


def left_out(name: str, error: BaseException) -> None:
    print(f"{name} is left out: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", flush=True)


def best(seconds: Mapping[str, Sequence[float]], names: Sequence[str]) -> str | None:
    """Which of these is the quickest, by its median; None if none of them could run."""
    return min((name for name in names if name in seconds), key=lambda n: statistics.median(seconds[n]), default=None)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times quicker we are: the median over the rounds, and the lowest and the highest."""
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    found = {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    return {name: round(value, 3) for name, value in found.items()}


def show(*cells: object) -> None:
    """A row of a table, at once: a script that is cut off has told what it found."""
    print(*cells, sep=" | ", flush=True)


def shown(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


@contextlib.contextmanager
def exact_float32() -> Iterator[None]:
    """Products in float32 as such, for comparing outputs: Regard lets a GPU round their factors."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def device_named(name: str) -> torch.device:
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def machine(device: torch.device) -> dict[str, Any]:
    """Where this was measured, for the line of JSON."""
    versions = {"torch": torch.__version__}
    for library in ("transformers", "ctranslate2"):
        try:
            versions[library] = __import__(library).__version__
        except ImportError:
            versions[library] = "none"
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": where, "threads": torch.get_num_threads(), **versions}
