"""Boxes of images: in the pixels of the image itself, and in those of the size that it is brought to.

A box that reaches over the edge of its image is cut there. One that has no size, has a corner that is no number, or
lies outside of its image is left out, and named.

Shapes: N images · X boxes of all images, one after the other · M boxes of one image · 4: x0, y0, x1, y1
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.box_sources import box_sources
from regard.data.image_cache import Images, ImageSplits, image_splits
from regard.data.images import Placement, natural_order, placement
from regard.data.splits import SHOWN_AS, SPLITS
from regard.errors import RegardError
from regard.settings import BoxData, ImageSettings

Corners = NDArray[np.float32]


@dataclass(frozen=True)
class Boxes:
    """Those of image n are from starts[n] to starts[n + 1]; their classes are indices."""

    corners_X4: Corners
    classes_X: NDArray[np.int64]
    starts: NDArray[np.int64]

    def of(self, image: int) -> tuple[Corners, NDArray[np.int64]]:
        """[M, 4], [M]"""
        rows = slice(self.starts[image], self.starts[image + 1])
        return self.corners_X4[rows], self.classes_X[rows]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def most(self) -> int:
        """Of any image."""
        return int(np.diff(self.starts).max(initial=0))

    @classmethod
    def of_images(cls, corners: Sequence[Corners], classes: Sequence[NDArray[np.int64]]) -> Boxes:
        starts = np.cumsum([0, *map(len, corners)])
        return cls(
            np.concatenate([np.zeros((0, 4), np.float32), *corners]).astype(np.float32),
            np.concatenate([np.zeros(0, np.int64), *classes]),
            starts,
        )


@dataclass(frozen=True)
class BoxedImages:
    """Images with their boxes: as given, for scores, and as a model sees them, for training."""

    images: Images
    given: Boxes  # in the pixels of each image itself
    seen: Boxes  # in those of the size that all are brought to; what was cut away is not there

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class BoxSplits:
    """Train, valid and test; the classes are those of the boxes of training."""

    train: BoxedImages
    valid: BoxedImages
    test: BoxedImages
    classes: list[str]
    skipped: list[str]  # boxes that are left out, and why


def box_splits(data: BoxData, settings: ImageSettings) -> tuple[ImageSplits, BoxSplits]:
    """All images that the settings name, and their boxes, by split."""
    splits = image_splits(data, settings, box_sources)
    skipped: list[str] = []
    read = {split: _read(getattr(splits, split), skipped) for split in SPLITS}
    classes = sorted({label for boxes in read["train"] for label, _ in boxes}, key=natural_order)
    if not classes:
        raise RegardError(
            "There are no boxes to learn from.",
            f"None of the {len(splits.train):,} training images has a box that can be used.",
            "Check the file of boxes, and whether data.box_unit is what its numbers are.",
        )
    parts = {split: _boxed(getattr(splits, split), read[split], classes, settings, SHOWN_AS[split]) for split in SPLITS}
    return splits, BoxSplits(**parts, classes=classes, skipped=skipped)


def boxed_images(
    images: Images, settings: ImageSettings, classes: list[str], split: str = "test"
) -> tuple[BoxedImages, list[str]]:
    """Images with their boxes, which are of these classes; and what was left out."""
    skipped: list[str] = []
    return _boxed(images, _read(images, skipped), classes, settings, split), skipped


def boxes_left_out(skipped: Sequence[str], named: int = 3) -> str:
    more = f"; and {len(skipped) - named:,} more" if len(skipped) > named else ""
    return f"Left out: {len(skipped):,} box{'es' * (len(skipped) > 1)}. {'; '.join(skipped[:named])}{more}".rstrip(".")


def place(corners_M4: Corners, where: Placement) -> Corners:
    """From the pixels of an image to those of the size that it is brought to."""
    return (corners_M4 * np.tile(where.scale, 2) + np.tile(where.shift, 2)).astype(np.float32)


def place_back(corners_M4: Corners, where: Placement) -> Corners:
    return ((corners_M4 - np.tile(where.shift, 2)) / np.tile(where.scale, 2)).astype(np.float32)


def cut_at_edges(corners_M4: Corners, width: float, height: float) -> Corners:
    return corners_M4.clip(0, np.array([width, height, width, height], np.float32))


# ---------------------------------------------------------------- reading what is attached


LabelledBox = tuple[str, list[float]]


def _read(images: Images, skipped: list[str]) -> list[list[LabelledBox]]:
    """The usable boxes of every image, in its own pixels."""
    assert images.attached is not None and images.sizes_N2 is not None
    read = []
    for name, text, (width, height) in zip(images.names, images.attached, images.sizes_N2.tolist(), strict=True):
        about = json.loads(text) if text else {"unit": "pixels", "boxes": []}
        unit = (width, height) if about["unit"] == "shares" else (1, 1)
        usable = []
        for number, box in enumerate(about["boxes"], start=1):
            checked = _checked(box, unit, width, height)
            if isinstance(checked, str):
                skipped.append(f"{name}: box {number} {checked}")
            else:
                usable.append(checked)
        read.append(usable)
    return read


def _checked(box: list[Any], unit: tuple[int, int], width: int, height: int) -> LabelledBox | str:
    """A box with its label, cut at the edges; or what is wrong with it."""
    label, corners = str(box[0]).strip() if box and box[0] is not None else "", box[1:]
    if len(corners) != 4 or not all(isinstance(number, int | float) for number in corners):
        return "is not four numbers"
    if not label:
        return "has no label"
    if not all(map(math.isfinite, corners)):
        return "has a corner that is no number"
    x0, y0, x1, y1 = (corner * unit[at % 2] for at, corner in enumerate(corners))
    if x0 >= x1 or y0 >= y1:
        return "has no size"
    x0, x1, y0, y1 = max(x0, 0.0), min(x1, float(width)), max(y0, 0.0), min(y1, float(height))
    return (label, [x0, y0, x1, y1]) if x0 < x1 and y0 < y1 else "lies outside of the image"


def _boxed(
    images: Images, read: list[list[LabelledBox]], classes: list[str], settings: ImageSettings, split: str
) -> BoxedImages:
    number_of = {label: number for number, label in enumerate(classes)}
    unknown = Counter(label for boxes in read for label, _ in boxes if label not in number_of)
    if unknown:
        few = ", ".join(f"'{label}' ({count:,})" for label, count in unknown.most_common(5))
        raise RegardError(
            f"The {split} boxes have classes that training has none of: {few}{' …' * (len(unknown) > 5)}.",
            f"The classes of training are: {', '.join(classes[:20])}{' …' * (len(classes) > 20)}.",
            "Add such boxes to training, take them out here, or lower data.held_out if they were held out.",
        )
    assert images.sizes_N2 is not None
    given, seen, given_classes, seen_classes = [], [], [], []
    for boxes, size in zip(read, images.sizes_N2.tolist(), strict=True):
        corners_M4 = np.array([box for _, box in boxes], np.float32).reshape(-1, 4)
        classes_M = np.array([number_of[label] for label, _ in boxes], np.int64)
        placed_M4 = place(corners_M4, placement((size[0], size[1]), settings))
        placed_M4 = cut_at_edges(placed_M4, settings.width, settings.height)
        there_M = (placed_M4[:, 0] < placed_M4[:, 2]) & (placed_M4[:, 1] < placed_M4[:, 3])
        given.append(corners_M4)
        given_classes.append(classes_M)
        seen.append(placed_M4[there_M])
        seen_classes.append(classes_M[there_M])
    return BoxedImages(images, Boxes.of_images(given, given_classes), Boxes.of_images(seen, seen_classes))
