"""Is anything lost, or left behind, when processes that train together are killed, stopped or hang?

    python benchmarks/together_kills.py [--kills 40] [--seed 1] [--quick]

Small trainings of two processes are started as a user does it, `regard train … --processes 2`, and disturbed: SIGKILL
to the first process, to the second, to the launcher, to both; SIGTERM or SIGINT to the launcher; SIGTERM to all three
at once, as Slurm sends it; SIGSTOP to a process, with a short `system.patience`. The same command is then given with
--resume, and disturbed again. Moments are not of the clock: Python itself reports files that are opened, renamed or
removed and modules that are imported, and the signal comes at one of these, chosen by chance: while a process starts,
while data is prepared, in a save, in a validation, at the end. After each:

- no process of the training is left (every process in /proc has the training's mark in its environment, or not);
- the exit code and the last words are clear: no traceback, no stack of C++, one error and one "Stopped." at most;
- in the end, the run has the same bytes as one that a single process was left alone with.

The last line is JSON, with the longest time from a signal to the end of the last process; the exit code is 1 if
anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from small_trainings import Training, Workshop, differences
from together import SHARED

TASKS = ["translate", "synthetic", "classify-image", "language"]
MARK = "REGARD_KILLS"  # the variable that all processes of a training have
LIMIT = 120  # seconds until a training counts as hanging
SOON = 30  # seconds within which all must be gone; a hung one is given its patience and half a minute
PATIENCE = 3  # of the trainings in which a process hangs
KILLS_IN_A_ROW = 4
# Python runs this when it starts. It notes what happens, or sends the signal when the n-th thing of a kind happens.
WATCH = """
import json, os, signal, sys
def watch(plan):
    role, left, counts = os.environ.get("RANK", "launcher"), plan["number"], plan["phases"]
    trace = os.open(plan["trace"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if plan["trace"] else 0
    def seen(event, arguments):
        nonlocal left
        if event not in ("open", "import", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        what = str(arguments[0])
        phase = next((name for name, parts in counts.items() if any(part in what for part in parts)), "elsewhere")
        phase = "start" if event == "import" or "site-packages" in what or what.endswith((".py", ".pyc")) else phase
        if trace:
            os.write(trace, f"{role}\\t{phase}\\n".encode())
        elif left and role == plan["role"] and phase == plan["phase"]:
            left -= 1
            if not left:
                send(plan, f"{event} {what}")
    def send(plan, where):
        launcher = os.environ.get("REGARD_LAUNCHER") or str(os.getpid())
        ranks = {}
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    variables = dict(part.partition(b"=")[::2] for part in file.read().split(b"\\0"))
            except OSError:
                continue
            if variables.get(b"REGARD_KILLS", b"").decode() == os.environ["REGARD_KILLS"] and b"RANK" in variables:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if b"train" in file.read().split(b"\\0"):
                        ranks[variables[b"RANK"].decode()] = entry
        everyone = {"launcher": launcher} | ranks
        victims = [everyone[name] for name in plan["victims"] if name in everyone]
        with open(plan["done"], "w") as file:
            file.write(where)
        own = [pid for pid in victims if int(pid) == os.getpid()]
        for pid in [pid for pid in victims if pid not in own] + own:  # itself last
            os.kill(int(pid), getattr(signal, plan["signal"]))
    sys.addaudithook(seen)
if os.environ.get("REGARD_KILLS_PLAN") and "train" in sys.orig_argv:
    watch(json.loads(os.environ["REGARD_KILLS_PLAN"]))
"""
# What happens to which files tells where a training is.
PHASES = {
    "save": ["/checkpoints/"],
    "validation": ["/samples", "metrics.jsonl"],
    "end": ["model.safetensors", "summary.json", "README.md", "/plots"],
    "data": ["tokenizer.json", "/cache/", "/data/"],
}


@dataclass(frozen=True)
class Way:
    """Who is sent which signal."""

    signal: str
    victims: tuple[str, ...]  # launcher, 0, 1
    patience: int = 0  # seconds, where a process hangs

    @property
    def exit_codes(self) -> set[int]:
        """That the launcher may end with; 0: the signal came when all was done."""
        if self.signal == "SIGKILL":
            return {-signal.SIGKILL} if "launcher" in self.victims else {1}
        return {1} if self.signal == "SIGSTOP" else {130, 0}


WAYS = [
    Way("SIGKILL", ("0",)),
    Way("SIGKILL", ("1",)),
    Way("SIGKILL", ("launcher",)),
    Way("SIGTERM", ("launcher",)),
    Way("SIGKILL", ("0",)),
    Way("SIGINT", ("launcher",)),
    Way("SIGKILL", ("1",)),
    Way("SIGKILL", ("launcher",)),
    Way("SIGTERM", ("launcher", "0", "1")),
    Way("SIGSTOP", ("1",), PATIENCE),
    Way("SIGKILL", ("0", "1")),
    Way("SIGTERM", ("launcher",)),
    Way("SIGKILL", ("0",)),
    Way("SIGSTOP", ("0",), PATIENCE),
    Way("SIGKILL", ("1",)),
]


class Watched:
    """One training of two processes, with what disturbs it."""

    def __init__(self, folder: Path, command: list[str], plan: dict[str, object]):
        self.mark, self.done = uuid.uuid4().hex, folder / "done"
        self.done.unlink(missing_ok=True)
        (folder / "sitecustomize.py").write_text(WATCH)
        plan = {"trace": "", "number": 0, "phases": PHASES, "done": str(self.done)} | plan
        variables = {MARK: self.mark, "REGARD_KILLS_PLAN": json.dumps(plan), "PYTHONPATH": str(folder)}
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "regard", *command, "--processes", "2"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables,
        )

    def ended(self) -> tuple[int, str, float, list[str]]:
        """Exit code, last words, seconds from the signal to the end of all, and what is left after that."""
        try:
            _, stderr = self.process.communicate(timeout=LIMIT)  # until the last has closed it
        except subprocess.TimeoutExpired:
            stderr = "(hangs)"
        deadline = time.time() + SOON
        while (left := self.left()) and time.time() < deadline:
            time.sleep(0.05)
        taken = time.time() - self.done.stat().st_mtime if self.done.exists() else 0.0
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.communicate()
        return self.process.returncode, stderr, taken, [f"process {pid} is left" for pid in left]

    def left(self) -> list[int]:
        """The processes of this training that have not ended."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            try:
                variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in variables and state not in "ZX":
                found.append(int(entry))
        return found


def unclear(way: Way, code: int, stderr: str) -> list[str]:
    """What is wrong with how a training ended."""
    if code == -getattr(signal, way.signal) and not stderr:
        return []  # before the command had begun to listen, it ended as any program does
    found = [] if code in way.exit_codes else [f"exit code {code}"]
    found += [f"{word!r} is printed" for word in ("Traceback", "frame #", "(hangs)") if word in stderr]
    # Of one that fails, the others may have been stopped where they were; who kills the launcher silences it.
    words = stderr.count("Error:"), stderr.count("Stopped.")
    alone = way.signal == "SIGKILL" and "launcher" in way.victims
    if max(words) > 1 or (words == (0, 0) and code and not alone):
        found.append(f"{sum(words)} last words")
    return [f"{', '.join(found)}:\n{stderr[-1500:]}"] if found else []


def moments(workshop: Workshop, training: Training) -> dict[tuple[str, str], int]:
    """How often each process of the training is seen in each phase."""
    with workshop.bench(f"{training.name}, counted") as folder:
        trace = folder / "trace"
        watched = Watched(folder, workshop.command(training, folder / "run"), {"trace": str(trace)})
        code, stderr, _, _ = watched.ended()
        if code:
            sys.exit(stderr)
        seen = [tuple(line.split("\t")) for line in trace.read_text().splitlines()]
    return {(role, phase): seen.count((role, phase)) for role, phase in sorted(set(seen))}


def disturbed(
    folder: Path, command: list[str], way: Way, seen: dict[tuple[str, str], int], chance: random.Random
) -> tuple[str, float, list[str]]:
    """Start it and send the signal at some moment; where it came ("" if too late), the seconds, what is wrong."""
    roles = [way.victims[0]] if way.signal in ("SIGKILL", "SIGSTOP") and way.victims[0] != "launcher" else ["0", "1"]
    if way.victims == ("launcher",):
        roles.append("launcher")
    role, phase = chance.choice([moment for moment in seen if moment[0] in roles])
    plan = {"role": role, "phase": phase, "signal": way.signal, "victims": way.victims}
    plan["number"] = chance.randint(1, seen[role, phase])
    patience = [f"system.patience={way.patience}"] if way.patience else []
    watched = Watched(folder, [*command, *patience], plan)
    code, stderr, taken, left = watched.ended()
    if not watched.done.exists():
        return "", 0.0, [f"undisturbed, but ended with {code}: {stderr[-1500:]}"] if code else []
    where = f"{way.signal} to {' '.join(way.victims)} when {role} was at {phase}: {watched.done.read_text()}"
    late = taken > SOON + 2 * way.patience + 5 * bool(way.patience)
    problems = [f"{taken:.0f} s to end"] if late else []
    return where, taken, problems + left + unclear(way, code, stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="six kills of one training")
    options = parser.parse_args()
    count, tasks = (6, TASKS[:1]) if options.quick else (options.kills, TASKS)
    chance, done, bad, times = random.Random(options.seed), 0, 0, {False: [0.0], True: [0.0]}
    with tempfile.TemporaryDirectory() as place:
        workshop = Workshop(Path(place))
        trainings = [replace(workshop.trainings[task], name=f"{task}, shared", changes=SHARED) for task in tasks]
        for training in trainings:
            workshop.add(training)
        counted = {training.name: moments(workshop, training) for training in trainings}
        print("training | signal | seconds to the end of all | problems", flush=True)
        row = 0
        while done < count:
            training, row = trainings[row % len(trainings)], row + 1
            with workshop.bench(f"{training.name} {row}") as folder:
                command = workshop.command(training, folder / "run", "--resume")
                for _ in range(min(KILLS_IN_A_ROW, count - done)):
                    way = WAYS[done % len(WAYS)]
                    where, taken, problems = disturbed(folder, command, way, counted[training.name], chance)
                    done += bool(where)
                    bad += bool(problems)
                    times[bool(way.patience)].append(taken)
                    shown = where.replace(place, "") or "none: it ended before"
                    print(" | ".join([training.name, shown, f"{taken:.1f}"]), *problems, sep="\n  ", flush=True)
                code, stderr, _, _ = Watched(folder, command, {}).ended()
                problems = [stderr] if code else differences(folder / "run", workshop.whole(training.name))
                bad += bool(problems)
                print(f"{training.name} | then left alone | ", *problems, sep="\n  ", flush=True)
    result = {"kills": done, "trainings": row, "problems": bad}
    result |= {"longest_end_s": round(max(times[False]), 1), "longest_end_of_a_hang_s": round(max(times[True]), 1)}
    print(json.dumps(result))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
