"""Do one, two and four processes train to the same bytes, whatever the task?

    python benchmarks/together.py [--tasks NAME …] [--quick]

A small training of every task is done by one process alone, by two, by four, and by one, two, four and one in turn,
each stopped by SIGTERM after some steps and resumed by the next. The final weights, metrics, samples and all other
files must be the same bytes; only seconds may differ. The last line is JSON; the exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from regard import registry
from small_trainings import Training, Workshop, differences, run

SHARED = ("training.micro_batches=4", "system.threads=1")
QUICK = ["translate", "language", "classify-image", "synthetic"]
# In the step that is asked for, the last of the processes gets SIGTERM; the launcher's own process has no rank.
STOPPED = """
import os, signal
from regard.training.loop import Trainer
update = Trainer._update
def stopped(trainer, step, batch):
    if step == {step} and os.environ.get("RANK", "0") == "{rank}":
        os.kill(os.getpid(), signal.SIGTERM)
    return update(trainer, step, batch)
Trainer._update = stopped
"""


def shared(workshop: Workshop, task: str) -> Training:
    """The task's training, in pieces that can be dealt out."""
    training = replace(workshop.trainings[task], name=f"{task}, shared", changes=SHARED)
    workshop.add(training)
    return training


def trained(workshop: Workshop, training: Training, out: Path, processes: int, stop: int = 0) -> list[str]:
    """Train with so many processes, up to a step if one is named; what went wrong."""
    several = ["--processes", str(processes)] if processes > 1 else []
    before = STOPPED.format(step=stop, rank=processes - 1) if stop else ""
    ended = run(*workshop.command(training, out, "--resume", *several), before=before)
    expected = 130 if stop else 0
    return [] if ended.code == expected else [f"{processes} processes ended with {ended.code}: {ended.stderr[-1000:]}"]


def compare(workshop: Workshop, task: str) -> dict[str, list[str]]:
    """Of each way to train the task, what is not as when one process is left alone with it."""
    training = shared(workshop, task)
    found = {}
    for processes in (2, 4):
        with workshop.bench(f"{task} {processes}") as folder:
            found[str(processes)] = trained(workshop, training, folder / "run", processes)
            found[str(processes)] += differences(folder / "run", workshop.whole(training.name))
    with workshop.bench(f"{task} chain") as folder:
        problems = []
        for stop, processes in ((2, 1), (4, 2), (6, 4), (0, 1)):
            problems += trained(workshop, training, folder / "run", processes, stop)
        found["1 → 2 → 4 → 1"] = problems + differences(folder / "run", workshop.whole(training.name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=registry.names("tasks"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="four tasks")
    options = parser.parse_args()
    tasks = QUICK if options.quick else options.tasks
    bad = ways = 0
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.workers) as workers:
        workshop = Workshop(Path(place))
        print("task | 2 processes | 4 processes | 1 → 2 → 4 → 1", flush=True)
        for task, found in zip(tasks, workers.map(lambda task: compare(workshop, task), tasks), strict=True):
            shown = ["differs" if problems else "the same bytes as 1" for problems in found.values()]
            print(" | ".join([task, *shown]), *chain(*found.values()), sep="\n  ", flush=True)
            ways += len(found)
            bad += sum(map(bool, found.values()))
    print(json.dumps({"tasks": len(tasks), "compared": ways, "identical": ways - bad}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
