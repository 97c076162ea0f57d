"""Boxes from files of every form, and what becomes of those that are wrong."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data.box_sources import check_box_sources
from regard.data.boxes import box_splits, cut_at_edges, place, place_back
from regard.data.images import placement, read_with_size
from regard.errors import RegardError
from regard.settings import BoxData, ImageSettings

SIZE = ImageSettings(size=[20, 40], fit="stretch")
CAT, DOG = [2.0, 3.0, 12.0, 9.0], [20.0, 0.0, 40.0, 20.0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve images of 40 x 20; each has a cat, and those of even numbers a dog."""
    (tmp_path / "images").mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    return tmp_path


def records() -> list[dict]:
    return [
        {"image": f"{n}.png", "boxes": [CAT, DOG][: 2 - n % 2], "labels": ["cat", "dog"][: 2 - n % 2]}
        for n in range(12)
    ]


def as_lines(folder: Path, listed: list[dict]) -> str:
    (folder / "boxes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in listed))
    return "boxes.jsonl"


def as_coco(folder: Path, listed: list[dict]) -> str:
    names = {"cat": 7, "dog": 3}
    annotations = [
        {"image_id": n, "category_id": names[label], "bbox": [x0, y0, x1 - x0, y1 - y0], "iscrowd": 0}
        for n, record in enumerate(listed)
        for (x0, y0, x1, y1), label in zip(record["boxes"], record["labels"], strict=True)
    ]
    annotations.append({"image_id": 1, "category_id": 3, "bbox": [0, 0, 40, 20], "iscrowd": 1})
    images = [{"id": n, "file_name": record["image"]} for n, record in enumerate(listed)]
    categories = [{"id": number, "name": name} for name, number in names.items()]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "boxes.json").write_text(json.dumps(content))
    return "boxes.json"


def as_voc(folder: Path, listed: list[dict]) -> str:
    (folder / "Annotations").mkdir()
    for record in listed:
        objects = "".join(
            f"<object><name>{label}</name><bndbox><xmin>{x0 + 1:g}</xmin><ymin>{y0 + 1:g}</ymin><xmax>{x1:g}</xmax>"
            f"<ymax>{y1:g}</ymax></bndbox></object>"
            for (x0, y0, x1, y1), label in zip(record["boxes"], record["labels"], strict=True)
        )
        text = f"<annotation><filename>{record['image']}</filename>{objects}</annotation>"
        (folder / "Annotations" / f"{Path(record['image']).stem}.xml").write_text(text)
    return "Annotations"


def listing(folder: Path, size: ImageSettings = SIZE, **settings) -> dict[str, list]:
    """Class and corners of every box, by the name of its image, of all splits."""
    data = BoxData(root=str(folder), cache=str(folder / "cache"), held_out=0.2, **settings)
    check_box_sources(data)
    _, boxes = box_splits(data, size)
    found = {}
    for part in (boxes.train, boxes.valid, boxes.test):
        for number, name in enumerate(part.images.names):
            corners_M4, classes_M = part.given.of(number)
            names = [boxes.classes[kind] for kind in classes_M]
            found[name] = [[label, *corners] for label, corners in zip(names, corners_M4.tolist(), strict=True)]
    return found


EXPECTED = {f"{n}.png": [["cat", *CAT], ["dog", *DOG]][: 2 - n % 2] for n in range(12)}


@pytest.mark.parametrize("form", [as_lines, as_coco, as_voc])
def test_every_form_says_the_same(folder, form):
    assert listing(folder, images=form(folder, records())) == EXPECTED


@pytest.mark.parametrize("form", [as_lines, as_coco, as_voc])
def test_images_may_be_elsewhere_and_are_found_by_the_end_of_their_path(folder, form):
    boxes = form(folder, records())
    with tarfile.open(folder / "images.tar", "w") as archive:
        archive.add(folder / "images", "pets/images")
    (folder / "images").rename(folder / "gone")
    found = listing(folder, images="images.tar", boxes=[boxes])
    assert {name.rsplit("/", 1)[-1]: boxes for name, boxes in found.items()} == EXPECTED


def test_shares_labels_in_boxes_and_splits_of_their_own(folder):
    listed = [
        {
            "image": f"images/{n}.png",
            "split": ["train", "val", "test"][n % 3],
            "boxes": [["cat", 0.05, 0.15, 0.3, 0.45]],
        }
        for n in range(12)
    ]
    with gzip.open(folder / "boxes.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in listed)
    data = BoxData(root=str(folder), cache=str(folder / "c"), images="boxes.jsonl.gz", box_unit="shares")
    _, boxes = box_splits(data, SIZE)
    assert [len(part) for part in (boxes.train, boxes.valid, boxes.test)] == [4, 4, 4]
    np.testing.assert_allclose(boxes.test.given.of(0)[0], [CAT], rtol=1e-6)


def test_wrong_boxes_are_named_and_left_out_and_long_ones_are_cut(folder):
    listed = records()
    listed[0]["boxes"] = [
        [-5, -5, 50, 10],
        [3, 3, 3, 9],
        [9, 9, 2, 12],
        [float("nan"), 0, 4, 4],
        [50, 0, 60, 10],
        [1, 2, 3],
        [1, 2, 3, "4"],
        [1, 1, 5, 5],
    ]
    listed[0]["labels"] = ["cat"] * 7 + [""]
    data = BoxData(root=str(folder), cache=str(folder / "cache"), images=as_lines(folder, listed), held_out=0.2)
    splits, boxes = box_splits(data, SIZE)
    assert boxes.skipped == [
        "0.png: box 2 has no size",
        "0.png: box 3 has no size",
        "0.png: box 4 has a corner that is no number",
        "0.png: box 5 lies outside of the image",
        "0.png: box 6 is not four numbers",
        "0.png: box 7 is not four numbers",
        "0.png: box 8 has no label",
    ]
    assert listing(folder, images="boxes.jsonl")["0.png"] == [["cat", 0.0, 0.0, 40.0, 10.0]]
    assert not splits.skipped


def test_wrong_lines_are_named_and_left_out(folder):
    as_lines(folder, records())
    with (folder / "boxes.jsonl").open("a") as file:
        file.write('{"image": "3.png", \nnot json\n{"boxes": []}\n\n')
    Image.new("L", (4, 4)).save(folder / "images" / "x.png")
    with (folder / "boxes.jsonl").open("a") as file:
        file.write('{"image": "x.png", "boxes": [[1, 2, 3, 4]], "labels": []}\n')
        file.write('{"image": "y.png", "boxes": [[1, 2, 3, 4]], "labels": ["a\\ud800"]}\n')
    data = BoxData(root=str(folder), cache=str(folder / "cache"), images="boxes.jsonl", held_out=0.2)
    splits, _ = box_splits(data, SIZE)
    assert splits.skipped == [
        "boxes.jsonl line 13: It is not valid JSON.",
        "boxes.jsonl line 14: It is not valid JSON.",
        'boxes.jsonl line 15: It names no image: {"image": "a.jpg", …}.',
        "x.png: It has 1 boxes and 0 labels.",
        "boxes.jsonl line 18: It holds half a character.",
    ]


def test_an_xml_with_entities_is_left_out_and_never_expanded(folder):
    from test_plain_xml import LAUGHS

    as_voc(folder, records())
    (folder / "Annotations" / "laughs.xml").write_bytes(LAUGHS)
    data = BoxData(root=str(folder), cache=str(folder / "cache"), images="Annotations", held_out=0.2)
    splits, boxes = box_splits(data, SIZE)
    assert splits.skipped == ["laughs.xml: It has a doctype or entities, which are not read."]
    assert sum(len(part) for part in (boxes.train, boxes.valid, boxes.test)) == 12


@pytest.mark.parametrize("separate", [False, True])
def test_an_unknown_image_is_an_error_that_names_it(folder, separate):
    as_lines(folder, [*records(), {"image": "zebra.png", "boxes": [], "labels": []}])
    named = {"images": "images", "boxes": ["boxes.jsonl"]} if separate else {"images": "boxes.jsonl"}
    with pytest.raises(RegardError, match=r"'zebra.png', which .*boxes.jsonl' has boxes for, is missing"):
        listing(folder, **named)


def test_an_image_without_boxes_given_is_left_out_and_one_without_objects_is_not(folder):
    listed = records()[:-1]
    listed[3] = {"image": "3.png", "boxes": [], "labels": []}
    found = listing(folder, images="images", boxes=[as_lines(folder, listed)])
    assert found == {name: boxes for name, boxes in EXPECTED.items() if name != "11.png"} | {"3.png": []}


def test_a_box_of_an_unknown_image_in_coco_is_an_error(folder):
    as_coco(folder, records())
    content = json.loads((folder / "boxes.json").read_text())
    content["annotations"][0]["image_id"] = 99
    (folder / "boxes.json").write_text(json.dumps(content))
    with pytest.raises(RegardError, match="the image 99"):
        listing(folder, images="boxes.json")


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"images": 3}', '{"images": [{}], "annotations": [], "categories": []}']
)
def test_what_is_not_coco_is_an_error(folder, content):
    (folder / "boxes.json").write_text(content)
    with pytest.raises(RegardError, match="is not a COCO file"):
        listing(folder, images="boxes.json")


def test_test_boxes_of_an_unknown_class_are_an_error(folder):
    as_lines(folder, records()[:6])
    other = [{"image": "7.png", "boxes": [CAT], "labels": ["cow"]}]
    (folder / "other.jsonl").write_text(json.dumps(other[0]) + "\n")
    with pytest.raises(RegardError, match=r"test boxes .* none of: 'cow' \(1\)"):
        listing(folder, images="boxes.jsonl", test=["other.jsonl"])


# ---------------------------------------------------------------- where boxes are when images are brought to size


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize("own", [(40, 20), (20, 40), (64, 64), (200, 31)])
def test_a_box_is_where_its_pixels_are(tmp_path, fit, own):
    """A bright rectangle is drawn, the image is brought to size, and the bright pixels are looked for."""
    width, height = own
    box = np.array([[width * 0.4, height * 0.3, width * 0.6, height * 0.7]], np.float32).round()
    pixels_HW = np.zeros((height, width), np.uint8)
    x0, y0, x1, y1 = box[0].astype(int)
    pixels_HW[y0:y1, x0:x1] = 255
    Image.fromarray(pixels_HW).save(tmp_path / "a.png")
    settings = ImageSettings(size=[48, 96], colour=False, fit=fit)
    seen_HWC, size = read_with_size(tmp_path / "a.png", settings)
    assert size == own
    where = placement(own, settings)
    placed = place(box, where)
    expected = cut_at_edges(placed, 96, 48)[0]
    rows, columns = np.nonzero(seen_HWC[..., 0] >= 128)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(found, expected, atol=1.01)
    np.testing.assert_allclose(place_back(placed, where), box, atol=1e-3)


def test_the_size_of_an_image_is_that_of_the_upright_one(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (640, 400)).save(tmp_path / "a.jpg", exif=exif)
    pixels, size = read_with_size(tmp_path / "a.jpg", ImageSettings(size=8))
    assert size == (400, 640) and pixels.shape == (8, 8, 3)
