"""Does a training lose anything when the disk is full or broken?

    python benchmarks/faults.py [--every 1] [--trainings NAME …] [--quick]

Each training is first left alone, and the system calls that change its run folder are counted: writes, flushes,
renames, files that are opened, folders that are made, and so on. Then it is started once for each of them, and that one
fails (no space, I/O error, no permission), is cut short, or is the last: the process is killed. After each:

- the exit code and the message are clear: no traceback;
- the newest checkpoint that was whole is still there, or a newer one;
- no file under its final name is half-written;
- the same command with --resume, or the training itself if it went on, ends with the same bytes as the one left alone.

The same is then tried in file systems that are really too small (tmpfs, where mounting is allowed): the training fails,
gets more room, and is resumed. The last line is JSON; the exit code is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from injection import Call, Fault, read_trace, why_not
from regard.tables import text_table
from small_trainings import Ended, Training, Workshop, differences, half_written, run, whole_checkpoints

# The last two checkpoints, a moving average, the best by accuracy, files taken over from another run, no model at all.
TRAININGS = ["translate, the best", "language, in pieces", "classify-image", "classify-text from masked", "embeddings"]
# What may happen to each kind of call; neighbouring calls get different ones.
POSSIBLE = {
    "write": [Fault("fail", error="ENOSPC"), Fault("full"), Fault("short"), Fault("kill half-way"), Fault("fail")],
    "flush": [Fault("fail", error="EIO"), Fault("kill"), Fault("fail", error="ENOSPC")],
    "rename": [Fault("fail", error="EACCES"), Fault("kill"), Fault("fail", error="ENOSPC"), Fault("full")],
    "mkdir": [Fault("fail", error="ENOSPC"), Fault("kill"), Fault("fail", error="EACCES"), Fault("full")],
    "open": [Fault("fail", error="ENOSPC"), Fault("kill"), Fault("fail", error="EACCES"), Fault("full")],
    "remove": [Fault("fail", error="EIO"), Fault("kill"), Fault("fail", error="EACCES")],
    "symlink": [Fault("fail", error="ENOSPC"), Fault("kill"), Fault("fail", error="EIO"), Fault("full")],
}
CHECKPOINT = re.compile(r"/checkpoints/step-(\d+)$")


@dataclass(frozen=True)
class Outcome:
    training: str
    fault: str
    call: str  # which one it hit
    after: str  # "went on", "stopped" or "killed"
    problems: list[str]


def saved_before(calls: Iterable[Call]) -> int:
    """The newest checkpoint that was in its place when the fault came."""
    newest = 0
    for call in calls:
        if call.hit:
            break
        if call.kind == "rename" and call.result == 0 and (match := CHECKPOINT.search(call.path)):
            newest = max(newest, int(match[1]))
    return newest


def judge(workshop: Workshop, training: Training, folder: Path, first: Ended, before: int) -> tuple[str, list[str]]:
    """How a disturbed training ended, and what is wrong with it, also after it was resumed."""
    out, whole = folder / "run", workshop.whole(training.name)
    problems = [] if first.is_clear else [f"not a clear end ({first.code}): {first.stderr[-2000:]}"]
    steps = whole_checkpoints(out)
    if max(steps, default=0) < before:
        problems.append(f"the checkpoint of step {before} is lost; whole are {steps}")
    problems += [f"{name} is half-written" for name in half_written(out, whole)]
    if first.code:
        again = run(*workshop.command(training, out, "--resume"))
        if again.code:
            return "stopped", [*problems, f"resumed: {again.stderr[-2000:]}"]
    said = "could not be removed" in first.stderr and first.code == 0  # they are, as soon as the run is resumed
    problems += [f"differs: {what}" for what in differences(out, whole) if not (said and what.endswith("left over"))]
    return "went on" if first.code == 0 else "killed" if first.code < 0 else "stopped", problems


def disturb(workshop: Workshop, training: Training, fault: Fault) -> Outcome:
    """One training with one fault."""
    name = f"{training.name} {fault.number}"
    with workshop.bench(name) as folder:
        trace = workshop.folder / f"{name}.trace"
        first = run(*workshop.command(training, folder / "run"), before=fault.before(folder, trace))
        calls = read_trace(trace)
        hit = next((call for call in calls if call.hit), None)
        after, problems = judge(workshop, training, folder, first, saved_before(calls))
    where = f"{hit.kind} {hit.path.removeprefix(str(folder))}" if hit else "none"
    trace.unlink()
    return Outcome(training.name, str(fault), where, after, problems if hit else [*problems, "no call was hit"])


def calls_of(workshop: Workshop, training: Training) -> list[Call]:
    """All calls of an undisturbed training that change its folder. Every file in it must be accounted for."""
    with workshop.bench(f"{training.name} counted") as folder:
        trace = workshop.folder / "counted.trace"
        ended = run(*workshop.command(training, folder / "run"), before=Fault().before(folder, trace))
        if ended.code:
            sys.exit(ended.stderr)
        calls = read_trace(trace)
        seen = {Path(call.path).name for call in calls}  # folders are renamed as a whole, with the files in them
        missed = [path for path in folder.rglob("*") if path.is_file() and path.name not in seen]
        if missed:
            sys.exit(f"These files were written unseen: {missed}")
    return calls


def planned(calls: list[Call], every: int, offset: int) -> Iterator[Fault]:
    """A fault for each call, or for some of them."""
    for number, call in enumerate(calls, start=1):
        if (number + offset) % every == 0:
            possible = POSSIBLE[call.kind]
            chosen = possible[(number // every + offset) % len(possible)]
            yield Fault(chosen.action, number, error=chosen.error)


# ---------------------------------------------------------------- a small file system


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """A file system of so many KiB."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", place], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


def fill(workshop: Workshop, training: Training, size: int) -> Outcome:
    """A training on a disk of so many KiB, and resumed when there is more room."""
    disk = workshop.folder / "disk"
    with small_disk(disk, size):
        first = run(*workshop.command(training, disk / "run"))
        before = max(whole_checkpoints(disk / "run"), default=0)
        subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
        after, problems = judge(workshop, training, disk, first, before)
    return Outcome(training.name, "a small disk", f"{size} KiB", after, problems)


def disk_outcomes(workshop: Workshop, training: Training, count: int) -> list[Outcome]:
    """Disks of so many sizes, the largest just too small."""
    size = sum(path.stat().st_size for path in workshop.whole(training.name).rglob("*") if path.is_file()) // 1024
    return [fill(workshop, training, size * part // count + 16) for part in range(1, count + 1)]


def why_no_disk(folder: Path) -> str:
    if not shutil.which("mount"):
        return "there is no mount command"
    try:
        with small_disk(folder / "try", 64):
            return ""
    except subprocess.CalledProcessError as error:
        return f"mounting is not allowed here: {error.stderr.decode().strip()}"


# ---------------------------------------------------------------- all of it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only every nth call of each training")
    parser.add_argument("--trainings", nargs="+", default=TRAININGS, help="names from small_trainings.py")
    parser.add_argument("--disks", type=int, default=8, help="sizes of small disks")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one training, every 20th call, two disks")
    options = parser.parse_args()
    if options.quick:
        options.trainings, options.every, options.disks = options.trainings[:1], 20, 2
    if reason := why_not():
        print(f"Skipped: {reason}.")
        print(json.dumps({"skipped": reason}))
        return
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.workers) as workers:
        workshop = Workshop(Path(place))
        print("training | calls | faults | went on | stopped | killed | problems", flush=True)

        def show(name: str, calls: int, found: list[Outcome]) -> None:
            after = Counter(outcome.after for outcome in found)
            counts = [calls, len(found), after["went on"], after["stopped"], after["killed"]]
            bad = [outcome for outcome in found if outcome.problems]
            print(" | ".join([name, *map(str, counts), str(len(bad))]), flush=True)
            for outcome in bad:
                print(f"  {outcome.fault} at {outcome.call}: {'; '.join(outcome.problems)}", flush=True)
            outcomes.extend(found)

        for number, name in enumerate(options.trainings):
            training = workshop.trainings[name]
            calls = calls_of(workshop, training)
            workshop.whole(name)
            faults = planned(calls, options.every, number)
            show(name, len(calls), list(workers.map(lambda fault: disturb(workshop, training, fault), faults)))  # noqa: B023
        if reason := why_no_disk(workshop.folder):
            print(f"No small disks: {reason}.")
        else:
            for name in options.trainings[:2]:
                show(f"{name}, small disks", 0, disk_outcomes(workshop, workshop.trainings[name], options.disks))
    by_fault = Counter(outcome.fault for outcome in outcomes)
    print("\n" + text_table(["fault", "times"], [[fault, str(count)] for fault, count in sorted(by_fault.items())]))
    bad = sum(bool(outcome.problems) for outcome in outcomes)
    print(json.dumps({"faults": len(outcomes), "problems": bad, **Counter(outcome.after for outcome in outcomes)}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
