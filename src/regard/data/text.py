"""Running text from files, folders, or JSONL with a text field; plain or gzipped.

Text is read in pieces, so it may be larger than memory. A file is one document; so is a line of JSONL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.data.fingerprints import fingerprint
from regard.data.lines import PACKED, Line, ending_of, numbered_lines, open_file, readable
from regard.data.splits import named_path
from regard.errors import RegardError
from regard.settings import FileList, TextData

PIECE = 1 << 20  # bytes read at a time
LONGEST_DOCUMENT = 1 << 24  # bytes of a line of JSONL, which is in memory as a whole, several times
ENDINGS = (".txt", ".jsonl", ".md")  # also packed: .txt.gz, .txt.xz


def text_source(listed: str | FileList, data: TextData) -> TextSource:
    """The files named, and those below the folders named, in the order of their names."""
    paths: list[Path] = []
    for name in filter(None, [listed] if isinstance(listed, str) else listed):
        path = named_path(name, data.root, "data.text", '["a.txt", "b.txt"]')
        if path.is_dir():
            paths += sorted(_files_below(path))
        else:
            paths.append(path)
    if not paths:
        raise RegardError(
            "No text is named.",
            f"data.text is empty, or its folder holds no file ending in {', '.join(ENDINGS)}.",
            'Set data.text to a file or a folder, for example data.text="input.txt".',
        )
    return TextSource(tuple(paths), data.text_field)


def _files_below(folder: Path) -> Iterator[Path]:
    try:
        yield from (file for file in folder.rglob("*") if ending_of(file) in ENDINGS and file.is_file())
    except OSError as error:
        raise RegardError(
            f"Cannot read the folder '{folder}'.", f"{error}", "Name a folder that holds only text that you may read."
        ) from None


@dataclass(frozen=True)
class TextSource:
    paths: tuple[Path, ...]
    field: str

    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Pieces of UTF-8 text, cut after a line end where there is one; and whether a document ends there."""
        for path in self.paths:
            with readable(path):
                yield from self._json_lines(path) if _is_json(path) else self._file(path)

    @property
    def packed(self) -> bool:
        """Whether any of the files is, so that its size says little."""
        return any(path.suffix in PACKED for path in self.paths)

    def size(self) -> int:
        """In bytes; of .jsonl, with what is around the text. What is packed must be read for it."""
        if self.packed:
            return sum(len(piece) for piece, _ in self.pieces())
        size = 0
        for path in self.paths:
            with readable(path):
                size += path.stat().st_size
        return size

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the text changes, or how it is read."""
        return fingerprint(self.paths, self.field, [_is_json(path) for path in self.paths])

    def _file(self, path: Path) -> Iterator[tuple[bytes, bool]]:
        with open_file(path) as file:
            held = b""
            while block := file.read(PIECE):
                held += block
                # After a line end, or else between two characters.
                cut = held.rfind(b"\n") + 1 or _between_characters(held)
                if held[:cut]:
                    yield held[:cut], False
                held = held[cut:]
            yield held, True

    def _json_lines(self, path: Path) -> Iterator[tuple[bytes, bool]]:
        with open_file(path) as file:
            for line in numbered_lines(file, longest=LONGEST_DOCUMENT):
                if line.problem or line.text.strip():
                    yield self._document(path, line), True

    def _document(self, path: Path, line: Line) -> bytes:
        try:
            record = json.loads(line.text)  # of a bad line, there is no text
        except (ValueError, RecursionError) as error:
            raise RegardError(
                f"Line {line.number:,} of '{path}' is not valid JSON, or too long.",
                line.problem or f"{error}",
                "Fix the line; a longer document fits into several lines, or into a .txt of its own.",
            ) from None
        try:
            text: str = record[self.field]
            return text.encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RegardError(
                f"Line {line.number:,} of '{path}' has no text.",
                f"It is not a JSON object with a text in the field '{self.field}'.",
                "Fix the line, or set data.text_field.",
            ) from None


def not_utf8(source: TextSource, piece: bytes, error: UnicodeDecodeError) -> RegardError:
    return RegardError(
        f"The text is not valid UTF-8: {_file_with(source, piece)}.",
        f"{error.reason} near {piece[max(0, error.start - 20) : error.start + 10]!r}.",
        'Convert it to UTF-8, or read it as bytes: tokenizer.kind="byte" and tokenizer.lowercase=false.',
    )


def _file_with(source: TextSource, piece: bytes) -> str:
    """The file that a piece of text comes from."""
    for path in source.paths:
        if any(other == piece for other, _ in TextSource((path,), source.field).pieces()):
            return f"'{path}'"
    return "one of its files"


def _is_json(path: Path) -> bool:
    return ending_of(path) == ".jsonl"


def _between_characters(raw: bytes) -> int:
    """The last position at which no UTF-8 character is cut in two."""
    end = len(raw)
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:  # the first byte of a character of several
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return end if size == back else end - back
        if byte < 0x80:
            return end
    return end
