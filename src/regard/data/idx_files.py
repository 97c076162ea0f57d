"""idx files, as MNIST comes in: images in one file, their labels in another beside it; plain or gzipped.

    00 00 08 03 · count · height · width · bytes …                          train-images-idx3-ubyte
    00 00 08 04 · count · height · width · 1 or 3 · bytes …                 train-images-idx4-ubyte
    00 00 08 01 · count · bytes …                                           train-labels-idx1-ubyte

Every number in the header has four bytes, the largest first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.data.fingerprints import fingerprint
from regard.data.image_entries import Content, Entry, by_file, is_division, shown
from regard.data.images import most_pixels
from regard.data.lines import readable
from regard.data.unpack import FREE, most_unpacked, too_much, unpacked
from regard.errors import RegardError

MANY = 1_000_000  # images; of more, each takes at least a byte of its file


NAMES = [str(label) for label in range(256)]


def is_idx_name(name: str) -> bool:
    return re.search(r"idx[134](-ubyte)?(\.gz)?$", name) is not None


def idx_shape(file: BinaryIO, name: str) -> tuple[int, ...]:
    """The header: two zeros, the type (8: bytes), the number of dimensions, and each of them; big-endian."""
    magic = file.read(4)
    dimensions = magic[3] if len(magic) == 4 else 0
    sizes = file.read(4 * dimensions)
    if magic[:3] != b"\0\0\x08" or dimensions not in (1, 3, 4) or len(sizes) < 4 * dimensions:
        raise RegardError(
            f"'{shown(name)}' is not an idx file of bytes.",
            f"It starts with {magic.hex(' ') or 'nothing'}; images start with 00 00 08 03, labels with 00 00 08 01.",
            "Get the file again, or name another.",
        )
    return tuple(int(size) for size in np.frombuffer(sizes, ">u4"))


def idx_images(file: BinaryIO, name: str) -> Iterator[NDArray[np.uint8]]:
    """The images one by one, [h, w] or [h, w, C]."""
    count, *shape = idx_shape(file, name)
    for number in range(count):
        raw = file.read(math.prod(shape))
        if len(raw) < math.prod(shape):
            raise _cut_short(name, count, number)
        yield np.frombuffer(raw, np.uint8).reshape(shape)
    file.read(1)  # at its end, a .gz is checked


def _cut_short(name: str, count: int, number: int) -> RegardError:
    return RegardError(
        f"'{shown(name)}' is cut short.",
        f"It should hold {count:,}, but is too short for more than {number:,}.",
        "Get the file again.",
    )


class IdxListing:
    """What some idx files hold: how many images are in which, and the labels of each."""

    def __init__(self) -> None:
        self.images: list[tuple[str, int]] = []
        self.labels: dict[str, bytes] = {}

    def add(self, name: str, packed: BinaryIO, size: int) -> None:
        """One file; `size` is its number of bytes, packed or not."""
        file = unpacked(packed, size, name)
        count, *shape = idx_shape(file, name)
        self._check_claim(name, count, shape, size, most_unpacked(size) if file is not packed else size)
        if not shape:
            raw = file.read(count + 1)[:count]  # at its end, a .gz is checked
            if len(raw) < count:
                raise _cut_short(name, count, len(raw))
            self.labels[name.removesuffix(".gz")] = raw
        elif 0 in shape or shape[2:] not in ([], [1], [3]):
            raise RegardError(
                f"'{shown(name)}' has images of {' x '.join(map(str, shape))}.",
                "An image is height x width, or height x width x 1 or 3 colours.",
                "Write the file again in that order.",
            )
        else:
            self.images.append((name, count))

    def _check_claim(self, name: str, count: int, shape: list[int], size: int, most: int) -> None:
        """What a header says is believed only as far as the file can hold it: nothing is read before."""
        each = math.prod(shape)
        if count * each > most:
            raise too_much(name, size) if most > size else _cut_short(name, count, size // each)
        if count > (max(MANY, size) if shape else FREE):
            raise RegardError(
                f"'{shown(name)}' says that it has {count:,} {'images' if shape else 'labels'}.",
                f"It has {size:,} bytes itself, too few for that many to differ.",
                "Get the file again.",
            )
        if math.prod(shape[:2]) > most_pixels():
            raise RegardError(
                f"'{shown(name)}' has images of {' x '.join(map(str, shape))}.",
                f"An image may have {most_pixels():,} pixels at most.",
                "Make the images smaller.",
            )

    def entries(self) -> list[Entry]:
        splits = [by_file(name) for name, _ in self.images]
        divided = is_division(splits)
        entries = []
        for (name, count), split in zip(self.images, splits, strict=True):
            beside = labels_name(name)
            labels = self.labels.get(beside)
            if labels is not None and len(labels) != count:
                raise RegardError(
                    f"'{shown(name)}' has {count:,} images, but {len(labels):,} labels beside it.",
                    f"Label n in '{shown(beside)}' belongs to image n.",
                    "Get both files again.",
                )
            file, own_split = shown(name.rsplit("/", 1)[-1]), split if divided else ""
            for number in range(count):
                label = NAMES[labels[number]] if labels is not None else ""
                entries.append(Entry(f"{file} #{number}", label, own_split))
        return entries


class IdxFiles:
    """Files of images, and those of their labels."""

    def __init__(self, folder: Path, files: list[Path]):
        self.name = folder.absolute().name
        # Beside its .gz, the file itself is enough.
        self.files = [file for file in files if file.suffix != ".gz" or file.with_suffix("") not in files]

    def fingerprint(self) -> str:
        return fingerprint(self.files, [file.name for file in self.files])

    @cached_property
    def listing(self) -> IdxListing:
        listing = IdxListing()
        for path in self.files:
            with readable(path), path.open("rb") as file:
                listing.add(path.as_posix(), file, path.stat().st_size)
        return listing

    def entries(self) -> list[Entry]:
        if not self.listing.images:
            raise RegardError(
                f"'{self.files[0]}' has labels, but no images.",
                "The images of idx data are in a file of their own, as train-images-idx3-ubyte.",
                "Name that file, or the folder with both.",
            )
        return self.listing.entries()

    def contents(self) -> Iterator[Content]:
        for name, _ in self.listing.images:
            path = Path(name)
            with readable(path), path.open("rb") as raw, unpacked(raw, path.stat().st_size, name) as file:
                yield from idx_images(file, name)


def starts_as_idx(path: Path) -> bool:
    with path.open("rb") as raw, unpacked(raw, path.stat().st_size, str(path)) as file:
        return file.read(4) in (b"\0\0\x08\x03", b"\0\0\x08\x04")


def labels_name(name: str) -> str:
    """train-images-idx3-ubyte.gz → train-labels-idx1-ubyte, in the same folder"""
    folder, slash, file = name.removesuffix(".gz").rpartition("/")
    return folder + slash + re.sub("idx[34]", "idx1", file.replace("images", "labels"))


def labels_looked_for(image: str) -> str:
    """The file that should hold an image's label, by the image's name; "" where it is in no idx file.

    train-images-idx3-ubyte.gz #7 → train-labels-idx1-ubyte
    """
    file = image.rpartition(" #")[0]
    return labels_name(file) if is_idx_name(file) else ""


def labels_beside(path: Path) -> list[Path]:
    """The files that exist of those that may hold the labels."""
    name = labels_name(path.name)
    beside = (path.with_name(name), path.with_name(f"{name}.gz"))
    return [file for file in beside if file != path and file.is_file()]
