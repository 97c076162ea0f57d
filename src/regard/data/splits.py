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
from typing import TypeVar

from regard.errors import RegardError, UsageError

SPLITS = ("train", "valid", "test")
SHOWN_AS = {"train": "training", "valid": "validation", "test": "test"}  # `data.valid` is the validation data

Files = TypeVar("Files")


@dataclass(frozen=True)
class Division:
    """How training data is divided: the splits held out of it, and the share of each."""

    held_out: tuple[str, ...]
    share: float

    def split(self, content: str) -> str:
        """The split that a sample falls into."""
        fraction = hash_fraction(content.encode())
        for number, split in enumerate(self.held_out, start=1):
            if fraction < number * self.share:
                return split
        return "train"


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
