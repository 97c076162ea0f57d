"""Masks of images: a PNG of the size of its image, each pixel of which is the number of a class.

    folder   images/a.jpg with masks/a.png, anywhere below: pets/images/cat/1.jpg with pets/masks/cat/1.png
    archive  a .tar of the same; read from start to end, never unpacked
    scenes   built in

A folder `train`, `valid` or `test` anywhere in the path tells the split, or a list of names does. A mask may be grey or
have a palette; then the numbers are its indices. An image without a mask, or whose mask has another size, is bad.

Shapes: h × w pixels of an image · H × W pixels that all images are brought to
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from regard.data.fingerprints import fingerprint
from regard.data.image_archives import Archive, is_archive
from regard.data.image_entries import SPLIT_NAMES, is_division, shown
from regard.data.images import BadImage, files_below, fit_pixels, is_image_name, placement, read_with_size
from regard.data.lines import read_lines, readable
from regard.data.samples import scenes
from regard.data.splits import SPLITS, missing_file, named_pictures
from regard.errors import RegardError
from regard.settings import ImageSettings, MaskData

MOST_BYTES = 2**31  # of an archive, whose images and masks are held together
MODES = ("1", "L", "P")  # of Pillow: one number of 8 bits to a pixel
MORE_SPLITS = SPLIT_NAMES | {"trainval": "train"}

Content = Path | bytes | NDArray[np.uint8]
Key = tuple[tuple[str, ...], tuple[str, ...]]  # the folders above that of the images, and what is below it


@dataclass(frozen=True)
class Pair:
    """An image and its mask, where it has one; the split is "" where none is told."""

    name: str
    split: str
    image: Content
    mask: Content | None


class MaskSource(Protocol):
    """Where images with masks come from."""

    name: str

    def fingerprint(self) -> str:
        """Changes when the images or their masks change."""

    def pairs(self) -> Iterator[Pair]: ...


def mask_sources(data: MaskData, split: str) -> list[MaskSource]:
    """What the settings name for a split; for train also `data.sample` and `data.images`."""
    if split == "train" and data.sample:
        return [Scenes()]
    advice = "Set data.images to a folder with images and masks, for example data.images=pets."
    return [open_masks(path, data) for path in named_pictures(data, split, '["one folder", "another.tar"]', advice)]


def open_masks(path: Path, data: MaskData) -> MaskSource:
    """A folder or an archive that has both images and masks."""
    if not path.exists():
        raise missing_file(path, data.root)
    with readable(path):
        if not path.is_dir() and not is_archive(path):
            raise RegardError(
                f"'{path}' is neither a folder nor a .tar.",
                f"Images lie in a folder '{data.image_folder}' in it, masks in '{data.mask_folder}'.",
                "Unpack it first." if path.suffix == ".zip" else "Name such a folder.",
            )
    source: Folder | Tar = Folder(path, data) if path.is_dir() else Tar(path, data)
    source.check()
    return source


# ---------------------------------------------------------------- files


class _Files:
    """What is the same for a folder and an archive: which of the names are images, and which are their masks."""

    def __init__(self, path: Path, data: MaskData):
        self.name, self.path, self.data = path.absolute().name, path, data

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        raise NotImplementedError

    def check(self) -> None:
        for folder, what in ((self.data.image_folder, "images"), (self.data.mask_folder, "masks")):
            if not any(_key(name, folder) for name in self.names):
                raise RegardError(
                    f"'{self.path}' has no {what}.",
                    f"They lie in a folder '{folder}', and there is none with an image in it.",
                    f"Name the folder of the {what}: data.{what.removesuffix('s')}_folder.",
                )

    @cached_property
    def paired(self) -> list[tuple[tuple[str, ...], tuple[str, ...] | None, str]]:
        """The name of each image, that of its mask, and its split."""
        masks = {key: name for name in self.names if (key := _key(name, self.data.mask_folder))}
        images = {name: key for name in self.names if (key := _key(name, self.data.image_folder))}
        splits = self._splits(list(images.values()))
        both = zip(images.items(), splits, strict=True)
        return [(name, masks.get(key), split) for (name, key), split in both]

    def _splits(self, keys: list[Key]) -> list[str]:
        """As listed, or as the folders are named; "" for all where they tell none."""
        if self.data.split_file:
            listed = _listed(self.path, self.data)
            return [listed.get(below[-1], listed.get("/".join(below), "")) for _, below in keys]
        told = [
            next((SPLIT_NAMES[part.lower()] for part in (*above, *below[:-1]) if part.lower() in SPLIT_NAMES), "")
            for above, below in keys
        ]
        return told if is_division(told) else [""] * len(keys)


def _key(name: tuple[str, ...], folder: str) -> Key | None:
    """What an image and its mask have in common, if this is a file below such a folder."""
    if folder not in name[:-1]:
        return None
    at = len(name) - 2 - name[-2::-1].index(folder)  # the last of that name
    below = (*name[at + 1 : -1], name[-1].rpartition(".")[0])
    return name[:at], below


def _listed(path: Path, data: MaskData) -> dict[str, str]:
    """The split of each name, from a list below the folder of the images, or below data.root."""
    tried = [folder / data.split_file for folder in (path, path.parent, Path(data.root))]
    file = next((each for each in tried if each.is_file()), None)
    if file is None:
        raise RegardError(
            f"The list of splits '{data.split_file}' is missing.",
            f"It is neither in '{path}' nor beside it.",
            "Correct data.split_file, or leave it empty.",
        )
    splits: dict[str, str] = {}
    for number, line in enumerate(read_lines(file, advice="Correct the line."), start=1):
        if not line or not line.strip():
            continue
        try:
            record = json.loads(line)
            name, split = str(record["name"]), MORE_SPLITS[str(record["split"]).lower()]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RegardError(
                f"Line {number:,} of '{file}' does not tell the split of an image.",
                'It is to be such as {"name": "cat_1", "split": "train"}, or valid, or test.',
                "Correct the line.",
            ) from None
        splits[name if not is_image_name(name) else name.rpartition(".")[0]] = split
    return splits


class Folder(_Files):
    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        return [file.relative_to(self.path).parts for file in files_below(self.path) if is_image_name(file.name)]

    def fingerprint(self) -> str:
        states = [(name, _state(self.path.joinpath(*name))) for name in self.names]
        return fingerprint([], states, [split for _, _, split in self.paired])

    def pairs(self) -> Iterator[Pair]:
        for image, mask, split in self.paired:
            path = self.path.joinpath(*mask) if mask else None
            yield Pair(shown("/".join(image)), split, self.path.joinpath(*image), path)


def _state(file: Path) -> tuple[int, int]:
    """Size and time instead of the content: hashing all images would take as long as decoding them."""
    try:
        state = file.stat()
    except OSError:
        return -1, 0
    return state.st_size, state.st_mtime_ns


class Tar(_Files):
    @cached_property
    def archive(self) -> Archive:
        return Archive(self.path)

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        return self.archive.listing[1]

    def fingerprint(self) -> str:
        return fingerprint([self.path], [split for _, _, split in self.paired])

    def pairs(self) -> Iterator[Pair]:
        """Whichever of the two comes first waits for the other."""
        wanted = {name for image, mask, _ in self.paired for name in (image, mask) if name}
        waiting: dict[tuple[str, ...], bytes | BadImage] = {}
        for name, content in zip(self.names, self.archive.contents(), strict=True):
            if name in wanted and isinstance(content, bytes | BadImage):
                waiting[name] = content
            if sum(len(each) for each in waiting.values() if isinstance(each, bytes)) > MOST_BYTES:
                raise RegardError(
                    f"The archive '{self.path}' is too large to be read in place.",
                    "Images and their masks lie far apart in it, and would have to be in memory together.",
                    "Unpack it, and name the folder.",
                )
        for image, mask, split in self.paired:
            yield Pair(shown("/".join(image)), split, _bytes(waiting[image]), _bytes(waiting[mask]) if mask else None)


def _bytes(content: bytes | BadImage) -> bytes:
    return content if isinstance(content, bytes) else b""  # an empty file is as bad as one that is too large


class Scenes:
    """The built-in scenes, each in its split."""

    name = "scenes"

    def fingerprint(self) -> str:
        return fingerprint([], "scenes", scenes.VERSION, scenes.COUNTS)

    def pairs(self) -> Iterator[Pair]:
        for side in scenes.SIDES:
            for number in range(scenes.COUNTS[side]):
                made = scenes.scene(side, number)
                yield Pair(f"{side} scene #{number}", side, made.pixels_HWC, made.mask_HW)


# ---------------------------------------------------------------- one image and its mask


def read_pair(pair: Pair, settings: ImageSettings, outside: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pixels [H, W, C], and the numbers in the mask [H, W], `outside` where the image does not reach."""
    if pair.mask is None:
        raise BadImage("It has no mask.")
    if isinstance(pair.image, np.ndarray):
        pixels_HWC, size = fit_pixels(pair.image, settings), (pair.image.shape[1], pair.image.shape[0])
    else:
        pixels_HWC, size = read_with_size(_readable(pair.image), settings)
    mask_hw = pair.mask if isinstance(pair.mask, np.ndarray) else read_mask(pair.mask)
    if mask_hw.shape != size[::-1]:
        height, width = mask_hw.shape
        raise BadImage(f"It has {size[0]} x {size[1]} pixels, and its mask {width} x {height}.")
    return pixels_HWC, fit_mask(mask_hw, settings, outside)


def _readable(content: Path | bytes) -> Path | io.BytesIO:
    return io.BytesIO(content) if isinstance(content, bytes) else content


def read_mask(content: Path | bytes) -> NDArray[np.uint8]:
    """The numbers in a mask: [h, w]. The file is opened as carefully as an image."""
    try:
        # As an image first, of one pixel: for all that is checked there, such as how much it may unpack to.
        read_with_size(_readable(content), ImageSettings(size=1, colour=False, fit="stretch"))
        with Image.open(_readable(content)) as image:
            if image.mode not in MODES:
                raise BadImage(f"Its mask is not grey and has no palette, but is {image.mode} with one colour each.")
            numbers_hw = np.array(image, np.uint8)
    except BadImage as error:
        about = error.reason if error.reason.startswith("Its mask") else f"Its mask cannot be used. {error.reason}"
        raise BadImage(about) from None
    except (OSError, ValueError):
        raise BadImage("Its mask cannot be used. It is damaged or cut short.") from None
    return numbers_hw


def fit_mask(mask_hw: NDArray[np.uint8], settings: ImageSettings, outside: int) -> NDArray[np.uint8]:
    """Brought to the size of all images as these are, each pixel from the nearest one: [H, W]."""
    (height, width), place = mask_hw.shape, placement((mask_hw.shape[1], mask_hw.shape[0]), settings)
    from_x_W, from_y_H = (
        np.floor((np.arange(side) + 0.5 - shift) / scale).astype(np.int64)
        for side, scale, shift in zip((settings.width, settings.height), *place, strict=True)
    )
    fitted_HW = mask_hw[from_y_H.clip(0, height - 1)[:, None], from_x_W.clip(0, width - 1)]
    inside_HW = ((from_y_H >= 0) & (from_y_H < height))[:, None] & (from_x_W >= 0) & (from_x_W < width)
    return np.where(inside_HW, fitted_HW, np.uint8(outside))


def unfit(
    values_KHW: NDArray[np.float32], size: tuple[int, int], settings: ImageSettings
) -> Iterator[NDArray[np.float32]]:
    """Maps of the size of all images, back in that of one, (width, height): some of its rows at a time, [K, r, w].

    In between pixels they are straight lines. Where cropping left out a part of the image, they go on as at its edge.
    """
    import torch
    from torch.nn import functional as F

    place, (width, height) = placement(size, settings), size
    maps_1KHW = torch.from_numpy(values_KHW)[None]
    x_w = (torch.arange(width) + 0.5) * place.scale[0] + place.shift[0]
    y_h = (torch.arange(height) + 0.5) * place.scale[1] + place.shift[1]
    rows = max(1, 2**22 // width)
    for start in range(0, height, rows):
        y_r1, x_1w = torch.meshgrid(y_h[start : start + rows], x_w, indexing="ij")
        grid_1rw2 = torch.stack([x_1w * (2 / settings.width) - 1, y_r1 * (2 / settings.height) - 1], dim=-1)[None]
        part_1Krw = F.grid_sample(maps_1KHW, grid_1rw2, mode="bilinear", padding_mode="border", align_corners=False)
        yield part_1Krw[0].numpy()


def check_mask_sources(data: MaskData) -> None:
    """Everything named is there and of a known form. Quick: no image is decoded."""
    for split in SPLITS:
        mask_sources(data, split)
