"""Where images with boxes come from.

    data.boxes is empty   data.images (or train, valid, test) name files of boxes, whose images lie beside them
    data.boxes is named   data.images names images in any of their forms, and data.boxes the files that speak of them,
                          by the name of an image or by the end of its path
    scenes                built in

Each is an `ImageSource`, and the boxes of an image are attached to its entry: so they go through the cache with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from regard.data.box_files import BoxedImage, box_files_of, is_box_file, read_box_file
from regard.data.fingerprints import fingerprint
from regard.data.image_entries import Content, Entry, ImageSource, shown
from regard.data.image_sources import file_state, image_sources, open_source
from regard.data.images import BadImage
from regard.data.samples import scenes
from regard.data.splits import SPLITS, named_path, named_pictures
from regard.errors import RegardError
from regard.settings import BoxData

EXAMPLE = '["boxes.jsonl", "more.json"]'
BESIDE = (".", "images", "../JPEGImages", "../images")  # where the images of a file of boxes may lie


def box_sources(data: BoxData, split: str) -> list[ImageSource]:
    """What the settings name for a split."""
    if split == "train" and data.sample:
        return [Scenes()]
    if data.boxes:
        paths = [named_path(name, data.root, "data.boxes", EXAMPLE) for name in data.boxes]
        return [WithBoxes(source, paths, data.box_unit) for source in image_sources(data, split)]
    advice = "Set data.images to a file of boxes, for example data.images=boxes.jsonl."
    return [open_boxes(path, data) for path in named_pictures(data, split, EXAMPLE, advice)]


def open_boxes(path: Path, data: BoxData) -> ImageSource:
    """A file of boxes, or a folder of them, with its images beside it."""
    if not path.exists():
        raise RegardError(
            f"The data file '{path}' is missing.", "There is no such file or folder.", "Correct the path."
        )
    if not is_box_file(path):
        raise RegardError(
            f"'{path}' does not say where objects are.",
            "It is no .jsonl, no .json as of COCO, no .xml as of VOC, and no folder of such .xml.",
            "Name such a file; or name the images in data.images, and the file in data.boxes.",
        )
    return BoxFile(path, data.box_unit)


def sources_to_test(paths: Sequence[Path], data: BoxData) -> list[ImageSource]:
    """Files of boxes with their images beside them; or images, and the files of boxes that speak of them."""
    boxes = [path for path in paths if is_box_file(path)]
    images = [path for path in paths if path not in boxes]
    if not images:
        return [open_boxes(path, data) for path in boxes]
    sources = [WithBoxes(open_source(path, data), boxes, data.box_unit) for path in images]
    must_know_all_images(sources)
    return list(sources)


def check_box_sources(data: BoxData) -> None:
    """Everything named is there and of a known form, and no box is of an image that is not there."""
    sources = [source for split in SPLITS for source in box_sources(data, split)]
    must_know_all_images([source for source in sources if isinstance(source, WithBoxes)])
    for source in sources:
        if isinstance(source, BoxFile):
            source.entries()


def attached(image: BoxedImage, unit: str) -> str:
    return json.dumps({"unit": unit, "boxes": image.boxes})


# ---------------------------------------------------------------- a file of boxes, and images beside it


class BoxFile:
    def __init__(self, path: Path, unit: str):
        self.name, self.path, self.unit = path.name, path, unit

    def fingerprint(self) -> str:
        states = [file_state(content, entry.name) for entry, content in self._rows if isinstance(content, Path)]
        return fingerprint(box_files_of(self.path), self.unit, states)

    @cached_property
    def _rows(self) -> list[tuple[Entry, Content]]:
        rows: list[tuple[Entry, Content]] = []
        for image in read_box_file(self.path):
            entry = Entry(shown(image.name), "", image.split, attached(image, self.unit))
            rows.append((entry, BadImage(image.problem) if image.problem else self._file(image.name)))
        return rows

    def _file(self, name: str) -> Path:
        folder = self.path if self.path.is_dir() else self.path.parent
        for place in BESIDE:
            if (file := folder / place / name).is_file():
                return file
        raise _unknown_image(name, self.path, f"It is not in '{folder}', nor in {', '.join(BESIDE[1:])} from there.")

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self._rows]

    def contents(self) -> Iterator[Content]:
        return (content for _, content in self._rows)


def _unknown_image(name: str, path: Path, why: str) -> RegardError:
    return RegardError(
        f"The image '{shown(name)}', which '{path}' has boxes for, is missing.",
        why,
        "Correct its name, or name the images in data.images and the file of boxes in data.boxes.",
    )


# ---------------------------------------------------------------- images, and files of boxes that speak of them


class WithBoxes:
    """Images of any source, each with the boxes that are given for it; without any it is bad, and left out."""

    def __init__(self, source: ImageSource, paths: list[Path], unit: str):
        self.name, self.source, self.paths, self.unit = source.name, source, paths, unit

    def fingerprint(self) -> str:
        files = [file for path in self.paths for file in box_files_of(path)]
        return fingerprint(files, self.unit, self.source.fingerprint())

    @cached_property
    def _found(self) -> list[BoxedImage | None]:
        """What is said of each image, by the longest end of its path that is named."""
        known = _read_all(self.paths)
        names = [[self.name, *entry.name.split("/")] for entry in self.source.entries()]
        ends = [["/".join(parts[at:]) for at in range(len(parts))] for parts in names]
        return [next((known[end] for end in each if end in known), None) for each in ends]

    def known(self) -> set[str]:
        return {image.name for image in self._found if image is not None}

    def entries(self) -> list[Entry]:
        listed = []
        for entry, image in zip(self.source.entries(), self._found, strict=True):
            split = image.split if image is not None else ""
            boxes = attached(image, self.unit) if image is not None else ""
            listed.append(Entry(entry.name, "", split or entry.split, boxes))
        return listed

    def contents(self) -> Iterator[Content]:
        for content, image in zip(self.source.contents(), self._found, strict=True):
            if image is None:
                yield BadImage("No boxes are given for it.")
            else:
                yield BadImage(image.problem) if image.problem else content


def must_know_all_images(sources: Sequence[WithBoxes]) -> None:
    """A box of an image that is nowhere is a mistake: of a name, or of a folder."""
    found = {name for source in sources for name in source.known()}
    for path in dict.fromkeys(path for source in sources for path in source.paths):
        for name, image in _read_all([path]).items():
            if name not in found and not image.problem:
                where = ", ".join(f"'{source.name}'" for source in sources)
                raise _unknown_image(name, path, f"No image in {where} has that name.")


def _read_all(paths: Sequence[Path]) -> dict[str, BoxedImage]:
    states = tuple(file_state(file, file) for path in paths for file in box_files_of(path))
    return _read_once(tuple(paths), states)


@lru_cache(maxsize=4)
def _read_once(paths: tuple[Path, ...], states: tuple[tuple[str, int, int], ...]) -> dict[str, BoxedImage]:
    """Read again only when a file has changed: all splits ask for the same."""
    return {image.name: image for path in paths for image in read_box_file(path)}


# ---------------------------------------------------------------- built in


class Scenes:
    """Digits on a canvas with clutter."""

    name = "scenes"

    def fingerprint(self) -> str:
        return fingerprint([], "scenes", scenes.COUNTS)

    @cached_property
    def _made(self) -> list[tuple[Entry, Content]]:
        made: list[tuple[Entry, Content]] = []
        for side in SPLITS:
            for number, scene in enumerate(scenes.scenes(side)):
                boxes = [[str(d), *box] for d, box in zip(scene.digits_N, scene.boxes_N4.tolist(), strict=True)]
                entry = Entry(f"scenes {side} #{number}", "", side, attached(BoxedImage("", boxes), "pixels"))
                made.append((entry, scene.pixels_HWC))
        return made

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self._made]

    def contents(self) -> Iterator[Content]:
        return (content for _, content in self._made)
