"""Train, valid and test: what they are called, what they are read from, and how what is not named is held out.

    valid: fraction < v        test: v ≤ fraction < v + t        train: the rest

The fraction of a sample, in [0, 1), is a hash of its content alone: equal samples are never in two splits, and further
samples move none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.settings import PictureData

SPLITS = ("train", "valid", "test")
SHOWN_AS = {"train": "training", "valid": "validation", "test": "test"}  # `data.valid` is the validation data

Files = TypeVar("Files")


class Obstacle(str):
    """Advice that must be followed: as the data is, there can be no training."""


def empty_splits(counts: Mapping[str, int], one: str) -> list[Obstacle]:
    """What is to be said of splits without samples; `one` is what a sample is called."""
    return [
        Obstacle(f"The {SHOWN_AS[split]} data is empty: no {one} is left for it.")
        for split in SPLITS
        if not counts[split]
    ]


def must_not_be_empty(counts: Mapping[str, int], one: str, several: str) -> None:
    """Every split has samples, the test too: that it has none must not be found after the training."""
    for obstacle in empty_splits(counts, one):
        what, _, why = obstacle.partition(": ")
        raise RegardError(
            f"{what}.",
            why[0].upper() + why[1:],
            f"Check the files named in [data]; with few {several}, name files for it or raise data.held_out.",
        )


@dataclass(frozen=True)
class Division:
    """How training data is divided: the splits held out of it, and the share of each."""

    held_out: tuple[str, ...]
    share: float

    def split(self, content: str) -> str:
        """The split that a sample falls into."""
        fraction = hash_fraction(content.encode())
        for split in self.held_out:
            if fraction < self.range_of(split)[1]:
                return split
        return "train"

    def range_of(self, split: str) -> tuple[float, float]:
        """The fractions from the first number on, and below the second, fall into this split."""
        number = len(self.held_out) if split == "train" else self.held_out.index(split)
        return number * self.share, 1.0 if split == "train" else (number + 1) * self.share


def hash_fraction(content: bytes) -> float:
    """A number in [0, 1) that follows from the content."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest()) / 2**48


def divided(named: Mapping[str, Files], share: float) -> dict[str, tuple[Files, Division | None]]:
    """What each split is read from: what is named for it, or else its part of train."""
    missing = tuple(split for split in SPLITS if not named[split])
    division = Division(missing, share)
    return {
        split: (named[split] or named["train"], division if missing and split in ("train", *missing) else None)
        for split in SPLITS
    }


def named_pictures(data: PictureData, split: str, example: str, advice: str) -> list[Path]:
    """The places that the settings name for a split; for train also `data.images`. `advice`: how to name one."""
    listed = [data.images] if split == "train" and data.images else getattr(data, split)
    if split == "train" and not listed:
        raise RegardError(
            "No training data is named.", "The recipe's data.images, data.train and data.sample are empty.", advice
        )
    return [named_path(name, data.root, f"data.{split}", example) for name in listed]


def named_path(listed: str | Sequence[str], root: str, key: str, example: str) -> Path:
    """The path of one entry of a plain list, such as `data.train`; `example` is how such a list is written."""
    if not isinstance(listed, str):
        raise UsageError(
            f"{key} holds a list within a list.",
            "It is a plain list of paths, read one after the other.",
            f"Write it as {key}={example}.",
        )
    path = Path(root, listed)
    if not path.exists():
        raise missing_file(path, root)
    if not path.is_file() and not path.is_dir():
        raise RegardError(
            f"'{path}' is neither a file nor a folder.",
            "A pipe or a device can be read once only, or never ends; data is read several times.",
            "Write it to a file first.",
        )
    return path


def missing_file(path: Path, root: str) -> RegardError:
    return RegardError(
        f"The data file '{path}' is missing.",
        f"The recipe looks for it from the folder '{root}'.",
        "Correct the path in [data], or give the folder with --data DIR.",
    )
