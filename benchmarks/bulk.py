"""Does work that is shared by processes, and killed on the way, give the same bytes?

    python benchmarks/bulk.py [--run RUN] [--tokenize 1000000] [--translate 20000] [--workers 1 2 4] [--quick]

Sentences of the built-in grammar are tokenised, and others are translated with --json, so that every bit of a score
counts: first by the plain command, with one thread; then with --processes. A worker is killed when a third of the parts
is there, the command itself when two thirds are, and each time the same command is given again. Told are the parts that
were there after each kill, and the sha256 of the outputs. Without --run, the recipe `demo` is trained first, for a few
steps with --quick. The last line is JSON; the exit code is 1 if any bytes differ, or if a worker outlives the command.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measured import show
from regard.data.samples import english_german
from regard.files import sha256

SENTENCES = 20_000  # different ones; more lines are the same sentences with a number before each
PATIENCE = 60  # seconds that a worker may outlive the command, at most
QUICK = ["training.steps=20", "training.validate_every=20", "model.layers=1", "training.validate_bleu=false"]


@dataclass
class Outcome:
    """What came of one piece of work, shared by so many workers."""

    work: str
    lines: int
    workers: int
    parts: int = 0
    parts_after_kills: list[int] = field(default_factory=list)
    sha256: str = ""
    problems: list[str] = field(default_factory=list)


def regard(*arguments: str, threads: int = 0) -> subprocess.Popen[str]:
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    command = [sys.executable, "-m", "regard", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def write_lines(path: Path, count: int) -> None:
    sentences = [source for source, _ in english_german.pairs(min(count, SENTENCES), seed=9)]
    with path.open("w", encoding="utf-8") as file:
        for number, sentence in enumerate(itertools.islice(itertools.cycle(sentences), count)):
            file.write(f"{sentence}\n" if number < len(sentences) else f"{number} {sentence}\n")


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_for(what: Callable[[], bool], while_running: subprocess.Popen[str] | None = None) -> bool:
    """Whether it came to be, in time."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        if while_running.poll() is not None if while_running else time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def whole_parts(output: Path) -> int:
    return len(list(Path(f"{output}.parts").glob("part-*.json")))


def all_parts(output: Path) -> int:
    job = Path(f"{output}.parts", "job.json")
    return len(json.loads(job.read_text())["parts"]) if job.exists() else 0


def killed(command: list[str], output: Path, share: float, of_command: bool, outcome: Outcome) -> None:
    """Give the command, and kill it or one of its workers when this share of the parts is there."""
    with regard(*command) as process:
        due = wait_for(lambda: 0 < all_parts(output) * share <= whole_parts(output), process)
        workers = children(process.pid) if due else []
        if not workers:
            outcome.problems.append(f"it had ended before {share:.0%} of the parts were there")
            return
        os.kill(process.pid if of_command else workers[0], signal.SIGKILL)
        said = process.communicate()[1]
    if of_command and not wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers)):
        outcome.problems.append("a worker outlives the command")
    if not of_command and (process.returncode != 1 or "was ended by SIGKILL" not in said):
        outcome.problems.append(f"exit code {process.returncode} after the kill of a worker: {said[-300:]}")
    outcome.parts = all_parts(output)
    outcome.parts_after_kills.append(whole_parts(output))


def shared(work: str, lines: int, workers: int, command: list[str], output: Path) -> Outcome:
    outcome = Outcome(work, lines, workers)
    command = [*command, "-o", str(output), "--processes", str(workers)]
    for share, of_command in ((1 / 3, False), (2 / 3, True)):
        killed(command, output, share, of_command, outcome)
    outcome.sha256 = finished(command, output)
    if Path(f"{output}.parts").exists():
        outcome.problems.append("parts are left over")
    return outcome


def finished(command: list[str], output: Path, threads: int = 0) -> str:
    with regard(*command, threads=threads) as process:
        said = process.communicate()[1]
    if process.returncode:
        sys.exit(f"{' '.join(command)} has failed:\n{said}")
    return sha256(output)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--tokenize", type=int, default=1_000_000)
    parser.add_argument("--translate", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="about a minute, most of it for imports")
    options = parser.parse_args()
    if options.quick:
        options.tokenize, options.translate, options.workers = 40_000, 5_120, [2]
    with tempfile.TemporaryDirectory(prefix="regard-bulk-") as name:
        folder = Path(name)
        run = options.run or folder / "demo"
        if not options.run:
            finished(["train", "demo", "--out", str(run), *(QUICK if options.quick else [])], run / "config.toml")
        outcomes = []
        show("work", "lines", "workers", "parts", "after the kills", "sha256", "problems")
        for work, lines in (("tokenize", options.tokenize), ("translate", options.translate)):
            file = folder / f"{work}.txt"
            write_lines(file, lines)
            command = ["tokenize", str(run), "--file", str(file)]
            if work == "translate":
                command = ["translate", str(run), str(file), "--json", "--device", "cpu"]
            plain = finished([*command, "-o", str(folder / "plain")], folder / "plain", threads=1)
            show(work, f"{lines:,}", "plain", "", "", plain[:12], "")
            for workers in options.workers:
                outcome = shared(work, lines, workers, command, folder / "out")
                if outcome.sha256 != plain:
                    outcome.problems.append("its bytes differ from those of the plain command")
                told = (outcome.parts, outcome.parts_after_kills, outcome.sha256[:12], "; ".join(outcome.problems))
                show(work, f"{lines:,}", workers, *told)
                outcomes.append(outcome)
    wrong = sum(bool(outcome.problems) for outcome in outcomes)
    print(json.dumps({"benchmark": "bulk", "outcomes": [asdict(each) for each in outcomes], "wrong": wrong}))
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
