"""Archives of images: a .tar, plain or compressed, with folders of images or idx files in it.

It is read as a stream and never unpacked to disk, so no name in it can lead anywhere.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self, cast

from regard.data.fingerprints import fingerprint
from regard.data.idx_files import IdxListing, idx_images, is_idx_name
from regard.data.image_entries import Content, Entry, by_folder, shown
from regard.data.images import LARGEST, BadImage, is_image_name
from regard.data.lines import readable
from regard.data.unpack import unpacked
from regard.errors import RegardError

LONGEST_HEADER = 65_536  # bytes of a header's own data, which is read as a whole: a name, or notes beside it
WITH_DATA = (  # the kinds of headers that have some
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


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


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """As a stream, which cannot go back and needs no more memory than a block."""
    with (
        path.open("rb") as raw,
        unpacked(raw, path.stat().st_size, str(path), "gz bz2 xz lzma") as file,
        tarfile.open(fileobj=file, mode="r|", tarinfo=StrictHeader) as archive,
    ):
        yield archive


def is_archive(path: Path) -> bool:
    """Whether a file begins as a .tar does, packed or not."""
    try:
        with opened(path):
            return True
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
        return False


class Archive:
    """Read twice from start to end: first the names, which tell the labels, then the images."""

    def __init__(self, path: Path):
        self.name, self.path = path.name, path

    def fingerprint(self) -> str:
        return fingerprint([self.path])

    @cached_property
    def listing(self) -> tuple[IdxListing, list[tuple[str, ...]]]:
        """The idx files in it, and the names of the images."""
        idx, images = IdxListing(), []
        with readable(self.path):
            for parts, size, file in self._members():
                name = "/".join(parts)
                if is_image_name(parts[-1]):
                    images.append(parts)
                elif size > LARGEST:
                    raise RegardError(
                        f"'{shown(name)}' in '{self.path}' is larger than {LARGEST // 2**20} MB.",
                        "A file in an archive may not be larger.",
                        "Unpack the archive, and name the folder.",
                    )
                else:
                    idx.add(name, file, size)
        return idx, images

    def entries(self) -> list[Entry]:
        idx, images = self.listing
        if idx.images:
            return idx.entries()
        labelled = zip(images, by_folder(images), strict=True)
        return [Entry(shown("/".join(parts)), shown(label), split) for parts, (label, split) in labelled]

    def contents(self) -> Iterator[Content]:
        idx, _ = self.listing
        with_images = {name for name, _ in idx.images}
        with readable(self.path):
            for parts, size, file in self._members():
                name = "/".join(parts)
                if name in with_images:
                    yield from idx_images(unpacked(file, size, name), name)
                elif not with_images and is_image_name(parts[-1]):
                    yield file.read() if size <= LARGEST else BadImage(f"It is larger than {LARGEST // 2**20} MB.")

    def _members(self) -> Iterator[tuple[tuple[str, ...], int, io.BufferedReader]]:
        """The files that may matter: the parts of the name, the size, and the content to read at once."""
        with opened(self.path) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # else the list of them fills the memory
                parts = tuple(part for part in member.name.split("/") if part not in ("", "."))
                hidden = any(part.startswith(".") for part in parts)
                if member.isreg() and parts and not hidden and (is_image_name(parts[-1]) or is_idx_name(parts[-1])):
                    yield parts, member.size, cast(io.BufferedReader, archive.extractfile(member))
