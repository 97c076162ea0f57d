"""Archives of images: a .tar, plain or compressed, with folders of images or idx files in it.

It is read as a stream and never unpacked to disk, so no name in it can lead anywhere.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Self, cast

from regard.data.fingerprints import fingerprint
from regard.data.idx_files import IdxListing, idx_images, is_idx_name, unpacked
from regard.data.image_entries import Content, Entry, by_folder, shown
from regard.data.images import LARGEST, BadImage, is_image_name
from regard.data.lines import readable
from regard.errors import RegardError


class StrictHeader(tarfile.TarInfo):
    """A damaged header within an archive is an error, not its end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"{error}") from None


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
                    idx.add(name, unpacked(file), size)
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
                    yield from idx_images(unpacked(file), name)
                elif not with_images and is_image_name(parts[-1]):
                    yield file.read() if size <= LARGEST else BadImage(f"It is larger than {LARGEST // 2**20} MB.")

    def _members(self) -> Iterator[tuple[tuple[str, ...], int, io.BufferedReader]]:
        """The files that may matter: the parts of the name, the size, and the content to read at once."""
        with tarfile.open(self.path, "r|*", tarinfo=StrictHeader) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # else the list of them fills the memory
                parts = tuple(part for part in member.name.split("/") if part not in ("", "."))
                hidden = any(part.startswith(".") for part in parts)
                if member.isreg() and parts and not hidden and (is_image_name(parts[-1]) or is_idx_name(parts[-1])):
                    yield parts, member.size, cast(io.BufferedReader, archive.extractfile(member))
