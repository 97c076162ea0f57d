"""Lines of text, from files, plain or gzipped, or from standard input; each checked, and numbered for messages."""

from __future__ import annotations

import csv
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from regard.data.unpack import gunzipped
from regard.errors import RegardError

LONGEST_LINE = 1_000_000  # bytes; a longer line is not a sentence, and would swamp the tokenizer
LONGEST_RECORD = 4 * LONGEST_LINE  # letters of a record in a .csv, which may have several lines
SKIP_ADVICE = 'Fix the line; a recipe with data.bad_lines="skip" leaves such lines out.'


class Line(NamedTuple):
    number: int
    text: str  # without its line end
    problem: str = ""  # why the line cannot be used; then the text is empty


def read_lines(path: Path, bad_lines: str = "error", advice: str = SKIP_ADVICE) -> Iterator[str | None]:
    """Lines without their line ends; None for a bad line that is to be skipped."""
    with readable(path), open_file(path) as file:
        yield from good_lines(file, f"'{path}'", bad_lines, advice)


def good_lines(file: BinaryIO, name: str, bad_lines: str = "error", advice: str = SKIP_ADVICE) -> Iterator[str | None]:
    """Lines of a stream that messages call `name`; a bad one is an error, or None where it is to be skipped."""
    for line in numbered_lines(file):
        if line.problem and bad_lines == "error":
            raise RegardError(f"Line {line.number:,} of {name} cannot be used.", line.problem, advice)
        yield None if line.problem else line.text


def numbered_lines(file: BinaryIO, encoding: str = "utf-8", longest: int = LONGEST_LINE) -> Iterator[Line]:
    """Every line, ended by a line feed alone. A byte order mark is not part of the first."""
    number = 0
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


def open_file(path: Path) -> BinaryIO:
    file = path.open("rb")
    return gunzipped(file, path.stat().st_size, str(path)) if path.suffix == ".gz" else file


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
