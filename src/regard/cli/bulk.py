"""Lines of a file through a model: by this process as a Unix filter, or in parts, by several processes or machines.

The result is the same. What is kept on disk of parts is in `parts.py`, the processes are in `workers.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard import console
from regard.cli import lines
from regard.cli.app import number_option
from regard.cli.lines import LineWork, filter_lines, must_be_a_file, must_not_replace
from regard.errors import Interrupted, UsageError
from regard.files import sha256
from regard.words import counted

if TYPE_CHECKING:
    from regard.cli.parts import JobFolder, Part

ProcessesOption = Annotated[
    int | None,
    number_option("Share the lines of FILE among N processes; needs -o. See docs/scale.md.", default="this one alone"),
]
PartOption = Annotated[
    str | None, typer.Option("--part", metavar="I/M", help="Work on the I-th of M shares of FILE only; needs -o.")
]
WORKER = "REGARD_WORKER"  # the variable that tells a process that it is a worker, and which
# Of a verb's arguments, those that say who does the work and where, not what it is.
NOT_ASKED = ("run", "source", "file", "files", "output", "processes", "part")
OF_RUN = ("config.toml", "config.json", "model.safetensors", "labels.json")


@dataclass(frozen=True)
class Bulk:
    """What a verb is to read and write, and who is to do it."""

    files: Sequence[Path]
    output: Path | None
    processes: int | None = None
    part: str | None = None

    @property
    def in_parts(self) -> bool:
        return self.processes is not None or self.part is not None

    @property
    def share(self) -> tuple[int, int]:
        """The number of the share, from 0, and how many there are."""
        if self.part is None:
            return 0, 1
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.part)
        share, shares = map(int, found.groups()) if found else (0, 0)
        if not 1 <= share <= shares:
            raise UsageError(
                f"--part {self.part} is not a part.",
                "It is I/M, the I-th of M shares, and I is from 1 to M.",
                f"Correct it: --part 1/{max(shares, 1) if found else 4}",
            )
        return share - 1, shares

    def check(self) -> None:
        """Before anything is loaded."""
        for file in self.files:
            must_be_a_file(file)
        must_not_replace(self.output, self.files)
        if not self.in_parts:
            return
        option = "--processes" if self.part is None else "--part"
        _ = self.share
        if len(self.files) != 1:
            raise UsageError(
                f"{option} needs one file to read.",
                "Its lines are shared by where they are in the file; standard input has no such places.",
                "Name a file; join several with cat.",
            )
        if self.files[0].suffix in (".gz", ".xz"):
            raise UsageError(
                f"'{self.files[0]}' is packed.",
                f"With {option} lines are read from the middle of a file, which only a plain one allows.",
                f"Unpack it first: {'gunzip' if self.files[0].suffix == '.gz' else 'unxz'} -k {self.files[0]}",
            )
        if self.output is None:
            raise UsageError(
                f"{option} needs an output.", "Parts are kept beside it until all are there.", "Add one: -o FILE"
            )

    def run(self, verb: str, context: typer.Context, of_run: Path, make: Callable[[], LineWork]) -> None:
        """The verb with the options of the command; `make` loads what it needs. `of_run`: a run, or a tokenizer."""
        from regard.cli.parts import Gone, JobFolder

        if not self.in_parts:
            if self.output is not None:
                JobFolder(self.output).must_not_be_begun()
            filter_lines(make(), self.files, self.output)
            return
        from regard.cli.workers import serve

        assert self.output is not None
        [file], folder = self.files, JobFolder(self.output)
        if WORKER in os.environ:
            serve(make, file, folder)
            return
        parts = folder.open(_asked(verb, context.params, of_run), file, lines.LINES_AT_ONCE)
        try:
            self._make_and_join(folder, parts, file)
        except Gone:
            console.say(f"Another process has joined the parts: {folder.output}")
        except KeyboardInterrupt:
            raise Interrupted("Parts that are whole are kept; the same command continues.") from None

    def _make_and_join(self, folder: JobFolder, parts: list[Part], file: Path) -> None:
        """Have the parts of this share made that are missing; and join all, if those of all shares are there."""
        share, shares = self.share
        ours = {part.number for part in parts[share::shares]}
        while True:
            self._make([part for part in parts if part.number in ours], folder)
            whole = folder.whole(parts)
            if len(whole) < len(parts):
                done = f"Share {share + 1} of {shares} is done: {len(whole):,} of {len(parts):,} parts are there."
                console.say(f"{done} The process that makes the last one joins them.")
                if folder.output.exists():
                    console.warn(
                        f"'{folder.output}' is there already. If the other shares are done, it is whole: then delete "
                        f"'{folder.path}'."
                    )
                return
            damaged, notes = folder.join(parts, file)
            if not damaged:
                break
            ours |= {part.number for part in damaged}
        _warn_of_long_lines(notes)
        if self.part is not None:
            console.say(f"All parts are there, and are joined: {folder.output}")

    def _make(self, parts: list[Part], folder: JobFolder) -> None:
        """Those of these parts that are not there yet, by workers."""
        from regard.cli.workers import Workers

        whole = folder.whole(parts)
        missing = [part for part in parts if part.number not in whole]
        if not missing:
            return
        total = sum(part.lines for part in parts)
        done = total - sum(part.lines for part in missing)
        with console.progress(total, "lines", done) as show:

            def more(lines: int) -> None:
                nonlocal done
                done += lines
                show(done, f"of {counted(len(parts), 'part')}")

            Workers(self.processes or 1, missing, more).work()


def own_device(device: str) -> str:
    """Where there are several GPUs, a worker has one of them, which it shares with as few others as possible."""
    if WORKER not in os.environ or device not in ("auto", "cuda"):
        return device
    import torch

    count = torch.cuda.device_count()
    return f"cuda:{int(os.environ[WORKER]) % count}" if count > 1 else device


def _asked(verb: str, arguments: dict[str, Any], of_run: Path) -> dict[str, Any]:
    """What the result depends on, by names for messages."""
    from importlib.metadata import version

    options = {
        f"--{'json' if name == 'as_json' else name.replace('_', '-')}": value
        for name, value in arguments.items()
        if name not in NOT_ASKED
    }
    files = [of_run] if of_run.is_file() else sorted(of_run.iterdir())
    read = [file for file in files if file.name in OF_RUN or file.name.endswith("tokenizer.json") or file == of_run]
    asked = {
        "the verb": verb,
        "options": options,
        "run": {f"the sha256 of the run's {file.name}": sha256(file) for file in read},
        "versions": {f"the version of {name}": version(name) for name in ("regard", "torch", "tokenizers")},
    }
    plain: dict[str, Any] = json.loads(json.dumps(asked, default=str))
    return plain


def _warn_of_long_lines(notes: list[dict[str, Any]]) -> None:
    """As one process would have that reads all lines."""
    from regard.decoding.long_sources import LongSources

    taken = [note["long"] for note in notes if "long" in note]
    if taken:
        reduce(LongSources.add, taken[1:], LongSources(**taken[0])).warn()
