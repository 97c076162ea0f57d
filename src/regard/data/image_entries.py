"""An image among others: what it is called, its class, and the split it belongs to, all told by names.

A folder, an archive or a set of idx files is divided when it holds `train` beside `test` or `valid`, perhaps all
below one folder. Else the folder an image lies in is its class, and which split it is in is for others to say.
A folder around all others is not a class, even with images lying loose in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.images import BadImage

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "val", "validation"), "valid"),
    **dict.fromkeys(("test", "testing", "t10k"), "test"),
}
OUTSIDE = "outside"  # in a divided source, but in none of its splits


class Entry(NamedTuple):
    """One image of a source: its name there, its class ("" for none), its split ("" where there are none).

    `attached` is what else is known of it, as a text that goes with it through the cache: its boxes, as JSON.
    """

    name: str
    label: str
    split: str
    attached: str = ""


# An image as a file, as the bytes of one, as pixels [h, w] or [h, w, C], or known to be bad.
Content = Path | bytes | NDArray[np.uint8] | BadImage


class NoLabel(BadImage):
    """An image without a label, among others that have one."""


class ImageSource(Protocol):
    """Where images and their labels come from: a folder, an archive, a table …"""

    name: str

    def fingerprint(self) -> str:
        """Changes when the images or their labels change."""

    def entries(self) -> list[Entry]: ...

    def contents(self) -> Iterator[Content]:
        """One for each entry, in the same order."""


def by_folder(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    """The label and the split of each image, from the folders it lies in (the last part is the file itself)."""
    depth, splits = _layout(paths)
    labels = [path[depth] if len(path) > depth + 1 else "" for path in paths]
    return list(zip(labels, splits, strict=True))


def class_folders(paths: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The folders that are classes, each by its path."""
    depth, splits = _layout(paths)
    inside = [path for path, split in zip(paths, splits, strict=True) if split != OUTSIDE]
    return {path[: depth + 1] for path in inside if len(path) > depth + 1}


def _layout(paths: Sequence[tuple[str, ...]]) -> tuple[int, list[str]]:
    """Which part of a path is its class, and the split of each."""
    depth = 0
    while len(folders := {path[depth] for path in paths if len(path) > depth + 1}) == 1:
        depth += 1
    splits = [SPLIT_NAMES.get(path[depth].lower(), OUTSIDE) if len(path) > depth + 1 else OUTSIDE for path in paths]
    if is_division(splits):
        return depth + 1, splits
    if not folders:  # one folder in another, and nowhere several: the outermost that holds an image itself
        depth = max(0, min(map(len, paths), default=0) - 2)
    return depth, [""] * len(paths)


def is_division(splits: Sequence[str]) -> bool:
    return "train" in splits and ("valid" in splits or "test" in splits)


def by_file(name: str) -> str:
    """train-images-idx3-ubyte → train"""
    words = re.split("[-_.]", name.rsplit("/", 1)[-1].lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), OUTSIDE)


def shown(name: str) -> str:
    """A name as it may be printed: a file's name can hold anything."""
    return name if name.isprintable() else "".join(sign if sign.isprintable() else "�" for sign in name)
