"""Plain text for language models: files, folders, or JSONL with a text field; plain or gzipped.

Text is read in pieces, so it may be larger than memory. A file is one document; so is a line of JSONL.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.settings import DataSettings, FileList
from regard.data.pairs import open_file
from regard.errors import RegardError, UsageError
from regard.files import sha256

PIECE = 1 << 20  # bytes read at a time
ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".md")


@dataclass(frozen=True)
class TextSource:
    paths: tuple[Path, ...]
    field: str

    @classmethod
    def of(cls, listed: str | FileList, settings: DataSettings) -> TextSource:
        """The files named, and those below the folders named, in the order of their names."""
        paths: list[Path] = []
        for name in filter(None, [listed] if isinstance(listed, str) else listed):
            if not isinstance(name, str):
                raise UsageError(
                    "A list of texts holds another list.", "Texts are files or folders.", 'Write ["a.txt", "b.txt"].'
                )
            path = Path(settings.root, name)
            if path.is_dir():
                paths += sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(ENDINGS))
            elif path.is_file():
                paths.append(path)
            else:
                raise RegardError(
                    f"The text '{path}' is missing.",
                    f"The recipe looks for it from the folder '{settings.root}'.",
                    "Correct data.text, or give the folder with --data DIR.",
                )
        if not paths:
            raise RegardError(
                "No text is named.",
                f"data.text is empty, or its folder holds no file ending in {', '.join(ENDINGS)}.",
                'Set data.text to a file or a folder, for example data.text="input.txt".',
            )
        return cls(tuple(paths), settings.text_field)

    def pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Pieces of UTF-8 text, cut after a line end where there is one; and whether a document ends there."""
        for path in self.paths:
            try:
                yield from self._lines_of_json(path) if _is_json(path) else self._file(path)
            except (OSError, EOFError, zlib.error) as error:
                raise RegardError(
                    f"Cannot read '{path}'.", f"{error}", "Check the file; a .gz must be whole."
                ) from None

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the text changes, or how it is read."""
        parts = [self.field, *(f"{sha256(path)} {_is_json(path)}" for path in self.paths)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

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

    def _lines_of_json(self, path: Path) -> Iterator[tuple[bytes, bool]]:
        with open_file(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield json.loads(line)[self.field].encode(), True
                except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise RegardError(
                        f"Line {number:,} of '{path}' is not valid JSON.", f"{error}", "Mend the line, or remove it."
                    ) from None
                except (ValueError, KeyError, TypeError, AttributeError):
                    raise RegardError(
                        f"Line {number:,} of '{path}' has no text.",
                        f"It is not a JSON object with a text in the field '{self.field}'.",
                        "Mend the line, or set data.text_field.",
                    ) from None


def _holding(source: TextSource, piece: bytes) -> str:
    """The file that a piece of text comes from."""
    for path in source.paths:
        if any(other == piece for other, _ in TextSource((path,), source.field).pieces()):
            return f"'{path}'"
    return "one of its files"


def _is_json(path: Path) -> bool:
    return ".jsonl" in path.suffixes


def not_utf8(source: TextSource, piece: bytes, error: UnicodeDecodeError) -> RegardError:
    return RegardError(
        f"The text is not valid UTF-8: {_holding(source, piece)}.",
        f"{error.reason} near {piece[max(0, error.start - 20) : error.start + 10]!r}.",
        'Convert it to UTF-8, or read it as bytes: tokenizer.kind="byte" and tokenizer.lowercase=false.',
    )


def _between_characters(raw: bytes) -> int:
    """The last place at which no UTF-8 character is cut in two."""
    place = len(raw)
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte >= 0xC0:  # the first byte of a character of several
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return place if size == back else place - back
        if byte < 0x80:
            return place
    return place
