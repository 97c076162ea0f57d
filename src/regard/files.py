"""Files that are complete or not there at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import RegardError


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file, or the list of files in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Under another name first, flushed to disk, then renamed: a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, remedy: str = "Choose a writable path.") -> Iterator[None]:
    """Failing to write becomes an error that says which file."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"Cannot write '{path}'.", f"{error}", remedy) from None


def read_small(path: Path, most: int = 64 * 2**20) -> str:
    """The text of a file that is never large; an OSError also where it is no file, such as a pipe, or endless."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a file")
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(f"{path} is larger than {most // 2**20} MiB")
    return raw.decode("utf-8")
