"""Archives of images: a .tar, plain or compressed, with folders of images or idx files in it.

It is read as a stream and never unpacked to disk, so no name in it can lead anywhere. Most headers of an archive are
alike, and are read here; whatever is unusual is left to `tarfile`.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self, cast

from regard.data.fingerprints import fingerprint
from regard.data.idx_files import IdxListing, idx_images, is_idx_name
from regard.data.image_entries import Content, Entry, by_folder, shown
from regard.data.images import LARGEST, BadImage, is_image_name
from regard.data.lines import readable
from regard.data.unpack import LARGE_PIECE, PIECE, unpacked
from regard.errors import RegardError

LONGEST_HEADER = 65_536  # bytes of a header's own data, which is read as a whole: a name, or notes beside it
WITH_DATA = (  # the kinds of headers that have some
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
BLOCK = tarfile.BLOCKSIZE
# mode, user, group; size; time; checksum; and that it is a file
PLAIN = re.compile(rb"(?:[0-7]{6}[0-7 ]\0){3}([0-7]{11})[\0 ][0-7]{11}[\0 ]([0-7]{6})[\0 ]{2}0")
NO_DEVICE = re.compile(rb"(?:[0-7]{6}[0-7 ]\0|\0{8}){2}\0")  # and no further part of the name
KEPT = 2**28  # bytes of images that are kept from listing an archive until they are decoded


class StrictHeader(tarfile.TarInfo):
    """A damaged header within an archive is an error, not its end; so is one that would fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in WITH_DATA and header.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes, where {LONGEST_HEADER:,} are the limit")
        if header.size < 0:
            raise tarfile.ReadError("a header with a size below zero")
        return header

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"{error}") from None


class Forward:
    """A stream as `tarfile` needs it: it tells where it is, and skips forward by reading."""

    def __init__(self, file: BinaryIO):
        self.file, self.at, self.unread = file, 0, b""

    def tell(self) -> int:
        return self.at

    def read(self, size: int) -> bytes:
        """That many bytes, fewer only at the end."""
        content, self.unread = self.unread, b""
        if len(content) < size:
            content += self.file.read(size - len(content))
        self.at += len(content)
        return content

    def give_back(self, block: bytes) -> None:
        """What was just read is read again next; at most a block, which is the least that `tarfile` asks for."""
        self.unread = block
        self.at -= len(block)

    def seek(self, to: int) -> int:
        if to < self.at:
            raise tarfile.StreamError("seeking backwards is not allowed")
        while self.at < to and self.read(min(to - self.at, PIECE)):
            pass
        return self.at

    def skip_to(self, to: int) -> None:
        """As `seek`, but all that is skipped must be there."""
        if self.seek(to) < to:
            raise tarfile.ReadError("unexpected end of data")


@contextmanager
def opened(path: Path) -> Iterator[tuple[tarfile.TarFile, Forward]]:
    """As a stream, which cannot go back and needs no more memory than a piece."""
    with path.open("rb") as raw, unpacked(raw, path.stat().st_size, str(path), "gz bz2 xz lzma", LARGE_PIECE) as file:
        forward = Forward(file)
        with tarfile.TarFile(fileobj=cast(Any, forward), mode="r", tarinfo=StrictHeader) as archive:
            yield archive, forward


def plain_file(block: bytes) -> tuple[str, int] | None:
    """Name and size of a file from its header, if that is one of the usual form and right; else None."""
    numbers = PLAIN.match(block, 100)
    # Of 256 zeros or more and as many bytes, the sum is below 65,521: then it is all in the low half of adler32.
    if numbers is None or NO_DEVICE.match(block, 329) is None or len(block) < BLOCK or block.count(0) < BLOCK // 2:
        return None
    total = (zlib.adler32(block[156:], zlib.adler32(block[:148])) & 0xFFFF) - 1 + 8 * ord(" ")
    name, _, _ = block[:100].partition(b"\0")
    if total != int(numbers[2], 8) or not name.isascii():
        return None
    return name.decode("ascii"), int(numbers[1], 8)


class Plain(NamedTuple):
    """The content of a file with a usual header: what comes next."""

    forward: Forward
    size: int

    def read(self) -> bytes:
        content = self.forward.read(self.size)
        if len(content) < self.size:
            raise tarfile.ReadError("unexpected end of data")
        return content


class Member(NamedTuple):
    """A file in an archive that may matter: the parts of its name, its size, and the content, to be read at once."""

    parts: tuple[str, ...]
    size: int
    file: Plain | io.BufferedReader


def members(path: Path) -> Iterator[Member]:
    """Of these, only images can be `Plain`."""
    with opened(path) as (archive, forward):
        while (header := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # else the list of them fills the memory
            parts = _parts(header.name)
            if header.isreg() and parts and (is_image_name(parts[-1]) or is_idx_name(parts[-1])):
                yield Member(parts, header.size, cast(io.BufferedReader, archive.extractfile(header)))
            if not archive.pax_headers:  # which would hold for all files that follow
                forward.skip_to(archive.offset)  # type: ignore[attr-defined]
                yield from _plain_members(forward)
                archive.offset = forward.tell()  # type: ignore[attr-defined]


def _plain_members(forward: Forward) -> Iterator[Member]:
    """The files up to the first unusual header."""
    while (plain := plain_file(block := forward.read(BLOCK))) is not None:
        name, size = plain
        end = forward.at + -(-size // BLOCK) * BLOCK
        parts = _parts(name)
        if parts and is_idx_name(parts[-1]):
            break
        if parts and is_image_name(parts[-1]):
            yield Member(parts, size, Plain(forward, size))
        forward.skip_to(end)
    forward.give_back(block)


def _parts(name: str) -> tuple[str, ...]:
    """Of a name; none if any of them is hidden."""
    parts = tuple([part for part in name.split("/") if part not in ("", ".")])
    return () if any(part[0] == "." for part in parts) else parts


def texts_in(path: Path, most: int) -> Iterator[tuple[str, bytes]]:
    """The names of the .txt files in an archive, none hidden, and what each begins with: at most so many bytes."""
    with readable(path), opened(path) as (archive, _):
        while (header := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # as above
            parts = _parts(header.name)
            if header.isreg() and parts and parts[-1].endswith(".txt"):
                yield shown("/".join(parts)), cast(io.BufferedReader, archive.extractfile(header)).read(most)


def is_archive(path: Path) -> bool:
    """Whether a file begins as a .tar does, packed or not."""
    try:
        with opened(path):
            return True
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
        return False


class Archive:
    """Listed first, since all names together tell the labels; the images that were passed then are kept.

    What does not fit into the memory set aside for that is read in a second pass.
    """

    def __init__(self, path: Path):
        self.name, self.path = path.name, path
        self.kept: deque[bytes | BadImage] = deque()  # the first images, until they are asked for

    def fingerprint(self) -> str:
        return fingerprint([self.path])

    @cached_property
    def listing(self) -> tuple[IdxListing, list[tuple[str, ...]]]:
        """The idx files in it, and the names of the images."""
        idx, images, room = IdxListing(), [], KEPT
        with readable(self.path):
            for parts, size, file in members(self.path):
                name = "/".join(parts)
                if is_image_name(parts[-1]):
                    images.append(parts)
                    room -= min(size, LARGEST)
                    if room >= 0:
                        self.kept.append(_content(size, file))
                elif size > LARGEST:
                    raise RegardError(
                        f"'{shown(name)}' in '{self.path}' is larger than {LARGEST // 2**20} MB.",
                        "A file in an archive may not be larger.",
                        "Unpack the archive, and name the folder.",
                    )
                else:
                    idx.add(name, cast(io.BufferedReader, file), size)
        if idx.images:
            self.kept.clear()
        return idx, images

    def entries(self) -> list[Entry]:
        idx, images = self.listing
        if idx.images:
            return idx.entries()
        labelled = zip(images, by_folder(images), strict=True)
        return [Entry(shown("/".join(parts)), shown(label), split) for parts, (label, split) in labelled]

    def contents(self) -> Iterator[Content]:
        idx, images = self.listing
        given = 0
        while self.kept:
            given += 1
            yield self.kept.popleft()
        with_images = {name for name, _ in idx.images}
        if not with_images and given == len(images):
            return
        with readable(self.path):
            for parts, size, file in members(self.path):
                name = "/".join(parts)
                if name in with_images:
                    yield from idx_images(unpacked(cast(io.BufferedReader, file), size, name), name)
                elif not with_images and is_image_name(parts[-1]):
                    given -= 1
                    if given < 0:
                        yield _content(size, file)


def _content(size: int, file: Plain | io.BufferedReader) -> bytes | BadImage:
    return file.read() if size <= LARGEST else BadImage(f"It is larger than {LARGEST // 2**20} MB.")
