"""Images named on a command line, some of which may be bad; and where pictures of them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard import console
from regard.errors import RegardError
from regard.words import counted


@dataclass
class BadImages:
    """Those that cannot be read: reported at once, and an error at the end, when all others are done."""

    images: int  # that are named
    bad: int = 0

    def notice(self, name: Path, reason: str) -> None:
        self.bad += 1
        console.warn(f"'{name}' cannot be read: {reason}")

    def must_be_none(self) -> None:
        if self.bad:
            raise RegardError(
                f"{self.bad:,} of {counted(self.images, 'image')} could not be read.",
                "It is named above." if self.bad == 1 else "They are named above.",
                "Repair it, or leave it out." if self.bad == 1 else "Repair them, or leave them out.",
            )


def picture_places(images: Sequence[Path], folder: Path, endings: Sequence[str] = ("",)) -> list[Path]:
    """For each image a PNG in the folder, under its own name; with a number where two would have the same.

    With `endings`, each has several, such as a.png and a-overlay.png; all of them are free, and no image that is read
    is written over.
    """
    taken = {_one_place(image) for image in images}
    places = []
    for image in images:
        stem, number = image.stem, 1
        while taken & (mine := {_one_place(folder / f"{stem}{ending}.png") for ending in endings}):
            number += 1
            stem = f"{image.stem}-{number}"
        taken |= mine
        places.append(folder / f"{stem}.png")
    return places


def _one_place(path: Path) -> str:
    """The same for all names of a file, also where a disk does not tell small letters from large ones."""
    return str(path.resolve()).lower()
