"""How long does the page wait when a head is switched off, or a token changed?

    python benchmarks/explore.py RUN                            # a run of words, such as that of `regard demo`
    python benchmarks/explore.py RUN --text "A sentence."

Starts `regard explore` and asks its server what the page asks, one question at a time: each time another head off, and
each time another token in the place of one. A changed token is asked for twice: as the view What if does, and as a new
input that is looked at from the beginning. Prints the median and the spread in milliseconds. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from measured import machine

LIMIT = 200  # milliseconds that feel like at once


@contextmanager
def serving(run: str, text: str) -> Iterator[str]:
    """The command, in a process of its own; yields the address of the page."""
    command = [sys.executable, "-m", "regard", "explore", run, *([text] if text else []), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def asked(address: str, content: Any = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(address, body) as response:
        return json.loads(response.read())


def milliseconds(ask: Callable[[int], Any], times: int) -> list[float]:
    """Of each question, after one that does not count."""
    ask(0)
    taken = []
    for number in range(1, times + 1):
        started = time.perf_counter()
        ask(number)
        taken.append(1000 * (time.perf_counter() - started))
    return taken


def measure(address: str, times: int) -> dict[str, list[float]]:
    first = asked(f"{address}api/runs")["first"]

    def ask(what: str, given: dict[str, Any] = first, **options: Any) -> Any:
        return asked(f"{address}api/ask", {"input": given, "what": what, "options": options})

    stacks = ask("overview")["stacks"]
    parts = [part for stack in stacks for layer in stack["layers"] for part in layer["parts"]]
    heads = [f"{part['name']}.{head}" for part in parts for head in range(part["switches"])]
    source, *rest = [stack["tokens"] for stack in stacks]

    def other(number: int) -> list[list[int]]:
        place = number % (len(source) - 1)
        return [[*source[:place], 10 + number, *source[place + 1 :]], *rest]

    return {
        "head off": milliseconds(lambda number: ask("ablate", heads=[heads[number % len(heads)]]), times),
        "token changed": milliseconds(lambda number: ask("change", tokens=other(number)), times),
        "new input": milliseconds(lambda number: ask("overview", first | {"tokens": other(100 + number)}), times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--text", default="", help="the input; if not given, the run's example")
    parser.add_argument("--times", type=int, default=30)
    options = parser.parse_args()
    with serving(options.run, options.text) as address:
        taken = measure(address, options.times)
    print(f"{options.times} times each            median  lowest  highest   ms")
    told = {}
    for name, each in taken.items():
        told[name] = {"median": statistics.median(each), "lowest": min(each), "highest": max(each)}
        print(f"{name:24} {told[name]['median']:7.0f} {told[name]['lowest']:7.0f} {told[name]['highest']:8.0f}")
    at_once = all(each["median"] <= LIMIT for each in told.values())
    print(json.dumps({"milliseconds": told, "at_once": at_once} | machine(torch.device("cpu"))))


if __name__ == "__main__":
    main()
