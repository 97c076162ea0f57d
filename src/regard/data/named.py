"""What the settings name: the splits in words, and a file or folder, with what is wrong where it is not there."""

from __future__ import annotations

from pathlib import Path

from regard.errors import RegardError, UsageError

SHOWN_AS = {"train": "training", "valid": "validation", "test": "test"}  # `data.valid` is the validation data


def named_path(listed: str | list[str], root: str, key: str, example: str) -> Path:
    """The path of one entry of a plain list, such as `data.train`; `example` is how such a list is written."""
    if not isinstance(listed, str):
        raise UsageError(
            f"{key} holds a list within a list.",
            "It is a plain list of places, read one after the other.",
            f"Write it as {key}={example}.",
        )
    path = Path(root, listed)
    if not path.exists():
        raise RegardError(
            f"The data file '{path}' is missing.",
            f"The recipe looks for it from the folder '{root}'.",
            "Correct the path in [data], or give the folder with --data DIR.",
        )
    return path
