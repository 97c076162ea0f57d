"""Lines in and out, as a Unix filter does it: in order, as soon as they can be had."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TextIO

from regard.errors import RegardError, UsageError
from regard.files import read_small, writing

if TYPE_CHECKING:
    from regard.decoding.long_sources import LongSources

LINES_AT_ONCE = 512  # read, sorted by length and worked on together
LARGEST_TEXT = 2**24  # bytes of a file that is read as a whole
BREAKS = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
ADVICE = "Correct the line, or convert it to UTF-8."


def must_be_a_file(path: Path, why: str = "It was to be read, line by line.") -> None:
    if not path.is_file():
        state = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "is missing"
        raise RegardError(f"The file '{path}' {state}.", why, "Check the path.")


@dataclass(frozen=True)
class LineWork:
    """What a verb makes of lines, however they come: from a file, a pipe, or as one of the parts of a file."""

    write: Callable[[list[str], int], str]  # of lines that are worked on together, and the number of the first, from 0
    long: LongSources | None = None  # remembers the lines that are too long
    read: Callable[[Iterator[str], int], Iterator[str]] = lambda lines, first: lines  # what is in the lines

    def outputs(self, lines: Iterator[str], first: int = 0, live: bool = False) -> Iterator[tuple[int, str]]:
        """How many lines were worked on, and what is written for them."""
        for chunk in chunks(self.read(lines, first), live):
            yield len(chunk), self.write(chunk, first)
            first += len(chunk)


def filter_lines(work: LineWork, files: Sequence[Path], output: Path | None) -> None:
    """All lines of these files, or of standard input, in order."""
    try:
        with destination(output) as out:
            for _, text in work.outputs(input_lines(files), live=not files):
                out.write(text)
                out.flush()
    finally:
        if work.long:
            work.long.warn()


def chunks(lines: Iterator[str], live: bool) -> Iterator[list[str]]:
    """Lines that are worked on together.

    A file comes in large chunks, which are quick to translate, and always the same ones: who is worked on with whom may
    decide about last bits. Live input is taken as far as it is there, up to the same limit: a line typed by a person,
    or written by a slow program, is answered at once.
    """
    ready: Queue[str | BaseException | None] = Queue(maxsize=4 * LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    ended: BaseException | None = None
    while True:
        chunk: list[str] = []
        while len(chunk) < LINES_AT_ONCE and not (live and chunk and ready.empty()):
            item = ready.get()
            if isinstance(item, str):
                chunk.append(item)
                continue
            ended = item or EOFError()
            break
        if chunk:
            yield chunk
        if isinstance(ended, EOFError):
            return
        if ended:
            raise ended


def input_lines(files: Sequence[Path]) -> Iterator[str]:
    """The lines of these files, one after the other; of standard input if there is none."""
    from regard.data.lines import good_lines, read_lines

    for file in files:
        yield from (line for line in read_lines(file, advice=ADVICE) if line is not None)
    if not files:
        # Not sys.stdin: Python cannot exit while a thread waits in it, as after an error in the middle of the input.
        with open(sys.stdin.fileno(), "rb", closefd=False) as stdin:
            yield from good_lines(stdin, "the input", ADVICE)


def all_input() -> str | None:
    """All that comes from a pipe or a file, without the last line end; None on a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RegardError("The input is not valid UTF-8.", f"{error}", "Convert it to UTF-8.") from None


def read_text(path: Path) -> str:
    """A whole file, which is not large, without the last line end."""
    must_be_a_file(path, "It was to be read.")
    try:
        return read_small(path, LARGEST_TEXT).decode("utf-8-sig").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RegardError(f"Cannot read '{path}'.", f"{error}", "Check the file; it is to be text in UTF-8.") from None


def one_line(text: str) -> str:
    """A text without line breaks of its own: one line in, one line out."""
    return " ".join(text.splitlines())


def one_field(text: str) -> str:
    """A text, such as a label, to stand between two tabs: tabs and line breaks of its own are written \\t and \\n."""
    return BREAKS.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


def must_not_replace(output: Path | None, inputs: Iterable[Path | None]) -> None:
    """A clear error if the output is one of the files that are read."""
    for file in filter(None, inputs):
        if output is not None and output.exists() and file.exists() and output.samefile(file):
            raise UsageError(
                f"'{output}' would be overwritten.", "It is one of the files to read.", "Name another with -o FILE."
            )


def destination(output: Path | None) -> Any:
    """Standard output, or a file that appears when it is complete."""
    if output is None:
        return nullcontext(sys.stdout)
    return _WholeFile(output)


class _WholeFile:
    """A file that appears under its name only when it is finished. A pipe or a device is written to as it is."""

    def __init__(self, path: Path):
        self.path = path.resolve()  # a link stays a link
        self.special = self.path.exists() and not self.path.is_file()
        self.temporary = self.path if self.special else self.path.with_name(f".{self.path.name}.tmp")

    def __enter__(self) -> TextIO:
        with writing(self.path):
            if self.path.is_dir():
                raise IsADirectoryError("it is a folder")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.temporary.open("w", encoding="utf-8")
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            with writing(self.path, "Free some space, or choose another path."):
                self.file.close()
                if kind is None and not self.special:
                    self.temporary.replace(self.path)
        finally:
            if not self.special:
                self.temporary.unlink(missing_ok=True)
