"""Does a training that is killed again and again end with the same model?

    python benchmarks/kills.py [--kills 100] [--seed 1] [--quick]

Small trainings of every task and mixer, and of every way of training, are left alone once. Then each is started again
and gets `kill -9`; the same command is given with --resume, and is killed again, until its share of the kills is used
up. In the end the weights, metrics, samples and all other files must be the same bytes; only seconds may differ.

Two in five kills come inside a save, at a chosen system call that writes, flushes, renames or removes a part of a
checkpoint or of the final model, or half-way through one (injection.py). The others come at random moments, from the
first file that is read to the last that is written. The last line is JSON; the exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from injection import Fault, read_trace, why_not
from small_trainings import Training, Workshop, differences, ended, run, started

SAVES_IN_FIVE = 2
CALLS = 60  # of the 140 that save the checkpoints of one training: enough that older ones are removed, too
TRIES = 20  # runs in which a training's kills may be placed; a run that ends before its kills is not counted


@dataclass
class Killed:
    """What came of the kills of one training."""

    training: str
    at: list[str] = field(default_factory=list)  # where in a save, or after how many seconds
    inside_saves: int = 0
    problems: list[str] = field(default_factory=list)


def inside_a_save(command: list[str], folder: Path, chance: random.Random, usual: float) -> str:
    """Start it, and end it at a call of one of its saves. Returns which; "" if it made fewer calls."""
    trace = folder.with_suffix(".trace")
    action = chance.choice(["kill", "kill", "kill half-way"])
    part, calls = chance.choice([("/checkpoints/", CALLS)] * 7 + [("/.model.safetensors", 3)])
    kinds = ("write",) if action == "kill half-way" else Fault().kinds
    number = chance.randint(1, max(1, calls // 4) if action == "kill half-way" else calls)
    process = run(*command, before=Fault(action, number, kinds, part=part).before(folder, trace))
    if process.code != -signal.SIGKILL:
        return ""
    hit = read_trace(trace)[-1]
    return f"{hit.kind} {hit.path.removeprefix(str(folder.resolve()))}"


def at_any_moment(command: list[str], folder: Path, chance: random.Random, usual: float) -> str:
    """Start it, and kill it after a while. Returns after how long; "" if it ended before."""
    seconds = chance.uniform(0, 0.8 * usual)
    with started(*command) as process:
        since = time.perf_counter()
        while process.poll() is None and time.perf_counter() - since < seconds:
            time.sleep(0.001)
        process.kill()
        code = ended(process).code
    return f"{seconds:.2f} s" if code == -signal.SIGKILL else ""


Kill = Callable[[list[str], Path, random.Random, float], str]


def kill(workshop: Workshop, training: Training, kills: list[Kill], seed: int) -> Killed:
    """Kill the training in these ways, in this order, in as few runs as it takes; each must end as if left alone."""
    chance = random.Random(f"{seed} {training.name}")
    since = time.perf_counter()
    whole = workshop.whole(training.name)
    usual = time.perf_counter() - since
    killed = Killed(training.name)
    waiting = list(kills)
    for attempt in range(TRIES):
        if not waiting:
            break
        with workshop.bench(f"{training.name} {attempt}") as folder:
            command = workshop.command(training, folder / "run", "--resume")
            while waiting and (where := waiting[0](command, folder, chance, usual)):
                killed.at.append(where)
                killed.inside_saves += waiting.pop(0) is inside_a_save
            last = run(*command)
            killed.problems += [last.stderr[-2000:]] if last.code else differences(folder / "run", whole)
    if waiting:
        killed.problems.append(f"{len(waiting)} kills came too late")
    return killed


def shared_out(trainings: list[Training], count: int, saves: int, chance: random.Random) -> list[list[Kill]]:
    """So many kills for each training, in turn, of which so many in all are inside saves."""
    kinds: list[Kill] = [inside_a_save] * saves + [at_any_moment] * (count - saves)
    chance.shuffle(kinds)
    return [kinds[start :: len(trainings)] for start in range(len(trainings))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="ten kills of the first trainings")
    options = parser.parse_args()
    count = 10 if options.quick else options.kills
    saves = count * SAVES_IN_FIVE // 5
    if reason := why_not():
        print(f"No kills inside saves: {reason}.")
        saves = 0
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.workers) as workers:
        workshop = Workshop(Path(place))
        trainings = list(workshop.trainings.values())[:count]
        shares = shared_out(trainings, count, saves, random.Random(options.seed))
        print("training | kills | inside saves | identical | at", flush=True)
        outcomes = []
        jobs = workers.map(lambda job: kill(workshop, *job, options.seed), zip(trainings, shares, strict=True))
        for outcome in jobs:
            outcomes.append(outcome)
            identical = "no" if outcome.problems else "yes"
            row = [outcome.training, len(outcome.at), outcome.inside_saves, identical, ", ".join(outcome.at)]
            print(" | ".join(map(str, row)), *outcome.problems, sep="\n  ", flush=True)
    result = {
        "kills": sum(len(outcome.at) for outcome in outcomes),
        "inside_saves": sum(outcome.inside_saves for outcome in outcomes),
        "trainings": len(outcomes),
        "identical": sum(not outcome.problems for outcome in outcomes),
    }
    print(json.dumps(result))
    good = result["identical"] == len(outcomes) and (result["kills"], result["inside_saves"]) >= (count, saves)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
