"""What a packed file holds, bounded by its own size: a small file cannot fill the memory, nor keep a machine busy.

    unpacked ≤ max(8 MiB, 100 × packed)         at any moment, from the start of the file on

Text packs to a third of its size, the most repetitive corpora to a fiftieth. What packs to less than a hundredth, and
is not small, was made to do harm. All that is unpacked is read through here, in pieces.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from regard.errors import RegardError

FREE = 8 * 2**20  # bytes that any file may unpack to
RATIO = 100  # how many times its own size a larger one may
XZ_MEMORY = 128 * 2**20  # what an .xz may ask for to be unpacked; one made by `xz -9` asks for half of it
PIECE = 2**16
LARGE_PIECE = 2**20  # where other threads are busy, each piece may have to wait for them


def most_unpacked(size: int, free: int = FREE) -> int:
    """How many bytes a file of this size may unpack to."""
    return max(free, RATIO * size)


def too_much(name: str, size: int) -> RegardError:
    """A file of this size holds, or says that it holds, more than it may."""
    return RegardError(
        f"'{name}' unpacks to more than {RATIO} times its size.",
        f"It has {size:,} bytes. What packs that well, and is larger than {FREE // 2**20} MiB, is taken for an attack, "
        "not for data.",
        "If you trust the file, unpack it yourself and name what was in it.",
    )


def unpacked(file: BinaryIO, size: int, name: str, forms: str = "gz", piece: int = PIECE) -> BinaryIO:
    """What a stream of this many bytes holds, if it begins as one of these forms; else the stream itself."""
    start = file.peek(6)[:6]  # type: ignore[attr-defined]
    form = next((form for form in forms.split() if start.startswith(STARTS[form])), None)
    return file if form is None else cast(BinaryIO, io.BufferedReader(Unpacked(file, size, name, form), piece))


def unpacked_by_name(file: BinaryIO, size: int, path: Path) -> BinaryIO:
    """What a file named .gz or .xz holds, or the file itself; an error when it is read, if the name is wrong."""
    form = path.suffix.removeprefix(".")
    if form not in ("gz", "xz"):
        return file
    return cast(BinaryIO, io.BufferedReader(Unpacked(file, size, str(path), form), PIECE))


class Unpacked(io.RawIOBase):
    """The content of a packed stream, as far as it is in proportion to what was read of the stream."""

    def __init__(self, file: BinaryIO, size: int, name: str, form: str):
        self.file, self.size, self.name = _Counted(file), size, name
        self.given = 0
        self.content: BinaryIO = OPENERS[form](cast(BinaryIO, self.file))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer)
        piece = self.content.read(len(into))
        self.given += len(piece)
        if self.given > most_unpacked(self.file.taken):
            raise too_much(self.name, self.size)
        into[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.content.close()
        self.file.close()
        super().close()


class _Counted(io.RawIOBase):
    """A stream, and how many bytes were taken of it. It cannot be told from a part of an archive otherwise."""

    def __init__(self, file: BinaryIO):
        self.file, self.taken = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.file.read(len(buffer))
        self.taken += len(piece)
        memoryview(buffer)[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.file.close()
        super().close()


class _Xz(io.RawIOBase):
    """As `lzma.LZMAFile`, with a limit to the memory that the file may ask for."""

    def __init__(self, file: BinaryIO):
        self.file, self.unpacker = file, lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer)
        while True:
            packed = b""
            if self.unpacker.eof:  # another stream may follow, after zeros
                packed = (self.unpacker.unused_data or self.file.read(LARGE_PIECE)).lstrip(b"\0")
                while not packed and (following := self.file.read(LARGE_PIECE)):
                    packed = following.lstrip(b"\0")
                if not packed:
                    return 0
                self.unpacker = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            elif self.unpacker.needs_input and not (packed := self.file.read(LARGE_PIECE)):
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            if piece := self.unpacker.decompress(packed, len(into)):
                into[: len(piece)] = piece
                return len(piece)


STARTS = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0", "lzma": b"\x5d\0\0\x80"}
OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    "gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bz2": bz2.BZ2File,
    "xz": _Xz,
    "lzma": _Xz,
}
