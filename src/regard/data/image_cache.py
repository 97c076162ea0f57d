"""Images decoded once, and mapped into memory when they are used again.

A cache folder holds all images of the sources named for a split, brought to one size: their pixels in one flat file,
and beside it labels, names, own sizes, what is attached to each (such as its boxes), and a hash fraction in [0, 1), of
its file, or of its pixels as given:

    valid: fraction < v        test: v ≤ fraction < v + t        train: the rest

So equal images are never in two splits, and neither further images nor another size move any. Training images lie in
the order of their fractions: any share held out of them is a slice of the mapped file, neither copied nor decoded
again.

Shapes: N images · H height · W width · C channels (1 grey, 3 colours)
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.console import progress, warn
from regard.data.cache import cache_folder, cached
from regard.data.idx_files import labels_looked_for
from regard.data.image_decoding import Read
from regard.data.image_entries import Entry, ImageSource, NoLabel, shown
from regard.data.image_sources import image_sources, images_for, open_source
from regard.data.image_workers import MOST_BYTES, decoded_in_order
from regard.data.images import BadImage, Form, natural_order
from regard.data.splits import SHOWN_AS, SPLITS
from regard.errors import RegardError
from regard.settings import ImageData, ImageSettings, PictureData

FORMAT = "images-5"
NAMED = 3  # images named in a message


@dataclass(frozen=True)
class Images:
    """Images of one size; image i has the label i, an index into the classes, or -1 for none.

    Those that were read also have their own widths and heights, and what was attached to them.
    """

    pixels_NHWC: NDArray[np.uint8]
    labels_N: NDArray[np.int64]
    names: list[str]
    sizes_N2: NDArray[np.int64] | None = None
    attached: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, numbers: NDArray[np.int64] | Sequence[int] | slice) -> Images:
        """These images, in this order: mapped as before for a slice, else copied."""
        at = numbers if isinstance(numbers, slice) else np.asarray(numbers, np.int64)
        which = range(len(self))[at] if isinstance(at, slice) else at.tolist()
        return Images(
            self.pixels_NHWC[at],
            self.labels_N[at],
            [self.names[number] for number in which],
            self.sizes_N2[at] if self.sizes_N2 is not None else None,
            [self.attached[number] for number in which] if self.attached is not None else None,
        )

    def evenly(self, most: int) -> Images:
        """At most this many of the images, at equal distances."""
        return self if len(self) <= most else self.take(np.linspace(0, len(self) - 1, most).astype(np.int64))


@dataclass(frozen=True)
class ImageSplits:
    """Train, valid and test; the classes are those of the training images."""

    train: Images
    valid: Images
    test: Images
    classes: list[str]
    skipped: list[str]
    fingerprints: dict[str, str]  # by split; each changes with the images, their order or their labels


SourcesOf = Callable[[Any, str], list[ImageSource]]  # what the settings name for a split


def image_splits(data: PictureData, settings: ImageSettings, sources_of: SourcesOf = image_sources) -> ImageSplits:
    """All images that the settings name, by split; what is not named is held out of train."""
    named = {split: sources_of(data, split) for split in SPLITS}
    whole = _decoded(named["train"], "train", data, settings)
    parts = {split: (whole, whole.slices[split]) for split in SPLITS}
    skipped = list(whole.skipped)
    for split in ("valid", "test"):
        if named[split]:
            given = _decoded(named[split], split, data, settings)
            parts[split] = (given, given.slices[split])
            skipped += given.skipped
    parts |= _held_out(whole, [split for split in ("valid", "test") if _size(parts[split][1]) == 0], data)
    if _size(parts["train"][1]) == 0:
        raise RegardError(
            "There are no training images.",
            f"All {len(whole.labels_N):,} images of the training data are for validation or test.",
            "Name more images, or lower data.held_out and data.held_out_test.",
        )
    classes = sorted({label for label in whole.labels(parts["train"][1]) if label}, key=natural_order)
    splits = {split: part.images(rows, classes, SHOWN_AS[split]) for split, (part, rows) in parts.items()}
    fingerprints = {split: part.fingerprint(rows) for split, (part, rows) in parts.items()}
    return ImageSplits(**splits, classes=classes, skipped=skipped, fingerprints=fingerprints)


def labelled_images(paths: Sequence[Path], data: ImageData, settings: ImageSettings, classes: list[str]) -> Images:
    """Other images to test on, in any of the forms; their labels must be among these classes."""
    return images_to_test([open_source(path, data) for path in paths], data, settings, classes)


def images_to_test(
    sources: Sequence[ImageSource], data: PictureData, settings: ImageSettings, classes: list[str]
) -> Images:
    """All images of these sources, or those of their test; where classes are given, every one with one of them."""
    given = _decoded(sources, "test", data, settings)
    if given.skipped:
        warn(f"{left_out(given.skipped)}.")
    images = given.images(given.slices["test"], classes, "test")
    if classes:
        _must_have_labels([images])
    return images


def left_out(skipped: Sequence[str]) -> str:
    """How many images are not used, and why, for some of them."""
    more = f"; and {len(skipped) - NAMED:,} more" if len(skipped) > NAMED else ""
    return f"Left out: {len(skipped):,} image{'s' * (len(skipped) > 1)}. {'; '.join(skipped[:NAMED])}{more}".rstrip(".")


def must_have_classes(splits: ImageSplits) -> None:
    """A classifier needs a label for every image, and two classes or more."""
    _must_have_labels([splits.train, splits.valid, splits.test])
    if len(splits.classes) == 1:
        raise RegardError(
            f"All {len(splits.train):,} training images are of the class '{splits.classes[0]}'.",
            "A classifier needs two classes or more.",
            "Check the folders: each class has one of its own.",
        )


def _must_have_labels(parts: Sequence[Images]) -> None:
    without = [images.names[number] for images in parts for number in np.flatnonzero(images.labels_N < 0)]
    if without:
        few = ", ".join(f"'{name}'" for name in without[:NAMED]) + " …" * (len(without) > NAMED)
        file = labels_looked_for(without[0])
        raise RegardError(
            f"{len(without):,} image{'s have' if len(without) > 1 else ' has'} no label: {few}.",
            f"There is no '{file}' (or .gz) beside the file of the images."
            if file
            else "The label is the folder an image is in, or is given in the .csv (data.label_field).",
            "Put the file there." if file else "Put the images into one folder for each class, or name their labels.",
        )


def _size(rows: slice) -> int:
    return int(rows.stop - rows.start)


# ---------------------------------------------------------------- decoded images


@dataclass(frozen=True)
class Decoded:
    """A cache folder: train, valid and test one after the other."""

    pixels_NHWC: NDArray[np.uint8]
    labels_N: NDArray[np.int64]  # into `label_names`
    fractions_N: NDArray[np.float64]
    sizes_N2: NDArray[np.int64]
    names: list[str]
    attached: list[str]
    label_names: list[str]
    skipped: list[str]
    slices: dict[str, slice]

    def labels(self, rows: slice) -> Counter[str]:
        """How many images have which label."""
        numbers, counts = np.unique(self.labels_N[rows], return_counts=True)
        return Counter({self.label_names[number]: int(count) for number, count in zip(numbers, counts, strict=True)})

    def fingerprint(self, rows: slice) -> str:
        """Of the files' contents, which the fractions are hashes of, of the labels by name, and what is attached."""
        digest = hashlib.sha256(self.fractions_N[rows].tobytes())
        digest.update(json.dumps([self.label_names[number] for number in self.labels_N[rows]]).encode())
        if any(self.attached[rows]):
            digest.update(json.dumps(self.attached[rows]).encode())
        return digest.hexdigest()

    def images(self, rows: slice, classes: list[str], split: str) -> Images:
        """A part of these images, with labels by these classes; without classes, labels count for nothing."""
        unknown = {label: count for label, count in self.labels(rows).items() if label and label not in classes}
        if unknown and classes:
            raise _unknown(unknown, classes, split)
        number_of = {label: number for number, label in enumerate(classes)}
        by_class = np.array([number_of.get(label, -1) for label in self.label_names], np.int64)
        labels_N = by_class[self.labels_N[rows]]
        return Images(self.pixels_NHWC[rows], labels_N, self.names[rows], self.sizes_N2[rows], self.attached[rows])


def _unknown(unknown: dict[str, int], classes: list[str], split: str) -> RegardError:
    few = [f"'{label}' ({count:,} image{'s' * (count > 1)})" for label, count in unknown.items()][:5]
    many = f"{len(unknown)} classes" if len(unknown) > 1 else "a class"
    return RegardError(
        f"The {split} images have {many} that training has none of: {', '.join(few)}{' …' * (len(unknown) > 5)}.",
        f"The classes of training are: {', '.join(classes[:20])}{' …' * (len(classes) > 20)}.",
        "Add such images to training, take them out here, or lower data.held_out if they were held out.",
    )


def _held_out(whole: Decoded, missing: list[str], data: PictureData) -> dict[str, tuple[Decoded, slice]]:
    """Train, and each split that is missing, as slices of train."""
    shares = {"valid": data.held_out, "test": data.held_out_test or data.held_out}
    train = whole.slices["train"]
    fractions_N = whole.fractions_N[train]
    starts, share = [train.start], 0.0
    for split in missing:
        share += shares[split]
        end = train.start + int(np.searchsorted(fractions_N, share))
        # Of few images at least one, as long as most are left to train on.
        least = starts[-1] + 1 if shares[split] > 0 and len(fractions_N) > 2 * len(missing) else starts[-1]
        starts.append(max(end, least))
    parts = {split: slice(*bounds) for split, *bounds in zip(missing, starts[:-1], starts[1:], strict=True)}
    return {split: (whole, rows) for split, rows in (parts | {"train": slice(starts[-1], train.stop)}).items()}


# ---------------------------------------------------------------- the cache


def _decoded(sources: Sequence[ImageSource], split: str, data: PictureData, settings: ImageSettings) -> Decoded:
    """The images of these sources: from the cache, or else decoded now."""
    key = [FORMAT, split, repr((settings.height, settings.width, settings.colour, settings.fit))]
    for source in sources:
        key += [source.name, source.fingerprint()]
    folder = cached(cache_folder(data.cache), key, lambda folder: _write(folder, sources, split, settings))
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    shape = (sum(about["counts"]), settings.height, settings.width, settings.channels)
    ends = np.cumsum([0, *about["counts"]]).tolist()
    return Decoded(
        np.memmap(folder / "pixels", np.uint8, "r", shape=shape),
        np.fromfile(folder / "labels", np.int64),
        np.fromfile(folder / "fractions", np.float64),
        np.fromfile(folder / "sizes", np.int64).reshape(-1, 2),
        json.loads((folder / "names.json").read_text(encoding="utf-8")),
        json.loads((folder / "attached.json").read_text(encoding="utf-8")),
        about["labels"],
        about["skipped"],
        {name: slice(*bounds) for name, *bounds in zip(SPLITS, ends[:-1], ends[1:], strict=True)},
    )


def _write(folder: Path, sources: Sequence[ImageSource], split: str, settings: ImageSettings) -> None:
    """Decodes all images into one file as they come, then orders them."""
    total, images = images_for(sources, split)
    entries: list[Entry] = []
    read: list[Read] = []
    rows: list[int] = []  # of the file, where they are
    bad: list[tuple[Entry, BadImage]] = []
    unordered = folder / "unordered"
    decoding = decoded_in_order(images, total, Form.of(settings), unordered)
    with closing(decoding), progress(total, "reading images") as show:
        for row, (entry, outcome) in enumerate(decoding):
            if isinstance(outcome, BadImage):
                bad.append((entry, outcome))
            else:
                entries.append(entry)
                read.append(outcome)
                rows.append(row)
            show(row + 1, "")
    if not any(entry.split == split for entry in entries):
        raise _no_images(sources, split, [(entry, why) for entry, why in bad if entry.split == split])
    splits = np.array([SPLITS.index(entry.split) for entry in entries])
    fractions_N = np.array([each.fraction for each in read])
    sizes_N2 = np.array([(each.width, each.height) for each in read], np.int64)
    order = np.lexsort((np.where(splits == 0, fractions_N, 0), splits))  # the last key counts most
    label_names = sorted({entry.label for entry in entries}, key=natural_order)
    number_of = {label: number for number, label in enumerate(label_names)}
    (folder / "labels").write_bytes(np.array([number_of[entries[at].label] for at in order], np.int64).tobytes())
    (folder / "fractions").write_bytes(fractions_N[order].tobytes())
    (folder / "sizes").write_bytes(sizes_N2[order].tobytes())
    (folder / "names.json").write_text(json.dumps([entries[at].name for at in order]), encoding="utf-8")
    (folder / "attached.json").write_text(json.dumps([entries[at].attached for at in order]), encoding="utf-8")
    skipped = [f"{entry.name}: {why.reason}" for entry, why in bad]
    about = {"counts": np.bincount(splits, minlength=3).tolist(), "labels": label_names, "skipped": skipped}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    _copy_rows(unordered, folder / "pixels", np.array(rows)[order], Form.of(settings).bytes)
    unordered.unlink()


def _copy_rows(source: Path, target: Path, rows_N: NDArray[np.int64], bytes_of_each: int) -> None:
    pixels_NX = np.memmap(source, np.uint8, "r").reshape(-1, bytes_of_each)
    many = max(1, MOST_BYTES // bytes_of_each)
    with target.open("wb") as file:
        for start in range(0, len(rows_N), many):
            file.write(pixels_NX[rows_N[start : start + many]].tobytes())


def _no_images(sources: Sequence[ImageSource], split: str, bad: Sequence[tuple[Entry, BadImage]]) -> RegardError:
    """No image of these sources is left for a split; all that there are, are bad."""
    where = ", ".join(f"'{shown(source.name)}'" for source in sources)
    if bad:
        entry, first = bad[0]
        unlabelled = all(isinstance(why, NoLabel) for _, why in bad)
        lack = "has a label" if unlabelled else "can be used"
        return RegardError(
            f"None of the {len(bad):,} {SHOWN_AS[split]} images in {where} {lack}.",
            f"{entry.name}: {first.reason}",
            "Put them into one folder for each class, or add the file of labels." if unlabelled else "Check the files.",
        )
    return RegardError(f"There are no images in {where}.", "No file in it has a known form.", "Check the file.")
