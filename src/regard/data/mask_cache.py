"""Images and their masks, decoded once, and mapped into memory when they are used again.

What is held out follows from a hash of each image's file, as for other images (`data/image_cache.py`).

Shapes: N images · H × W pixels · C channels · V numbers that a mask may have (256) · K classes
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.console import progress, warn
from regard.data.cache import cache_folder, cached
from regard.data.image_cache import Images, ImageSplits, left_out
from regard.data.image_masks import Content, MaskSource, Pair, mask_sources, open_masks, read_pair
from regard.data.images import BadImage
from regard.data.samples import scenes
from regard.data.splits import SHOWN_AS, SPLITS, hash_fraction
from regard.errors import RegardError
from regard.settings import ImageSettings, MaskData

FORMAT = "masks-1"
NUMBERS = 256
NOTHING = 255  # the class of pixels that count for nothing
AT_ONCE = 256  # pairs decoded together


@dataclass(frozen=True, kw_only=True)
class MaskedImages(Images):
    """Images with the class of every pixel. `masks_NHW` are the numbers in the files; `class_of_V` their classes."""

    masks_NHW: NDArray[np.uint8]
    class_of_V: NDArray[np.uint8]

    def take(self, numbers: NDArray[np.int64] | Sequence[int] | slice) -> MaskedImages:
        at = numbers if isinstance(numbers, slice) else np.asarray(numbers, np.int64)
        which = range(len(self))[at] if isinstance(at, slice) else at.tolist()
        names = [self.names[number] for number in which]
        pixels_NHWC, masks_NHW = self.pixels_NHWC[at], self.masks_NHW[at]
        return MaskedImages(pixels_NHWC, self.labels_N[at], names, masks_NHW=masks_NHW, class_of_V=self.class_of_V)

    @property
    def values(self) -> list[int]:
        """The numbers that are classes, in their order."""
        values: list[int] = np.argsort(self.class_of_V, kind="stable")[: (self.class_of_V != NOTHING).sum()].tolist()
        return values

    def classes(self, numbers: NDArray[np.int64] | slice) -> NDArray[np.uint8]:
        """The class of every pixel of these images, NOTHING where there is none: [N, H, W]."""
        classes_NHW: NDArray[np.uint8] = self.class_of_V[self.masks_NHW[numbers]]
        return classes_NHW


def mask_splits(data: MaskData, settings: ImageSettings) -> ImageSplits:
    """All images with masks that the settings name, by split; what is not named is held out of train."""
    named = {split: mask_sources(data, split) for split in SPLITS}
    whole = _decoded(named["train"], "train", data, settings, data.values)
    parts = {split: (whole, whole.rows(split)) for split in SPLITS}
    skipped = list(whole.skipped)
    for split in ("valid", "test"):
        if named[split]:
            given = _decoded(named[split], split, data, settings, whole.values)
            parts[split] = (given, given.rows(split))
            skipped += given.skipped
    missing = [split for split in ("valid", "test") if not _size(parts[split][1])]
    parts |= {split: (whole, rows) for split, rows in whole.held_out(missing, data).items()}
    if not _size(parts["train"][1]):
        raise RegardError(
            "There are no training images.",
            "All images of the training data are for validation or test.",
            "Name more images, or lower data.held_out and data.held_out_test.",
        )
    classes = class_names(data, whole.values)
    return ImageSplits(
        **{split: part.images(rows, whole.values) for split, (part, rows) in parts.items()},
        classes=classes,
        skipped=skipped,
        fingerprints={split: part.fingerprint(rows) for split, (part, rows) in parts.items()},
    )


def masked_images(paths: Sequence[Path], data: MaskData, settings: ImageSettings, values: list[int]) -> MaskedImages:
    """Other images to test on; their masks must have these numbers."""
    given = _decoded([open_masks(path, data) for path in paths], "test", data, settings, values)
    if given.skipped:
        warn(f"{left_out(given.skipped)}.")
    return given.images(given.rows("test"), values)


def class_names(data: MaskData, values: list[int]) -> list[str]:
    """What the classes are called: as the settings say, or by their numbers."""
    names = data.classes or (scenes.CLASSES if data.sample else [str(value) for value in values])
    if len(names) != len(values):
        raise RegardError(
            f"data.classes names {len(names)} classes, and the masks have {len(values)}.",
            f"The numbers in the masks are {', '.join(map(str, values[:20]))}{' …' * (len(values) > 20)}.",
            "Name as many, or set data.values to the numbers that are classes, or data.ignore to the one that is none.",
        )
    return list(names)


def _size(rows: slice) -> int:
    return int(rows.stop - rows.start)


@dataclass(frozen=True)
class _Decoded:
    """A cache folder: train, valid and test one after the other."""

    pixels_NHWC: NDArray[np.uint8]
    masks_NHW: NDArray[np.uint8]
    fractions_N2: NDArray[np.float64]  # hashes of each image and its mask
    names: list[str]
    counts: list[int]
    values: list[int]
    skipped: list[str]

    def rows(self, split: str) -> slice:
        at = SPLITS.index(split)
        return slice(sum(self.counts[:at]), sum(self.counts[: at + 1]))

    def held_out(self, missing: list[str], data: MaskData) -> dict[str, slice]:
        """Train, and each split that is missing, as slices of train."""
        shares = {"valid": data.held_out, "test": data.held_out_test or data.held_out}
        train = self.rows("train")
        start, share, parts = train.start, 0.0, {}
        for split in missing:
            share += shares[split]
            end = train.start + int(np.searchsorted(self.fractions_N2[train, 0], share))
            # Of few images at least one, as long as most are left to train on.
            end = max(end, start + (shares[split] > 0 and _size(train) > 2 * len(missing)))
            parts[split], start = slice(start, end), end
        return parts | {"train": slice(start, train.stop)}

    def images(self, rows: slice, values: list[int]) -> MaskedImages:
        class_of_V = np.full(NUMBERS, NOTHING, np.uint8)
        class_of_V[values] = np.arange(len(values))
        no_labels_N = np.full(_size(rows), -1, np.int64)
        pixels_NHWC, masks_NHW = self.pixels_NHWC[rows], self.masks_NHW[rows]
        return MaskedImages(pixels_NHWC, no_labels_N, self.names[rows], masks_NHW=masks_NHW, class_of_V=class_of_V)

    def fingerprint(self, rows: slice) -> str:
        return hashlib.sha256(self.fractions_N2[rows].tobytes()).hexdigest()


def _decoded(
    sources: Sequence[MaskSource], split: str, data: MaskData, settings: ImageSettings, values: list[int]
) -> _Decoded:
    """The images of these sources with their masks: from the cache, or else decoded now."""
    key = [FORMAT, split, repr((settings.height, settings.width, settings.colour, settings.fit, values, data.ignore))]
    for source in sources:
        key += [source.name, source.fingerprint()]

    def write(folder: Path) -> None:
        _write(folder, sources, split, settings, values, data.ignore)

    folder = cached(cache_folder(data.cache), key, write)
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    shape = (sum(about["counts"]), settings.height, settings.width)
    return _Decoded(
        np.memmap(folder / "pixels", np.uint8, "r", shape=(*shape, settings.channels)),
        np.memmap(folder / "masks", np.uint8, "r", shape=shape),
        np.fromfile(folder / "fractions", np.float64).reshape(-1, 2),
        **about,
    )


def _write(
    folder: Path, sources: Sequence[MaskSource], split: str, settings: ImageSettings, values: list[int], ignore: int
) -> None:
    """Decodes all pairs into one file as they come, then orders them."""
    names: list[str] = []
    splits: list[int] = []
    fractions: list[tuple[float, float]] = []
    skipped: list[str] = []
    found = np.zeros(NUMBERS, bool)
    known = {*values, ignore}

    def read(pair: Pair) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[float, float]] | BadImage:
        try:
            pixels_HWC, mask_HW = read_pair(pair, settings, ignore)
            if values and (unknown := sorted(set(np.unique(mask_HW).tolist()) - known)):
                return BadImage(f"Its mask has numbers that are no classes: {', '.join(map(str, unknown[:5]))}.")
            return pixels_HWC, mask_HW, (_fraction(pair.image), _fraction(pair.mask))
        except BadImage as error:
            return error

    unordered = [folder / "pixels.unordered", folder / "masks.unordered"]
    with (
        unordered[0].open("wb") as pixels,
        unordered[1].open("wb") as masks,
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress(0, "reading images and masks") as show,
    ):
        pairs = _for_split(sources, split)
        while some := list(islice(pairs, AT_ONCE)):
            for pair, outcome in zip(some, pool.map(read, some), strict=True):
                if isinstance(outcome, BadImage):
                    skipped.append(f"{pair.name}: {outcome.reason}")
                    continue
                pixels_HWC, mask_HW, its_fractions = outcome
                pixels.write(pixels_HWC.tobytes())
                masks.write(mask_HW.tobytes())
                found[np.unique(mask_HW)] = True
                names.append(pair.name)
                splits.append(SPLITS.index(pair.split))
                fractions.append(its_fractions)
            show(len(names), "")
    if SPLITS.index(split) not in splits:
        where = ", ".join(f"'{source.name}'" for source in sources)
        raise RegardError(
            f"There are no {SHOWN_AS[split]} images with a mask in {where}.",
            skipped[0] if skipped else "None is for that.",
            "Check the files, and data.image_folder and data.mask_folder.",
        )
    found[ignore] = False
    splits_N, fractions_N2 = np.array(splits), np.array(fractions)
    order = np.lexsort((np.where(splits_N == 0, fractions_N2[:, 0], 0), splits_N))  # the last key counts most
    for source in unordered:
        _in_order(source, folder / source.stem, order)
    (folder / "fractions").write_bytes(fractions_N2[order].tobytes())
    about = {
        "names": [names[at] for at in order],
        "counts": np.bincount(splits_N, minlength=3).tolist(),
        "values": values or np.flatnonzero(found).tolist(),
        "skipped": skipped,
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def _for_split(sources: Sequence[MaskSource], split: str) -> Iterator[Pair]:
    """The pairs of these sources, each with its split; of a divided source named for valid or test, those of that."""
    for source in sources:
        pairs = source.pairs()
        if split != "train":
            listed = list(pairs)
            divided = any(pair.split == split for pair in listed)
            pairs = (pair for pair in listed if pair.split == split or not divided)
        for pair in pairs:
            name = f"{source.name}/{pair.name}" if len(sources) > 1 else pair.name
            its_split = (pair.split or "train") if split == "train" else split
            yield Pair(name, its_split, pair.image, pair.mask)


def _fraction(content: Content | None) -> float:
    if isinstance(content, Path):
        try:
            return hash_fraction(content.read_bytes())
        except OSError as error:
            raise BadImage(f"It cannot be read ({error.strerror or error}).") from None
    return hash_fraction(content if isinstance(content, bytes) else b"" if content is None else content.tobytes())


def _in_order(source: Path, target: Path, order: NDArray[np.int64]) -> None:
    """The same rows of equal length in another order; the file as it was is removed."""
    rows_NX = np.memmap(source, np.uint8, "r").reshape(len(order), -1)
    with target.open("wb") as file:
        for start in range(0, len(order), AT_ONCE):
            file.write(rows_NX[order[start : start + AT_ONCE]].tobytes())
    del rows_NX
    source.unlink()
