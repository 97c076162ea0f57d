"""Where images with captions come from.

    folder    images anywhere below it, beside each a .txt of the same name with a caption on a line
    archive   a .tar, plain or compressed, of the same
    .jsonl    {"image": path, "captions": [text, …]}, or one "caption"
    .tsv      path, TAB, caption; an image may have several lines, and a path may end in #0, #1 … as in Flickr8k
    scenes    built in: digits with clutter

The images of a .jsonl or .tsv lie in its own folder, or in a folder or archive of their own (`data.pictures`). Lists
may be gzipped. Each is an `ImageSource`, and the captions of an image are attached to its entry as JSON: so they go
through the cache with it. An image without a caption, and a caption without an image, are bad images.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.data.fingerprints import fingerprint
from regard.data.image_archives import Archive, is_archive, texts_in
from regard.data.image_entries import Content, Entry, ImageSource, shown
from regard.data.image_sources import ImageFolder, file_state
from regard.data.images import BadImage, files_below, is_image_name
from regard.data.lines import HALF_A_CHARACTER, encodable, ending_of, numbered_lines, open_file, readable
from regard.data.samples import scenes
from regard.data.splits import SPLITS, named_path, named_pictures
from regard.errors import RegardError
from regard.settings import CaptionData

EXAMPLE = '["one folder", "captions.jsonl"]'
LARGEST_TEXT = 1_000_000  # bytes of the captions of one image
NO_CAPTION = "It has no caption."


def caption_sources(data: CaptionData, split: str) -> list[ImageSource]:
    """What the settings name for a split."""
    if split == "train" and data.sample:
        return [Scenes()]
    advice = "Set data.images to a folder of images and captions, or to a .jsonl: data.images=captions.jsonl."
    return [open_captions(path, data) for path in named_pictures(data, split, EXAMPLE, advice)]


def check_captions(data: CaptionData) -> None:
    """Everything named is there and of a known form. Quick: no image is decoded."""
    for split in SPLITS:
        caption_sources(data, split)


def open_captions(path: Path, data: CaptionData) -> ImageSource:
    """Looks at a file or folder and tells its form."""
    with readable(path):
        if path.is_dir() or is_archive(path):
            return Beside(path)
    if ending_of(path) in (".jsonl", ".json", ".tsv", ".txt"):
        pictures = named_path(data.pictures, data.root, "data.pictures", "pictures.tar") if data.pictures else None
        return Listed(path, pictures, data.image_field, data.caption_field)
    raise RegardError(
        f"The form of '{path}' is not known.",
        "It is not a folder, a .tar, a .jsonl or a .tsv.",
        "Name a folder of images with a .txt beside each, or a .jsonl of images and captions.",
    )


def captions_of(attached: str) -> list[str]:
    """The captions of an image, as its entry has them."""
    captions: list[str] = json.loads(attached)
    return captions


def _attached(captions: Sequence[str]) -> str:
    return json.dumps(list(captions))


def _lines(raw: bytes) -> list[str] | BadImage:
    """The captions in a text."""
    if len(raw) > LARGEST_TEXT:
        return BadImage(f"Its captions have more than {LARGEST_TEXT:,} bytes.")
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        return BadImage("Its captions are not valid UTF-8.")
    return _with_text(lines) or BadImage(NO_CAPTION)


def _with_text(captions: Sequence[str]) -> list[str]:
    """Each on one line, without those that are blank."""
    return [text for caption in captions if (text := " ".join(caption.split()))]


# ---------------------------------------------------------------- a .txt beside each image


class Beside:
    """Images of a folder or an archive, each with the captions in the .txt of its name."""

    def __init__(self, path: Path):
        self.name, self.path = path.absolute().name, path
        self.source: ImageFolder | Archive
        if path.is_dir():
            files = list(files_below(path))
            self.source = ImageFolder(path, [file for file in files if is_image_name(file.name)])
            self.texts = [file for file in files if file.suffix == ".txt"]
        else:
            self.source, self.texts = Archive(path), []

    def fingerprint(self) -> str:
        return fingerprint(self.texts, "beside", self.source.fingerprint())

    @cached_property
    def captions(self) -> dict[str, list[str] | BadImage]:
        """By the name of the image without its ending."""
        if isinstance(self.source, Archive):
            return {name.removesuffix(".txt"): _lines(raw) for name, raw in texts_in(self.path, LARGEST_TEXT + 1)}
        found = {}
        for file in self.texts:
            with readable(file), file.open("rb") as raw:
                found[shown(file.relative_to(self.path).as_posix()).removesuffix(".txt")] = _lines(
                    raw.read(LARGEST_TEXT + 1)
                )
        return found

    @cached_property
    def _rows(self) -> list[tuple[Entry, BadImage | None]]:
        """Every image with what is wrong with its captions; then the captions that have no image."""
        rows: list[tuple[Entry, BadImage | None]] = []
        without_image = dict.fromkeys(self.captions)
        for entry in self.source.entries():
            stem = entry.name.rpartition(".")[0]
            without_image.pop(stem, None)
            captions = self.captions.get(stem, BadImage(f"{NO_CAPTION[:-1]}: there is no '{stem}.txt'."))
            if isinstance(captions, BadImage):
                rows.append((Entry(entry.name, "", entry.split), captions))
            else:
                rows.append((Entry(entry.name, "", entry.split, _attached(captions)), None))
        split = "train" if any(entry.split for entry, _ in rows) else ""
        rows += [
            (Entry(f"{stem}.txt", "", split), BadImage("There is no image beside this caption."))
            for stem in without_image
        ]
        return rows

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self._rows]

    def contents(self) -> Iterator[Content]:
        images = self.source.contents()
        for entry, problem in self._rows:
            content = next(images) if is_image_name(entry.name) else problem
            assert content is not None
            yield problem or content


# ---------------------------------------------------------------- a list of images and captions


@dataclass
class ListedImage:
    name: str
    captions: list[str] = field(default_factory=list)
    problem: str = ""


class Listed:
    """A .jsonl or .tsv; the images are files beside it, or in a folder or an archive of their own."""

    def __init__(self, path: Path, pictures: Path | None, image_field: str, caption_field: str):
        self.name, self.path, self.pictures = path.name, path, pictures
        self.image_field, self.caption_field = image_field, caption_field
        self.archive = Archive(pictures) if pictures is not None and not pictures.is_dir() else None

    def fingerprint(self) -> str:
        fields = self.image_field, self.caption_field
        if self.archive is not None:
            return fingerprint([self.path], *fields, self.archive.fingerprint())
        states = [file_state(self._file(image), image.name) for image in self.images if not image.problem]
        return fingerprint([self.path], *fields, states)

    @cached_property
    def images(self) -> list[ListedImage]:
        """In the order in which they are first named."""
        as_json = ending_of(self.path) in (".jsonl", ".json")
        found: dict[str, ListedImage] = {}
        with readable(self.path), open_file(self.path) as file:
            for line in numbered_lines(file):
                if not line.text.strip() and not line.problem:
                    continue
                read: tuple[str, list[str]] | str = line.problem
                if not line.problem:
                    read = self._from_json(line.text) if as_json else _from_tab(line.text)
                if isinstance(read, str):
                    name = f"{self.name} line {line.number}"
                    found[name] = ListedImage(name, problem=read)
                else:
                    found.setdefault(read[0], ListedImage(read[0])).captions.extend(_with_text(read[1]))
        for image in found.values():
            image.problem = image.problem or ("" if image.captions else NO_CAPTION)
        return list(found.values())

    def _from_json(self, line: str) -> tuple[str, list[str]] | str:
        """The name and the captions of an image, or what is wrong."""
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            return "It is not valid JSON."
        if not isinstance(record, dict):
            return "It is not a JSON object."
        name = record.get(self.image_field)
        if not isinstance(name, str) or not name.strip():
            return f"It names no image in the field '{self.image_field}' (data.image_field)."
        captions = record.get(self.caption_field, record.get("caption", []))
        captions = [captions] if isinstance(captions, str) else captions
        if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
            return f"Its field '{self.caption_field}' (data.caption_field) is neither a text nor a list of texts."
        return (name.strip(), captions) if encodable(name, *captions) else HALF_A_CHARACTER

    def _file(self, image: ListedImage) -> Path:
        return (self.pictures or self.path.parent) / image.name

    @cached_property
    def _in_archive(self) -> list[ListedImage | None]:
        """What is said of each image of the archive, by the longest end of its path that is named."""
        assert self.archive is not None
        known = {shown(image.name): image for image in self.images}
        parts = [entry.name.split("/") for entry in self.archive.entries()]
        ends = (["/".join(each[at:]) for at in range(len(each))] for each in parts)
        return [next((known[end] for end in each if end in known), None) for each in ends]

    def _rows(self) -> Iterator[tuple[ListedImage, Content]]:
        if self.archive is None:
            for image in self.images:
                yield image, BadImage(image.problem) if image.problem else self._file(image)
            return
        missing = {id(image): image for image in self.images}
        for image_there, content in zip(self._in_archive, self.archive.contents(), strict=True):
            if image_there is not None and missing.pop(id(image_there), None) is not None:
                yield image_there, BadImage(image_there.problem) if image_there.problem else content
        for image in missing.values():
            yield image, BadImage(image.problem or f"It is not in '{self.archive.name}'.")

    def entries(self) -> list[Entry]:
        images = self.images
        if self.archive is not None:
            there = list({id(image): image for image in self._in_archive if image is not None}.values())
            found = {id(image) for image in there}
            images = there + [image for image in self.images if id(image) not in found]
        return [Entry(shown(image.name), "", "", _attached(image.captions)) for image in images]

    def contents(self) -> Iterator[Content]:
        return (content for _, content in self._rows())


def _from_tab(line: str) -> tuple[str, list[str]] | str:
    name, tab, caption = line.partition("\t")
    if not tab or not name.strip():
        return "It is not an image, a TAB and a caption."
    return re.sub(r"#\d+$", "", name.strip()), [caption]


# ---------------------------------------------------------------- built in


class Scenes:
    """Digits on a canvas with clutter, and what is where."""

    name = "scenes"

    def fingerprint(self) -> str:
        return fingerprint([], "scenes", scenes.COUNTS)

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self._made]

    def contents(self) -> Iterator[Content]:
        return (content for _, content in self._made)

    @cached_property
    def _made(self) -> list[tuple[Entry, Content]]:
        made: list[tuple[Entry, Content]] = []
        for side in SPLITS:
            for number, scene in enumerate(scenes.scenes(side)):
                entry = Entry(f"scenes {side} #{number}", "", side, _attached([scene.caption]))
                made.append((entry, scene.pixels_HWC))
        return made
