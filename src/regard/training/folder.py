"""The run folder: what a training leaves behind, and the only thing the other verbs read.

config.toml  config.json  tokenizer.json  model.safetensors  metrics.jsonl  summary.json  environment.json
data.json  plugins.json  manifest.json  README.md  plots/  samples/  checkpoints/step-N/ (+ best, last)

Every file is read by its type, and checked against the manifest before it is used.
"""

from __future__ import annotations

import errno
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard import registry
from regard.console import warn
from regard.errors import RegardError, UsageError, first_problem
from regard.files import flush, read_small, write_atomically, writing
from regard.recipes import from_toml
from regard.training.manifest import Manifest, check

PLUGINS = "plugins.json"
LEFTOVER = re.compile(r"\..+\.tmp|\.tmp\w{6}")  # ours, and those of safetensors
LONGEST_COURSE = 2**29  # bytes of metrics.jsonl: some million lines
STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")


def is_run(path: Path | str) -> bool:
    """Whether a folder is a run's. A text, too long to be the name of one, is not."""
    try:
        return (Path(path) / "config.toml").is_file()
    except (OSError, ValueError):
        return False


class RunFolder:
    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.model = self.path / "model.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.plots = self.path / "plots"
        self.samples = self.path / "samples"

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """An existing run; a clear error if there is none."""
        folder = cls(path)
        if not is_run(path):
            state = "does not exist"
            if folder.path.exists():
                state = "has no config.toml" if folder.path.is_dir() else "is a file"
            raise RegardError(
                f"'{path}' is not a run folder.",
                f"It {state}.",
                "Give a folder that `regard train` made, for example runs/demo.",
            )
        return folder

    @classmethod
    def create(
        cls,
        path: Path | str,
        config: str,
        plugins: Sequence[registry.Plugin] = (),
        files: Mapping[str, bytes] | None = None,
    ) -> RunFolder:
        """A new run with its config.toml and what else it begins with. Appears whole or not at all."""
        folder = cls(path)
        if folder.path.is_file():
            raise RegardError(f"'{path}' is a file.", "A run is a folder.", "Choose another path with --out DIR.")
        taken = RegardError(
            f"'{path}' is already there.",
            "A run is never overwritten.",
            "Add --resume to continue it, or choose another folder with --out DIR.",
        )
        if folder.path.exists() and any(folder.path.iterdir()):
            raise taken
        with writing(folder.path, "Choose a writable path with --out DIR."):
            folder.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{folder.path.name}.", dir=folder.path.parent) as temporary:
                whole = Path(temporary, "run")
                whole.mkdir()
                if plugins:
                    recorded = {plugin.path.name: plugin.sha256 for plugin in plugins}
                    cls(whole).write_json(PLUGINS, recorded)
                for name, content in (files or {}).items():
                    cls(whole).write_bytes(name, content)
                cls(whole).write_text("config.toml", config)
                try:
                    whole.rename(folder.path)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another training made it meanwhile
                        raise taken from None
                    raise
                flush(folder.path.parent)
        return folder

    def read_settings(self) -> Any:
        """The settings of its task, as they were written when it was trained."""
        self.check_plugins()
        try:
            text = self.read_bytes(self.config.name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._unreadable(self.config.name, error) from None
        return from_toml(text, name=str(self.config), of_run=True)

    def check_plugins(self, resume: bool = False) -> None:
        """The plug-ins that the run was made with are loaded. It names them, and never executes anything itself.

        To use a run with a changed plug-in gives a warning; to `resume` it would mix two programs, and is an error.
        """
        if not (self.path / PLUGINS).is_file():
            return
        loaded = {plugin.path.name: plugin for plugin in registry.plugins()}
        for name, digest in self.read_json(PLUGINS, dict[str, str]).items():
            if name not in loaded:
                raise UsageError(
                    f"The run '{self.path}' was made with the plug-in {name}.",
                    "A run folder never executes code by itself.",
                    f"Add --plugin PATH/{name}, if you trust that file.",
                )
            if loaded[name].sha256 != digest and resume:
                raise UsageError(
                    f"The plug-in {name} has changed since the run '{self.path}' was started.",
                    "Its last steps would come from another program than its first.",
                    "Restore the file, or train again with another --out DIR.",
                )
            if loaded[name].sha256 != digest:
                warn(f"The plug-in {name} is not what '{self.path}' was made with: its content has changed.")

    def saved_steps(self) -> list[int]:
        """The steps that have a checkpoint, oldest first."""
        return saved_steps(self.checkpoints)

    # ------------------------------------------------------------ reading

    def checked(self, name: str) -> Path:
        """The path of a file that is there and is what was written."""
        path = self.path / name
        try:
            if not path.is_file():
                raise FileNotFoundError("There is no such file.")
            check(self.path, name)
        except OSError as error:
            raise self._unreadable(name, error) from None
        return path

    def checked_meanwhile(self, name: str) -> Future[Path]:
        """The same in a second thread, beside what else is to be done: to hash a large file takes a while."""
        pool = ThreadPoolExecutor(1)
        checked = pool.submit(self.checked, name)
        pool.shutdown(wait=False)
        return checked

    def read_bytes(self, name: str) -> bytes:
        """The whole content of a file that is not large."""
        try:
            content = read_small(self.path / name)
            self.checked(name)
        except OSError as error:
            raise self._unreadable(name, error) from None
        return content

    def read_json(self, name: str, kind: Any = Any) -> Any:
        """The content of a JSON file as a `kind` of value, such as list[str]; an error if it is another."""
        try:
            return TypeAdapter(kind).validate_json(self.read_bytes(name))
        except ValidationError as error:
            raise self._unreadable(name, first_problem(error)) from None

    def _unreadable(self, name: str, why: object) -> RegardError:
        unfinished = not self.summary.is_file()
        remedy = "Is the training finished? Continue it with --resume." if unfinished else "Restore the file."
        return RegardError(f"Cannot read {name} in '{self.path}'.", f"{why}", remedy)

    def has(self, name: str) -> bool:
        """Whether the run has this file, or had it: one that is listed in the manifest and gone is not made anew."""
        return (self.path / name).exists() or name in Manifest.read(self.path).finished

    # ------------------------------------------------------------ writing

    @cached_property
    def manifest(self) -> Manifest:
        """For writing. There is one writer at a time."""
        return Manifest.read(self.path)

    def write_json(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        temporary = self.temporary(name)
        try:
            temporary.parent.mkdir(exist_ok=True)
            temporary.write_bytes(content)
            self.manifest.put(temporary, name)
        finally:
            temporary.unlink(missing_ok=True)

    def temporary(self, name: str) -> Path:
        """Where a file is written before it has its name."""
        path = self.path / name
        return path.with_name(f".{path.name}.tmp")

    def sweep(self) -> None:
        """Remove what killed processes have left half-written."""
        for folder in (self.path, self.plots, self.samples):
            for path in folder.glob(".*"):
                if LEFTOVER.fullmatch(path.name):
                    path.unlink()

    # ------------------------------------------------------------ the course of training

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; one cut off by a kill, or without a step, is skipped."""
        if not self.metrics.is_file():
            return []
        try:
            lines = read_small(self.metrics, LONGEST_COURSE).decode(errors="replace").splitlines()
        except OSError as error:
            raise self._unreadable(self.metrics.name, error) from None
        return [record for record in map(_record, lines) if record]

    def forget_after(self, step: int) -> None:
        """Drop the metrics and samples of steps that will be taken again."""
        kept = [record for record in self.read_metrics() if record["step"] <= step]
        write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in kept).encode())
        for path in self.samples.glob("step-*.txt"):
            if (taken := STEP.fullmatch(path.stem)) and int(taken[1]) > step:
                path.unlink()


def step_folders(checkpoints: Path) -> list[int]:
    """The steps that have a folder, oldest first. Other names among them are not ours."""
    if not checkpoints.is_dir():
        return []
    folders = [path.name for path in checkpoints.iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted(int(step[1]) for name in folders if (step := STEP.fullmatch(name)))


def saved_steps(checkpoints: Path) -> list[int]:
    """Those whose folder holds a checkpoint, whole or damaged: its manifest is written last."""
    return [step for step in step_folders(checkpoints) if (checkpoints / f"step-{step}" / "manifest.json").is_file()]


def _record(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl: numbers by name, the step among them."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = isinstance(record, dict) and all(isinstance(value, int | float) for value in record.values())
    return record if numbers and isinstance(record.get("step"), int) else None
