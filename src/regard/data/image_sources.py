"""Where images and their labels come from.

    folder   one folder for each class, images anywhere below it; loose images have no label
    idx      `train-images-idx3-ubyte` as of MNIST, its labels beside it; plain or .gz; or a folder of such files
    archive  a .tar, plain or compressed, of either; read from start to end, never unpacked
    table    a .csv with a header: one column is the path of an image, another its label
    digits   the 1,797 digits that come with scikit-learn

Each is an `ImageSource`. Its form is told by looking at it, not only by its name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.console import warn
from regard.data.fingerprints import fingerprint
from regard.data.idx_files import IdxFiles, is_idx_name, labels_beside, labels_looked_for, starts_as_idx
from regard.data.image_archives import Archive, is_archive
from regard.data.image_entries import OUTSIDE, Content, Entry, ImageSource, NoLabel, by_folder, class_folders, shown
from regard.data.images import ENDINGS, BadImage, files_below, is_image_name, natural_order
from regard.data.lines import CsvLines, readable
from regard.data.splits import SPLITS, named_pictures
from regard.errors import RegardError
from regard.settings import ImageData
from regard.words import counted

LONGEST_HEADER = 65_536  # bytes; a longer first line is not the header of a table
NAMED = 5  # folders named in a message


def check_sources(data: ImageData) -> None:
    """Everything named is there and of a known form. Quick: no image is decoded."""
    sources = [source for split in SPLITS for source in image_sources(data, split)]
    for source in sources:
        if isinstance(source, IdxFiles):
            source.entries()
    if empty := empty_classes(sources):
        _warn_once(without_images(empty))


def empty_classes(sources: Sequence[ImageSource]) -> list[str]:
    """Folders beside those of the classes that hold no image. Archives are not searched for them."""
    folders = [source for source in sources if isinstance(source, ImageFolder)]
    return list(dict.fromkeys(empty for folder in folders for empty in folder.empty_classes()))


def without_images(empty: Sequence[str]) -> str:
    few = ", ".join(f"'{folder}'" for folder in empty[:NAMED]) + " …" * (len(empty) > NAMED)
    many = f"{len(empty):,} folders beside the classes hold" if len(empty) > 1 else "A folder beside the classes holds"
    return f"{many} no images: {few}."


@cache
def _warn_once(text: str) -> None:
    warn(text)


def image_sources(data: ImageData, split: str) -> list[ImageSource]:
    """What the settings name for a split; for train also `data.sample` and `data.images`."""
    if split == "train" and data.sample:
        return [Digits()]
    advice = "Set data.images to a folder of images, for example data.images=photos."
    return [open_source(path, data) for path in named_pictures(data, split, '["one folder", "another.tar"]', advice)]


def images_for(sources: Sequence[ImageSource], split: str) -> tuple[int, Iterator[tuple[Entry, Content]]]:
    """How many images the sources named for a split have, and the images, each with the split it falls into.

    A divided source named for train keeps its own splits; named for another split, it gives that one, if it has it.
    Where some images have a label, those without are bad; where none has, none is needed.
    """
    listed = [_entries(source, split) for source in sources]
    with_labels = any(entry is not None and entry.label for entries in listed for entry in entries)

    def images() -> Iterator[tuple[Entry, Content]]:
        for source, entries in zip(sources, listed, strict=True):
            for entry, content in zip(entries, source.contents(), strict=True):
                if entry is None:
                    continue
                if entry.split == OUTSIDE:
                    content = BadImage("It lies outside of train, valid and test.")
                elif with_labels and not entry.label and not isinstance(content, BadImage):
                    content = _no_label(entry.name)
                several = len(sources) > 1
                yield entry._replace(name=f"{shown(source.name)}/{entry.name}") if several else entry, content

    return sum(entry is not None for entries in listed for entry in entries), images()


def _no_label(name: str) -> NoLabel:
    if file := labels_looked_for(name):
        return NoLabel(f"It has no label: there is no '{file}' (or .gz) beside its file.")
    return NoLabel("It has no label: it lies in none of the classes' folders, or none is given.")


def _entries(source: ImageSource, split: str) -> list[Entry | None]:
    """All images of a source, None for those of another split than the one wanted."""
    entries = source.entries()
    if split == "train":
        return [entry if entry.split else entry._replace(split=split) for entry in entries]
    if any(entry.split == split for entry in entries):
        return [entry if entry.split == split else None for entry in entries]
    return [entry if entry.split == OUTSIDE else entry._replace(split=split) for entry in entries]


def open_source(path: Path, data: ImageData) -> ImageSource:
    """Looks at a file or folder and tells its form."""
    if not path.exists():
        raise RegardError(
            f"The data file '{path}' is missing.", "There is no file and no folder of that name.", "Correct the path."
        )
    with readable(path):
        if path.is_dir():
            files = list(files_below(path))
            idx = [file for file in files if is_idx_name(file.name)]
            images = [file for file in files if is_image_name(file.name)]
            if not idx and not images:
                raise RegardError(
                    f"The folder '{path}' has no images.",
                    f"No file below it ends in one of {', '.join(sorted(ENDINGS))}, and none is an idx file.",
                    "Correct the path in [data], or give the folder with --data DIR.",
                )
            return IdxFiles(path, idx) if idx else ImageFolder(path, images)
        if is_idx_name(path.name) or starts_as_idx(path):
            return IdxFiles(path.parent, [path, *labels_beside(path)])
        if is_archive(path):
            return Archive(path)
        table = Table(path, data.image_field, data.label_field)
        if path.suffix == ".csv" or data.image_field in table.header:
            table.check()
            return table
    raise RegardError(
        f"The form of '{path}' is not known.",
        "It is not a folder, a .tar, an idx file or a .csv with a header.",
        "Unpack it first." if path.suffix == ".zip" else "Name a folder of images, or one of those.",
    )


# ---------------------------------------------------------------- folders


class ImageFolder:
    """Images below a folder; the folders they lie in tell their labels."""

    def __init__(self, path: Path, files: list[Path]):
        self.name, self.path, self.files = path.absolute().name, path, files

    def fingerprint(self) -> str:
        return fingerprint([], [file_state(file, file.relative_to(self.path)) for file in self.files])

    def entries(self) -> list[Entry]:
        names = [file.relative_to(self.path) for file in self.files]
        labelled = zip(names, by_folder([name.parts for name in names]), strict=True)
        return [Entry(shown(name.as_posix()), shown(label), split) for name, (label, split) in labelled]

    def contents(self) -> Iterator[Content]:
        yield from self.files

    def empty_classes(self) -> Iterator[str]:
        """Folders that lie where those of the classes do, and hold no image."""
        classes = class_folders([file.relative_to(self.path).parts for file in self.files])
        for parent in sorted({folder[:-1] for folder in classes}):
            with readable(self.path):
                beside = [path.name for path in self.path.joinpath(*parent).iterdir() if path.is_dir()]
            for name in sorted(beside, key=natural_order):
                if not name.startswith(".") and (*parent, name) not in classes:
                    yield shown("/".join((self.name, *parent, name)))


def file_state(file: Path, name: Path | str) -> tuple[str, int, int]:
    """Size and time instead of the content: hashing all images would take as long as decoding them."""
    try:
        state = file.stat()
    except (OSError, ValueError):
        return str(name), -1, 0
    return str(name), state.st_size, state.st_mtime_ns


# ---------------------------------------------------------------- tables


class Table:
    """Its images lie where it says, from its own folder on."""

    def __init__(self, path: Path, image_field: str, label_field: str):
        self.name, self.path = path.name, path
        self.image_field, self.label_field = image_field, label_field
        with path.open("rb") as raw:
            first = raw.readline(LONGEST_HEADER).decode("utf-8-sig", "replace")
        try:
            self.header = [name.strip() for name in next(csv.reader([first]), [])]
        except csv.Error:
            self.header = []

    def check(self) -> None:
        if self.image_field not in self.header:
            raise RegardError(
                f"'{self.path}' has no column '{self.image_field}'.",
                f"Its header, the first line, is: {shown(', '.join(self.header)[:200]) or '(empty)'}.",
                "Correct the header, or set data.image_field to the column with the paths of the images.",
            )

    def fingerprint(self) -> str:
        states = [file_state(content, entry.name) for entry, content in self.rows if isinstance(content, Path)]
        return fingerprint([self.path], self.image_field, self.label_field, states)

    @cached_property
    def rows(self) -> list[tuple[Entry, Content]]:
        image = self.header.index(self.image_field)
        label = self.header.index(self.label_field) if self.label_field in self.header else None
        rows: list[tuple[Entry, Content]] = []
        with readable(self.path), self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            file.readline(LONGEST_HEADER)
            lines = CsvLines(file)
            reader = csv.reader(lines)
            while True:
                number = lines.begin() + 1  # after the header
                line = Entry(f"{self.name} line {number}", "", "")
                try:
                    fields = next(reader, None)
                except csv.Error as error:
                    rows.append((line, BadImage(f"It is not valid CSV: {error}.")))
                    continue
                if fields is None:
                    return rows
                if not all(_is_text(field) for field in fields):
                    raise RegardError(
                        f"Line {lines.number + 1:,} of '{self.path}' is not valid UTF-8.",
                        "Its labels and paths would be mangled.",
                        "Convert the file to UTF-8.",
                    )
                if len(fields) == len(self.header) and fields[image].strip():
                    name, its_label = fields[image].strip(), fields[label].strip() if label is not None else ""
                    rows.append((Entry(shown(name), shown(its_label), ""), self.path.parent / name))
                elif any(field.strip() for field in fields):
                    same = len(fields) == len(self.header)
                    reason = f"It has {counted(len(fields), 'column')}, the header {len(self.header)}."
                    rows.append((line, BadImage("It names no image." if same else reason)))

    def entries(self) -> list[Entry]:
        return [entry for entry, _ in self.rows]

    def contents(self) -> Iterator[Content]:
        return (content for _, content in self.rows)


def _is_text(field: str) -> bool:
    """Bytes that are not UTF-8 were read as halves of characters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in field)


# ---------------------------------------------------------------- built in


class Digits:
    """Handwritten digits of 8 x 8 greys from 0 to 16."""

    name = "digits"

    def fingerprint(self) -> str:
        return fingerprint([], "digits")

    @cached_property
    def loaded(self) -> Any:
        from sklearn.datasets import load_digits

        return load_digits()

    def entries(self) -> list[Entry]:
        return [Entry(f"digits #{number}", str(label), "") for number, label in enumerate(self.loaded.target)]

    def contents(self) -> Iterator[Content]:
        yield from np.rint(self.loaded.images * (255 / 16)).astype(np.uint8)
