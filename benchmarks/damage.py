"""Is damage to a run's files noticed before it does harm?

    python benchmarks/damage.py [--damages 10000] [--seed 1] [--quick]

Small runs of all tasks, finished or stopped in the middle, are damaged ten thousand times: one bit of one of their
files is flipped, or the file is cut off, every file as often as every other. Then the run is used as its files are:

- a finished run is loaded and asked for an answer: that, the settings and the weights must be the same as before;
- if it is a file of a checkpoint, that checkpoint is read: it must be what it was, or left out with a warning;
- a stopped run, and now and then any other, is resumed to its end as by `regard train RUN --resume`: the model must be
  the same bytes as before.

Each damage is then "refused" (an error in three lines), "said" (a warning, and what was whole is used) or "harmless"
(nothing is different). Anything else counts as a failure: a difference without a word, or any other exception. The last
line is JSON; the exit code is 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import regard
from regard import console
from regard.errors import RegardError
from regard.tables import text_table
from regard.training.checkpoint import Checkpoint, Checkpoints
from regard.training.folder import RunFolder
from small_trainings import QUICK_CURVES, Workshop, differences, kill_at_rename, run

TRAININGS = ["translate", "language, in pieces", "masked", "classify-text from masked", "embeddings"]
TRAININGS += ["classify-image", "pixels", "synthetic"]
QUICK = ["translate", "classify-image"]
CHECKPOINT = re.compile(r"checkpoints/step-(\d+)/")
RESUMED = 25  # one in so many damaged runs is resumed to its end
CHUNK = 40  # damages that one process does in a row
MEMORY, SECONDS = 16 << 30, 120  # of one process, and for one damage


@dataclass(frozen=True)
class Damage:
    run: int
    file: str
    bit: int | None  # which is flipped; none: it is cut off
    length: int = 0
    resumed: bool = False

    def __str__(self) -> str:
        return f"{self.file}, {f'bit {self.bit}' if self.bit is not None else f'cut off at {self.length}'}"

    def applied(self, content: bytes) -> bytes:
        if self.bit is None:
            return content[: self.length]
        damaged = bytearray(content)
        damaged[self.bit // 8] ^= 1 << self.bit % 8
        return bytes(damaged)


@dataclass
class Subject:
    """A run to damage, and what it gives when nothing is damaged."""

    name: str
    path: Path
    whole: Path  # the finished run
    finished: bool

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Every file by its path in the run; `best` and `last` are links, which nothing reads."""
        found = sorted(path for path in self.path.rglob("*") if path.is_file() and not path.parent.is_symlink())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    @cached_property
    def expected(self) -> str:
        return fingerprint(self.path) if self.finished else ""

    @cached_property
    def usual_warnings(self) -> set[str]:
        """What is said when it is resumed and nothing is damaged."""
        heard = io.StringIO()
        with contextlib.redirect_stderr(heard):
            different = resume(self)
        assert not different, f"{self.name} is not what it was before it was damaged: {different}"
        return warnings(heard)

    @cached_property
    def checkpoints(self) -> dict[int, str]:
        """What each of its checkpoints holds, by step."""
        saved = self._saved([])
        return {step: digest_of(saved.load(step)) for step in saved.steps()}

    def _saved(self, said: list[str]) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", every=2, keep=2, warn=said.append)

    def damage_noticed(self, step: int) -> bool:
        """Whether a training would leave out this checkpoint and say so. One that it would use must be what it was."""
        said: list[str] = []
        saved = self._saved(said)
        if not saved.is_whole(step):
            return bool(said)
        assert digest_of(saved.load(step)) == self.checkpoints[step], f"step {step} is not what it was"
        return False


def digest_of(checkpoint: Checkpoint) -> str:
    """Of all that a checkpoint holds."""
    digest = hashlib.sha256(json.dumps(checkpoint.state, sort_keys=True).encode())
    for tensors in (checkpoint.weights, checkpoint.optimizer, checkpoint.average):
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def fingerprint(path: Path) -> str:
    """Of a loaded run: its settings, its weights, and an answer."""
    model = regard.load(path, device="cpu")
    digest = hashlib.sha256(repr(model.settings).encode())
    for name, parameter in sorted(model.model.named_parameters()):
        digest.update(name.encode() + parameter.detach().numpy().tobytes())
    digest.update(repr(answer(model)).encode())
    return digest.hexdigest()


def answer(model: Any) -> Any:
    """Something short that a run of its task is for."""
    sentence = "The old farmer helps the child."
    match model.settings.task:
        case "translate":
            return model.translate([sentence])
        case "language":
            return list(model.generate("The ", temperature=0, max_tokens=8))
        case "masked":
            return model.fill("The [MASK] farmer helps.")
        case "classify-text":
            return model.classify([sentence])
        case "embeddings":
            return model.vectors.nearest("the")
        case "classify-image":
            return model.classify([Path(model.settings.data.root) / "test" / "down" / "200.png"])
        case "pixels":
            return model.sample(1).tolist()
    return None  # others have no answer but a score


# ---------------------------------------------------------------- one damage


def try_out(subject: Subject, damage: Damage) -> tuple[str, str]:
    """Damage a file, use the run, restore it. Returns refused, said, harmless or failed; and what happened."""
    target = subject.path / damage.file
    content = subject.files[damage.file]
    if damage.applied(content) == content:
        return "harmless", "the file is empty"
    target.write_bytes(damage.applied(content))
    heard = io.StringIO()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stderr(heard):
            outcome = _use(subject, damage, heard)
    except RegardError as error:
        outcome = "refused", error.what
    except Exception as error:
        outcome = "failed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        target.write_bytes(content)
    return outcome


def _use(subject: Subject, damage: Damage, heard: io.StringIO) -> tuple[str, str]:
    if (match := CHECKPOINT.match(damage.file)) and not damage.resumed:
        return ("said" if subject.damage_noticed(int(match[1])) else "harmless"), ""
    if damage.resumed:
        different, about = resume(subject, damage.file), "resumed, differs: "
    else:
        different, about = {"the answer"} if fingerprint(subject.path) != subject.expected else set(), "differs: "
    if warnings(heard) - subject.usual_warnings:
        return "said", ""
    return ("failed", about + ", ".join(sorted(different))) if different else ("harmless", "")


def resume(subject: Subject, damaged: str = "") -> set[str]:
    """What is different in the end. Done in a copy, as it writes to the folder."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(subject.path, Path(place, "run"), symlinks=True))
        regard.train(str(copy), resume=True)
        different = set(differences(copy, subject.whole))
        if damaged in different and not is_used(copy, damaged):
            different.remove(damaged)
        return different


def is_used(run: Path, damaged: str) -> bool:
    """Not if it is written for people only, or if whoever reads it is told that it is damaged."""
    if damaged == "metrics.jsonl" or damaged.startswith("samples/"):
        return False
    try:
        RunFolder(run).checked(damaged)
    except RegardError:
        return False
    return True


def warnings(heard: io.StringIO) -> set[str]:
    return {line for line in heard.getvalue().splitlines() if line.startswith("Warning: ")}


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"not done after {SECONDS} s")


SUBJECTS: list[Subject] = []  # of this process; each works on copies of its own


def _own_copies(subjects: list[Subject]) -> None:
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    console.be_quiet(True)
    exec(QUICK_CURVES)
    place = Path(tempfile.mkdtemp(dir=subjects[0].path.parents[1]))
    for number, subject in enumerate(subjects):
        copy = Path(shutil.copytree(subject.path, place / str(number), symlinks=True))
        own = Subject(subject.name, copy, subject.whole, subject.finished)
        # Known before anything is damaged.
        assert own.expected == subject.expected and own.checkpoints and isinstance(own.usual_warnings, set)
        SUBJECTS.append(own)


def _try_all(damages: list[Damage]) -> list[tuple[Damage, str, str]]:
    return [(damage, *try_out(SUBJECTS[damage.run], damage)) for damage in damages]


# ---------------------------------------------------------------- all of them


def subjects_of(workshop: Workshop, names: list[str]) -> list[Subject]:
    """The finished runs; and every second one also as it is when it was killed before its last checkpoint."""
    found = [Subject(name, workshop.whole(name), workshop.whole(name), True) for name in names]
    for name in names[1::2]:
        stopped = workshop.folder / "stopped" / name / "run"
        ended = run(*workshop.command(workshop.trainings[name], stopped), before=kill_at_rename("/step-9"))
        if ended.code != -signal.SIGKILL:
            sys.exit(f"{name} was not stopped:\n{ended.stderr}")
        shutil.rmtree(stopped / "checkpoints" / ".step-9.tmp")
        found.append(Subject(f"{name}, stopped", stopped, workshop.whole(name), False))
    return found


def planned(subjects: list[Subject], count: int, chance: random.Random, resumed: int = RESUMED) -> Iterator[Damage]:
    """Every file of every run as often as every other; two in three are flips. One in `resumed` runs is resumed."""
    files = [(number, name) for number, subject in enumerate(subjects) for name in subject.files]
    for at in range(count):
        number, name = files[at % len(files)]
        size = len(subjects[number].files[name])
        # What else could be done with a run that was stopped, but for reading one of its checkpoints?
        only_resumed = not subjects[number].finished and not CHECKPOINT.match(name)
        to_the_end = only_resumed or (bool(resumed) and chance.randrange(resumed) == 0)
        if at % 3 and size:
            yield Damage(number, name, chance.randrange(8 * size), resumed=to_the_end)
        else:
            yield Damage(number, name, None, chance.randrange(max(size, 1)), resumed=to_the_end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="200 damages of two runs")
    options = parser.parse_args()
    count, names = (200, QUICK) if options.quick else (options.damages, TRAININGS)
    with tempfile.TemporaryDirectory() as place:
        workshop = Workshop(Path(place))
        subjects = subjects_of(workshop, names)
        damages = list(planned(subjects, count, random.Random(options.seed)))
        chunks = [damages[start : start + CHUNK] for start in range(0, len(damages), CHUNK)]
        outcomes: list[tuple[Damage, str, str]] = []
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(options.workers, context, _own_copies, (subjects,)) as pool:
            try:
                for number, done in enumerate(pool.map(_try_all, chunks), start=1):
                    outcomes += done
                    if sys.stderr.isatty():
                        print(f"{number * CHUNK:,} of {count:,}", end="\r", file=sys.stderr)
            except BrokenProcessPool:
                sys.exit(f"A process died in one of the damages from {len(outcomes):,} on.")
        report(subjects, outcomes)


def report(subjects: list[Subject], outcomes: list[tuple[Damage, str, str]]) -> None:
    """A row for each kind of file, the failures, and the sums."""
    kinds: dict[str, Counter[str]] = {}
    for damage, outcome, _ in outcomes:
        name = damage.file.rpartition("/")[2] if damage.file.startswith("checkpoints/") else damage.file
        kind = f"checkpoints/…/{name}" if damage.file.startswith("checkpoints/") else name
        kind = "samples/…" if kind.startswith("samples/") else kind
        kinds.setdefault(kind, Counter())[outcome] += 1
    columns = ["refused", "said", "harmless", "failed"]
    rows = [[kind, *(str(counts[column]) for column in columns)] for kind, counts in sorted(kinds.items())]
    print(text_table(["file", *columns], rows))
    failed = [(damage, what) for damage, outcome, what in outcomes if outcome == "failed"]
    for damage, what in failed[:40]:
        print(f"{subjects[damage.run].name}: {damage}: {what}")
    totals = Counter(outcome for _, outcome, _ in outcomes)
    resumed = sum(damage.resumed for damage, _, _ in outcomes)
    print(json.dumps({"damages": len(outcomes), "resumed": resumed, **{name: totals[name] for name in columns}}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
