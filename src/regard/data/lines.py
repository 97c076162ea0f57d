"""Lines of text, from files, plain or packed, or from standard input; each checked, and numbered for messages."""

from __future__ import annotations

import csv
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TextIO

from regard import console
from regard.data.unpack import unpacked_by_name
from regard.errors import RegardError
from regard.words import counted

LONGEST_LINE = 1_000_000  # bytes; a longer line is not a sentence, and would swamp the tokenizer
LONGEST_RECORD = 4 * LONGEST_LINE  # letters of a record in a .csv, which may have several lines
HALF_A_CHARACTER = "It holds half a character."
SKIP_ADVICE = 'Fix the line; a recipe with data.bad_lines="skip" leaves such lines out.'
NAMED = 3  # bad lines of a file
PACKED = (".gz", ".xz")


class Line(NamedTuple):
    number: int
    text: str  # without its line end
    problem: str = ""  # why the line cannot be used; then the text is empty


@dataclass
class _OfFile:
    """The bad lines of one file: how many, and what is wrong with the first few."""

    unit: str
    count: int = 0
    last: int = 0
    named: list[str] = field(default_factory=list)


@dataclass
class Skipped:
    """Bad lines that are left out, by file."""

    files: dict[Path, _OfFile] = field(default_factory=dict)

    def note(self, path: Path, number: int, why: str, unit: str = "line") -> None:
        bad = self.files.setdefault(path, _OfFile(unit))
        if number != bad.last:  # a line may hold several samples
            bad.count, bad.last = bad.count + 1, number
            if bad.count <= NAMED:
                bad.named.append(f"{unit} {number:,}: {why.rstrip('.')}")

    def add(self, other: Skipped) -> None:
        """What was found elsewhere. A file that both have read, as where it is divided, counts once."""
        self.files |= other.files

    @property
    def total(self) -> int:
        return sum(bad.count for bad in self.files.values())

    def told(self) -> list[str]:
        """A sentence on each file."""
        return [
            f"{counted(bad.count, bad.unit)} of '{path}' {'are' if bad.count > 1 else 'is'} left out: "
            f"{'; '.join(bad.named)}{'; …' if bad.count > NAMED else '.'}"
            for path, bad in self.files.items()
        ]

    def warn(self) -> None:
        for sentence in self.told():
            console.warn(sentence)


class LineSource(Protocol):
    """A split that is read from files, line by line."""

    @property
    def files(self) -> tuple[Path, ...]: ...

    @property
    def skips(self) -> bool:
        """Whether bad lines are left out."""

    def read(self, skipped: Skipped) -> Iterator[Any]:
        """Every sample; what cannot be one is noted."""


def skipped_lines(sources: Iterable[LineSource]) -> Skipped:
    """The bad lines of all files that these are read from; each file is read once."""
    found, seen = Skipped(), set[Path]()
    for source in sources:
        if source.skips and not set(source.files) <= seen:
            skipped = Skipped()
            for _ in source.read(skipped):
                pass
            found.add(skipped)
            seen.update(source.files)
    return found


def read_lines(
    path: Path, bad_lines: str = "error", advice: str = SKIP_ADVICE, skipped: Skipped | None = None
) -> Iterator[str | None]:
    """Lines without their line ends; None for a bad line that is to be skipped, which is noted in `skipped`."""
    with readable(path), open_file(path) as file:
        for line in numbered_lines(file):
            if line.problem:
                bad_line(path, line.number, line.problem, bad_lines, skipped, advice)
            yield None if line.problem else line.text


def bad_line(
    path: Path,
    number: int,
    why: str,
    bad_lines: str,
    skipped: Skipped | None = None,
    advice: str = SKIP_ADVICE,
    unit: str = "line",
) -> None:
    """An error; or noted, where bad lines are to be skipped."""
    if bad_lines == "error":
        raise RegardError(f"{unit.capitalize()} {number:,} of '{path}' cannot be used.", why, advice)
    if skipped is not None:
        skipped.note(path, number, why, unit)


def good_lines(file: BinaryIO, name: str, advice: str) -> Iterator[str]:
    """Lines of a stream that messages call `name`; a bad one is an error."""
    for line in numbered_lines(file):
        if line.problem:
            raise RegardError(f"Line {line.number:,} of {name} cannot be used.", line.problem, advice)
        yield line.text


def numbered_lines(
    file: BinaryIO, encoding: str = "utf-8", longest: int = LONGEST_LINE, before: int = 0
) -> Iterator[Line]:
    """Every line, ended by a line feed alone. A byte order mark is not part of the first.

    `before`: lines of the file that were read already.
    """
    number = before
    while raw := file.readline(longest + 1):
        number += 1
        if len(raw) > longest:
            while not raw.endswith(b"\n") and (rest := file.readline(longest)):
                raw = rest
            yield Line(number, "", f"It is longer than {longest:,} bytes.")
            continue
        try:
            text = raw.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
        except UnicodeDecodeError as error:
            yield Line(number, "", f"It is not valid UTF-8: {error.reason} at byte {error.start}.")
        else:
            yield Line(number, text.rstrip("\r\n"))


class CsvLines:
    """The lines of a file for `csv.reader`, which takes one of any length, and any number of lines for a record."""

    def __init__(self, file: TextIO):
        self.file, self.number, self.record = file, 0, 0

    def __iter__(self) -> CsvLines:
        return self

    def __next__(self) -> str:
        line = self.file.readline(LONGEST_RECORD + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.record += len(line)
        if self.record > LONGEST_RECORD:
            while line and not line.endswith(("\n", "\r")):
                line = self.file.readline(LONGEST_RECORD)
            raise csv.Error(f"it is longer than {LONGEST_RECORD:,} letters")
        return line

    def begin(self) -> int:
        """The number of the line that the next record starts on."""
        self.record = 0
        return self.number + 1


def wrong_columns(count: int, columns: Sequence[int]) -> str:
    """What is wrong with a line that has too few columns for these."""
    wanted = [*map(str, columns)]
    listed = " and ".join([", ".join(wanted[:-1]), wanted[-1]]) if wanted[1:] else wanted[0]
    return (
        f"It has {counted(count, 'column')}; column{'s' * (len(wanted) > 1)} {listed} "
        f"{'are' if len(wanted) > 1 else 'is'} wanted, counted from 0 and separated by tabs."
    )


def open_file(path: Path) -> BinaryIO:
    """The content of a file; of one that ends in .gz or .xz, what is packed in it."""
    return unpacked_by_name(path.open("rb"), path.stat().st_size, path)


def encodable(*texts: str) -> bool:
    """Whether these can be written as UTF-8: JSON and terminals may give half a character (a lone surrogate)."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def ending_of(path: Path) -> str:
    """How the name of a file ends, however it is packed: .tsv of a.tsv.gz."""
    return path.with_suffix("").suffix if path.suffix in PACKED else path.suffix


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Failing to read becomes an error that says which file."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise RegardError(
            f"Cannot read '{path}'.",
            f"{error}",
            "Check the file and its permissions; a .gz or an archive must be whole.",
        ) from None
