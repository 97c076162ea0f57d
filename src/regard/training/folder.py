"""The run folder: what a training leaves behind, and the only thing the other verbs read.

config.toml  config.json  tokenizer.json  model.safetensors  metrics.jsonl  summary.json  environment.json
data.json  plugins.json  README.md  plots/  samples/  checkpoints/step-N/ (+ best, last)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard import registry
from regard.console import warn
from regard.errors import RegardError, UsageError
from regard.files import write_atomically, writing
from regard.recipes import from_toml

PLUGINS = "plugins.json"


def is_run(path: Path | str) -> bool:
    """Whether a folder is a run's."""
    return (Path(path) / "config.toml").is_file()


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
    def create(cls, path: Path | str, config: str, plugins: Sequence[registry.Plugin] = ()) -> RunFolder:
        """A new run with its config.toml. Appears whole or not at all."""
        folder = cls(path)
        if folder.path.is_file():
            raise RegardError(f"'{path}' is a file.", "A run is a folder.", "Choose another path with --out DIR.")
        if folder.path.exists() and any(folder.path.iterdir()):
            raise RegardError(
                f"'{path}' is already there.",
                "A run is never overwritten.",
                "Add --resume to continue it, or choose another folder with --out DIR.",
            )
        with writing(folder.path, "Choose a writable path with --out DIR."):
            folder.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{folder.path.name}.", dir=folder.path.parent) as temporary:
                whole = Path(temporary, "run")
                whole.mkdir()
                (whole / "config.toml").write_text(config, encoding="utf-8")
                if plugins:
                    recorded = {plugin.path.name: plugin.sha256 for plugin in plugins}
                    (whole / PLUGINS).write_text(json.dumps(recorded, indent=2), encoding="utf-8")
                whole.rename(folder.path)
        return folder

    def read_settings(self) -> Any:
        """The settings of its task, as they were written when it was trained."""
        self.check_plugins()
        try:
            text = self.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RegardError(
                f"Cannot read '{self.config}'.", f"{error}", "Restore the file, or give another run folder."
            ) from None
        return from_toml(text, name=str(self.config), of_run=True)

    def check_plugins(self, resume: bool = False) -> None:
        """The plug-ins that the run was made with are loaded. It names them, and never executes anything itself.

        To use a run with a changed plug-in gives a warning; to `resume` it would mix two programs, and is an error.
        """
        if not (self.path / PLUGINS).is_file():
            return
        loaded = {plugin.path.name: plugin for plugin in registry.plugins()}
        for name, digest in self.read_json(PLUGINS).items():
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
        return sorted(int(path.name.removeprefix("step-")) for path in self.checkpoints.glob("step-*"))

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RegardError(
                f"Cannot read {name} in '{self.path}'.",
                f"{error}",
                "Is the training finished? Continue it with --resume.",
            ) from None

    def write_json(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text.encode())

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines; a line cut off by a kill is skipped."""
        records = []
        if self.metrics.exists():
            for line in self.metrics.read_text(encoding="utf-8").splitlines():
                try:
                    records.append(json.loads(line))
                except ValueError:
                    continue
        return records

    def forget_after(self, step: int) -> None:
        """Drop the metrics and samples of steps that will be taken again."""
        kept = [record for record in self.read_metrics() if record["step"] <= step]
        write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in kept).encode())
        for path in self.samples.glob("step-*.txt"):
            if int(path.stem.removeprefix("step-")) > step:
                path.unlink()
