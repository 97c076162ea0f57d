"""Trainings of a second or two, one for every task, mixer and way of training: what the audits disturb.

A `Workshop` is a folder with their data and their undisturbed runs. Commands run in forks of a process that has the
imports done (tests/fork_server.py), with one thread each.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path += [str(TESTS), str(TESTS / "tasks")]

import small_data  # noqa: E402
from command import forked_regard, running, when  # noqa: E402
from kinds import KINDS  # noqa: E402
from regard import registry  # noqa: E402
from regard.files import sha256  # noqa: E402

# Checkpoints after 2, 4, 6, 8 and 9 steps, of which the last few are kept.
LENGTH = ["training.steps=9", "training.save_every=2", "training.validate_every=4", "training.log_every=3"]
LENGTH += ["training.keep_checkpoints=2"]
SWIN = ["model.stages=[1,1]", "model.window=2", "model.patch=1", "model.positions=none", "model.norm=pre"]
# Drawing takes longer than the training. So the pictures are empty, but written as any other.
QUICK_CURVES = """
from matplotlib.figure import Figure
Figure.savefig = lambda figure, file, **options: file.write(b"\\x89PNG" + bytes(30_000) + b"IEND\\xaeB`\\x82")
"""
PATIENCE = 300  # seconds; reached only when something hangs


@dataclass(frozen=True)
class Training:
    name: str
    task: str
    changes: tuple[str, ...] = ()
    start_from: str = ""  # the training whose run it starts from
    embeddings: str = ""  # the training whose word vectors it starts from


def all_trainings() -> list[Training]:
    """Every task as the tests train it; every mixer in every stack that takes one; and each other way of training."""
    found = [Training(task, task) for task in registry.names("tasks")]
    for mixer in registry.names("mixers"):
        if mixer != "attention":
            changes = (f"model.mixer={mixer}", "model.local.window=8")
            found += [Training(f"{task}, {mixer}", task, changes) for task in ("translate", "language", "synthetic")]
    return [
        *found,
        Training("masked, hyena", "masked", ("model.mixer=hyena", "data.documents=together")),
        Training("classify-text, gru", "classify-text", ("model.mixer=gru",)),
        Training("pixels, local", "pixels", ("model.mixer=local", "model.local.window=8")),
        Training("translate, gru, additive", "translate", ("model.mixer=gru", "model.cross=additive")),
        Training("translate, the best", "translate", ("training.average_checkpoints=0",)),
        Training("translate, moving average", "translate", ("training.average_checkpoints=0", "training.ema=0.9")),
        Training("translate, R-Drop", "translate", ("training.consistency=1.0",)),
        Training("language, muon", "language", ("training.optimizer=muon",)),
        Training("language, in pieces", "language", ("training.micro_batches=2", "training.ema=0.9")),
        Training("language, apart", "language", ("data.documents=apart", "data.text=documents.jsonl")),
        Training("images, Swin", "classify-image", (*SWIN,)),
        Training("images, moving average", "classify-image", ("training.ema=0.9", "training.optimizer=muon")),
        Training("classify-text from masked", "classify-text", start_from="masked"),
        Training("classify-text from language", "classify-text", start_from="language"),
        Training("masked from masked", "masked", ("training.ema=0.9",), start_from="masked"),
        Training("images from images", "classify-image", start_from="classify-image"),
        Training("classify-text from vectors", "classify-text", ("model.width=16",), embeddings="embeddings"),
    ]


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal that ended it
    stderr: str

    @property
    def is_clear(self) -> bool:
        """Done, or ended by a signal, or by an error in three lines."""
        if "Traceback" in self.stderr or "Segmentation" in self.stderr:
            return False
        lines = self.stderr.splitlines()
        errors = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
        return self.code <= 0 or self.code == 130 or (bool(errors) and len(lines) - errors[0] == 3)


class Workshop:
    """Data, a cache, and the undisturbed runs, each made when it is first asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.trainings = {training.name: training for training in all_trainings()}
        self.locks = {name: threading.Lock() for name in self.trainings}
        self.writing = threading.Lock()
        os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        forked_regard()  # before any threads ask for it

    def command(self, training: Training, out: Path, *more: str) -> list[str]:
        """`regard train …`, without --resume."""
        kind = KINDS[training.task]
        own = [change for change in kind.settings if not (training.start_from and change.startswith(("model.", "tok")))]
        command = ["train", kind.recipe, *own, *LENGTH, *training.changes, "--out", str(out), *more]
        if kind.data:
            command += ["--data", str(self.data(kind.data))]
        if training.start_from:
            command += ["--from", str(self.whole(training.start_from))]
        if training.embeddings:
            command += ["--embeddings", str(self.vectors(training.embeddings))]
        return command

    def add(self, training: Training) -> None:
        """One more training than those of the audits."""
        self.trainings[training.name] = training
        self.locks[training.name] = threading.Lock()

    def data(self, name: str) -> Path:
        """The data of some trainings, as the tests have it, written when it is first asked for."""
        folder = self.folder / "data" / name
        with self.writing:
            if not folder.exists():
                folder.mkdir(parents=True)
                getattr(small_data, {"corpus": "write_pairs"}.get(name, f"write_{name}"))(folder)
        return folder

    def whole(self, name: str) -> Path:
        """The run of a training that nothing disturbed."""
        out = self.folder / "whole" / name / "run"
        with self.locks[name]:
            if not out.exists():
                ended = run(*self.command(self.trainings[name], out))
                if ended.code:
                    sys.exit(f"{name} could not be trained:\n{ended.stderr}")
        return out

    def vectors(self, name: str) -> Path:
        """Word vectors of a run, as a file; of the width that the trainings here have."""
        file = self.folder / f"{name}.vec"
        whole = self.whole(name)
        with self.locks[name]:
            if not file.exists():
                ended = run("embeddings", str(whole), "--export", str(file))
                if ended.code:
                    sys.exit(ended.stderr)
        return file

    @contextlib.contextmanager
    def bench(self, name: str) -> Iterator[Path]:
        """An empty folder to disturb a training in; gone afterwards."""
        folder = self.folder / "bench" / name
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def run(*arguments: str, before: str = "") -> Ended:
    """One command to its end; `before` is Python that runs first in its process."""
    with started(*arguments, before=before) as process:
        return ended(process)


@contextlib.contextmanager
def started(*arguments: str, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    with running(*arguments, variables={"BEFORE_REGARD": QUICK_CURVES + before}, program=forked_regard()) as process:
        yield process


def kill_at_rename(end: str) -> str:
    """Python for `before`: the process ends when it is to give something a path with this end."""
    return when("os.rename", f"{end}'", "os.kill(os.getpid(), signal.SIGKILL)")


def ended(process: subprocess.Popen[bytes]) -> Ended:
    _, stderr = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, stderr.decode(errors="replace"))


# ---------------------------------------------------------------- comparing runs


def differences(run: Path, whole: Path) -> list[str]:
    """What of a finished run is not as in the undisturbed one: bytes, but for seconds and what follows from them."""
    found = [name for name in ("model.safetensors", *settled(whole)) if not same(run / name, whole / name)]
    found += [] if metrics(run) == metrics(whole) else ["metrics.jsonl"]
    found += [] if summary(run) == summary(whole) else ["summary.json"]
    samples = [sorted(path.name for path in each.glob("samples/*")) for each in (run, whole)]
    found += [] if samples[0] == samples[1] else ["samples/"]
    found += [f"samples/{name}" for name in samples[1] if not same(run / "samples" / name, whole / "samples" / name)]
    found += [f"{path.relative_to(run)} is left over" for path in run.rglob(".*") if path.name not in KEPT_HIDDEN]
    return found


KEPT_HIDDEN = {".lock"}


def settled(whole: Path) -> list[str]:
    """Files that a training writes once and that follow from its settings and data alone."""
    names = {path.name for path in whole.iterdir() if path.is_file()}
    changing = {"model.safetensors", "metrics.jsonl", "summary.json", "environment.json", "README.md", "config.toml"}
    return sorted(name for name in names - changing - {"manifest.json"} if not name.startswith("."))


def same(left: Path, right: Path) -> bool:
    return left.is_file() and right.is_file() and sha256(left) == sha256(right)


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what the clock decides."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in record.items() if "second" not in name} for record in records]


def summary(run: Path) -> dict[str, Any]:
    content = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {name: content[name] for name in ("task", "seed", "steps", "parameters", "metrics")}


def whole_checkpoints(run: Path) -> list[int]:
    """The steps whose checkpoint has every file as its manifest says, oldest first."""
    return sorted(
        int(folder.name.removeprefix("step-")) for folder in run.glob("checkpoints/step-*") if is_whole(folder)
    )


def is_whole(folder: Path) -> bool:
    try:
        digests = json.loads((folder / "manifest.json").read_text())["sha256"]
        needed = {"model.safetensors", "optimizer.safetensors", "state.json"}
        return needed <= digests.keys() and all(sha256(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, KeyError):
        return False


def half_written(run: Path, whole: Path) -> list[str]:
    """Files under their final names that are not what they should be. A line of metrics.jsonl may be cut off."""
    found = [f"checkpoints/{each.name}" for each in run.glob("checkpoints/step-*") if not is_whole(each)]
    for name in ("model.safetensors", *settled(whole)):
        if (run / name).exists() and not same(run / name, whole / name):
            found.append(name)
    for name in ("summary.json", "environment.json", "manifest.json"):
        if (run / name).exists():
            try:
                json.loads((run / name).read_text(encoding="utf-8"))
            except ValueError:
                found.append(name)
    for path in run.glob("samples/*"):
        if not path.name.startswith(".") and not same(path, whole / "samples" / path.name):
            found.append(f"samples/{path.name}")
    for path in run.glob("plots/[!.]*.png"):
        if not path.read_bytes().endswith(b"IEND\xaeB`\x82"):
            found.append(f"plots/{path.name}")
    return found
