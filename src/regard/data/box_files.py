"""Files that say where objects are in images.

    jsonl   a line for each image: {"image": "a.jpg", "boxes": [[x0, y0, x1, y1], …], "labels": ["cat", …]}; or each box
            with its label: ["cat", x0, y0, x1, y1]; also "split": "train". Also .jsonl.gz
    COCO    one .json with images, annotations and categories; boxes are x, y, width, height there. Crowds are left out
    VOC     an .xml for each image, in a folder; pixels are counted from 1 there, and the last one is in the box

All become the same: the name of an image, and its boxes x0, y0, x1, y1. Whether a box has a size and lies in its image
is judged where the image is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from regard.data.image_entries import SPLIT_NAMES
from regard.data.images import files_below
from regard.data.lines import HALF_A_CHARACTER, encodable, ending_of, numbered_lines, open_file, readable
from regard.data.plain_xml import BadXml, parse_xml
from regard.errors import RegardError
from regard.files import read_small

LARGEST_COCO = 2**30  # bytes; that of COCO itself has half of it
Box = list[Any]  # label, x0, y0, x1, y1


@dataclass
class BoxedImage:
    """An image as a file of boxes has it. With a problem it cannot be used."""

    name: str  # of its file, or of the place that says nothing usable
    boxes: list[Box] = field(default_factory=list)
    split: str = ""
    problem: str = ""


def is_box_file(path: Path) -> bool:
    """Whether a path is of one of the forms: by its name, or for a folder by an .xml in it."""
    if path.is_dir():
        return any(file.suffix == ".xml" for file in files_below(path))
    return ending_of(path) in (".jsonl", ".json", ".xml")


def box_files_of(path: Path) -> list[Path]:
    """The files that are read for a path: itself, or the .xml files below it."""
    return [file for file in files_below(path) if file.suffix == ".xml"] if path.is_dir() else [path]


def read_box_file(path: Path) -> list[BoxedImage]:
    """All images of a file, or of a folder of .xml files; what is said of one in several places is put together."""
    reader = {".jsonl": _jsonl, ".json": _coco}.get(ending_of(path), _voc)
    together: dict[str, BoxedImage] = {}
    with readable(path):
        for image in reader(path):
            first = together.setdefault(image.name, image)
            if first is not image:
                first.boxes += image.boxes
                first.problem = first.problem or image.problem
    return list(together.values())


# ---------------------------------------------------------------- lines of JSON


def _jsonl(path: Path) -> Iterator[BoxedImage]:
    with open_file(path) as file:
        for line in numbered_lines(file):
            if line.problem or line.text.strip():
                yield _of_line(f"{path.name} line {line.number}", line.text, line.problem)


def _of_line(place: str, text: str, problem: str) -> BoxedImage:
    if problem:
        return BoxedImage(place, problem=problem)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return BoxedImage(place, problem="It is not valid JSON.")
    if not isinstance(record, dict) or not isinstance(record.get("image"), str) or not record["image"].strip():
        return BoxedImage(place, problem='It names no image: {"image": "a.jpg", …}.')
    name, boxes, labels = record["image"].strip(), record.get("boxes"), record.get("labels")
    if not encodable(*_texts_in([name, boxes, labels])):
        return BoxedImage(place, problem=HALF_A_CHARACTER)
    split = SPLIT_NAMES.get(str(record.get("split", "")).lower(), "")
    if not isinstance(boxes, list) or not all(isinstance(box, list) for box in boxes):
        return BoxedImage(name, [], split, "It has no list of boxes.")
    if labels is None:  # each box has its own
        return BoxedImage(name, boxes, split)
    if not isinstance(labels, list) or len(labels) != len(boxes):
        many = len(labels) if isinstance(labels, list) else 0
        return BoxedImage(name, [], split, f"It has {len(boxes)} boxes and {many} labels.")
    return BoxedImage(name, [[label, *box] for label, box in zip(labels, boxes, strict=True)], split)


def _texts_in(value: Any) -> Iterator[str]:
    """All that stand in a list, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)


# ---------------------------------------------------------------- COCO


def _coco(path: Path) -> list[BoxedImage]:
    try:
        content = json.loads(read_small(path, LARGEST_COCO))
        named = {category["id"]: str(category["name"]) for category in content["categories"]}
        images = {image["id"]: BoxedImage(str(image["file_name"])) for image in content["images"]}
        annotations = list(content["annotations"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RegardError(
            f"'{path}' is not a COCO file.",
            f"It is an object with images, annotations and categories ({type(error).__name__}: {error}).",
            "Correct it, or give the boxes as .jsonl, one line for each image.",
        ) from None
    for annotation in annotations:
        image = annotation.get("image_id") if isinstance(annotation, dict) else None
        if not isinstance(image, int | str) or image not in images:
            raise RegardError(
                f"'{path}' has a box of the image {image!r}, which is not among its images.",
                "Every annotation has an image_id that one of the images has as its id.",
                "Correct the file.",
            )
        if not annotation.get("iscrowd"):
            box, category = annotation.get("bbox"), annotation.get("category_id")
            images[image].boxes.append([named.get(category, ""), *_corners(box)])
    return list(images.values())


def _corners(box: Any) -> list[Any]:
    """Of x, y, width and height."""
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(number, int | float) for number in box):
        return []
    x, y, width, height = box
    return [x, y, x + width, y + height]


# ---------------------------------------------------------------- VOC


def _voc(path: Path) -> Iterator[BoxedImage]:
    for file in box_files_of(path):
        try:
            root = parse_xml(read_small(file))
            name = _text(root, "filename")
            if not name:
                raise BadXml("It names no image: <filename>.")
        except BadXml as bad:
            yield BoxedImage(file.name, problem=str(bad))
        else:
            yield BoxedImage(name, [_voc_box(found) for found in root.iter("object")])


def _voc_box(found: Element) -> Box:
    sides = [_text(found, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
    try:
        left, top, right, bottom = map(float, sides)
    except ValueError:
        return [_text(found, "name")]
    return [_text(found, "name"), left - 1, top - 1, right, bottom]


def _text(element: Element, path: str) -> str:
    return (element.findtext(path) or "").strip()
