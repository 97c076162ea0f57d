"""Images with captions: every form they come in, what is left out, and which caption comes when."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import numbered_images
from image_sources import png
from regard.data.batch import DataState
from regard.data.caption_batches import Captions, CaptionStream, in_order
from regard.data.captions import Scenes, caption_sources, captions_of, open_captions
from regard.data.image_cache import ImageSplits, image_splits
from regard.data.ragged import Ragged
from regard.data.samples import scenes
from regard.data.tokenizers import END, PAD, START
from regard.errors import RegardError
from regard.settings import CaptionData, ImageSettings

CAPTIONS = {"a": ["a dog", "one dog"], "b": ["a cat"], "c": ["two birds"], "d": ["a fish"], "e": ["an owl"]}


def files() -> dict[str, bytes]:
    """Images with captions beside them, an image and a caption that are alone, and what is neither."""
    content = {f"in/{name}.png": png(number * 40) for number, name in enumerate(CAPTIONS)}
    content |= {f"in/{name}.txt": "\n".join([*texts, ""]).encode() for name, texts in CAPTIONS.items()}
    return content | {
        "in/alone.png": png(7),
        "in/blank.png": png(8),
        "in/blank.txt": b" \n\n",
        "in/wrong.png": png(9),
        "in/wrong.txt": b"\xff\xfe",
        "in/nothing.txt": b"about what?",
        "in/notes.md": b"no caption",
    }


def read(data: CaptionData) -> tuple[dict[str, list[str]], list[str]]:
    """The captions of all images by name, whatever their split; and what is left out."""
    splits: ImageSplits = image_splits(data, ImageSettings(size=4), caption_sources)
    found = {}
    for images in (splits.train, splits.valid, splits.test):
        found |= dict(zip(images.names, map(captions_of, images.attached), strict=True))
    return found, sorted(splits.skipped)


def write(folder: Path, content: dict[str, bytes]) -> None:
    for name, raw in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)


LEFT_OUT = [
    "in/alone.png: It has no caption: there is no 'in/alone.txt'.",
    "in/blank.png: It has no caption.",
    "in/nothing.txt: There is no image beside this caption.",
    "in/wrong.png: Its captions are not valid UTF-8.",
]


@pytest.mark.parametrize("form", ["folder", "tar", "tar.xz"])
def test_captions_lie_beside_images(form, tmp_path):
    source = tmp_path / "source"
    write(source, files())
    if form != "folder":
        packed = tmp_path / f"all.{form}"
        with tarfile.open(packed, "w:xz" if form.endswith("xz") else "w") as archive:
            archive.add(source / "in", "in")
        source = packed
    found, left_out = read(CaptionData(images=str(source), held_out=0.2))
    assert found == {f"in/{name}.png": texts for name, texts in CAPTIONS.items()}
    assert left_out == LEFT_OUT


def lines(kind: str) -> bytes:
    records: list[object] = [{"image": f"in/{name}.png", "captions": texts} for name, texts in CAPTIONS.items()]
    if kind == "one caption":
        records = [{"image": f"in/{n}.png", "caption": text} for n, texts in CAPTIONS.items() for text in texts]
    if kind == "tab":
        listed = [f"in/{n}.png#{at}\t{text}" for n, texts in CAPTIONS.items() for at, text in enumerate(texts)]
        return "\n".join([*listed, "in/gone.png\tnothing", "no tab", ""]).encode()
    bad = ['{"image": "in/gone.png", "caption": "nothing"}', "[1]", '{"image": "in/alone.png", "captions": [" "]}']
    return "\n".join([*map(json.dumps, records), *bad, ""]).encode()


@pytest.mark.parametrize("place", ["beside", "folder", "archive"])
@pytest.mark.parametrize("kind", ["captions", "one caption", "tab"])
def test_a_list_names_images_and_captions(kind, place, tmp_path):
    write(tmp_path / "there", files())
    pictures = ""
    if place == "folder":
        pictures = "there"
    elif place == "archive":
        pictures = "there.tar"
        with tarfile.open(tmp_path / pictures, "w") as archive:
            archive.add(tmp_path / "there", "some/where")
    name = "list.tsv" if kind == "tab" else "list.jsonl.gz"
    content = lines(kind) if kind == "tab" else gzip.compress(lines(kind))
    (tmp_path / ("there" if place == "beside" else ".") / name).write_bytes(content)
    images = f"there/{name}" if place == "beside" else name
    found, left_out = read(CaptionData(root=str(tmp_path), images=images, pictures=pictures, held_out=0.2))
    assert found == {f"in/{name}.png": texts for name, texts in CAPTIONS.items()}
    gone = "It is not in 'there.tar'." if place == "archive" else "It is missing."
    wrong = {"captions": 7, "one caption": 8, "tab": 8}[kind]
    problem = "It is not an image, a TAB and a caption." if kind == "tab" else "It is not a JSON object."
    no_caption = [] if kind == "tab" else ["in/alone.png: It has no caption."]
    assert left_out == sorted([f"in/gone.png: {gone}", f"{name} line {wrong}: {problem}", *no_caption])


def test_changed_captions_are_other_data(tmp_path):
    write(tmp_path, files())
    data = CaptionData(root=str(tmp_path), images="in", held_out=0.2)
    before = image_splits(data, ImageSettings(size=4), caption_sources).fingerprints
    for name in CAPTIONS:
        (tmp_path / f"in/{name}.txt").write_text("another")
    after = image_splits(data, ImageSettings(size=4), caption_sources).fingerprints
    assert all(before[split] != after[split] for split in before)


def test_half_a_character_is_named_and_left_out(tmp_path):
    (tmp_path / "list.jsonl").write_text(
        '{"image": "a.png", "captions": ["a dog"]}\n{"image": "a.png", "captions": ["\\ud800"]}\n'
    )
    source: Any = open_captions(tmp_path / "list.jsonl", CaptionData())
    assert [image.problem for image in source.images] == ["", "It holds half a character."]


def test_images_without_any_caption_are_an_error(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    with pytest.raises(RegardError) as caught:
        read(CaptionData(images=str(tmp_path)))
    assert "None of the 1 training images" in caught.value.what and "no caption" in caught.value.why


def test_scenes_are_in_their_own_splits(monkeypatch):
    monkeypatch.setattr(scenes, "COUNTS", {"train": 3, "valid": 2, "test": 1})
    source = Scenes()
    assert [entry.split for entry in source.entries()] == ["train"] * 3 + ["valid"] * 2 + ["test"]
    for entry, pixels, number in zip(source.entries(), source.contents(), (0, 1, 2, 0, 1, 0), strict=True):
        scene = scenes.scene(entry.split, number)
        assert captions_of(entry.attached) == [scene.caption]
        assert np.array_equal(pixels, scene.pixels_HWC)


# ---------------------------------------------------------------- batches

COUNTS = [1, 2, 3, 5, 1, 4, 2]  # captions of each image; token 10 · image + caption + 3 tells which it is


def some_captions() -> Captions:
    tokens = [[10 * image + each + 3] * (each + 1) for image, count in enumerate(COUNTS) for each in range(count)]
    return Captions(Ragged.from_lists(tokens), np.cumsum([0, *COUNTS]))


def test_every_image_goes_through_its_captions_in_turn():
    images = numbered_images(len(COUNTS), 4, 5)
    stream = CaptionStream(images, some_captions().fitted(8), 8, len(COUNTS), seed=1)
    seen: Counter[int] = Counter()
    firsts = set()
    for epoch, (batch, _) in zip(range(60), stream.batches(DataState()), strict=False):
        images_seen = {(row[1] - 3) // 10 for row in batch.caption_BT.tolist()}
        assert images_seen == set(range(len(COUNTS))), "every image once"
        for row, pixels in zip(batch.caption_BT.tolist(), batch.pixels_BHWC, strict=True):
            image, caption = divmod(row[1] - 3, 10)
            assert pixels.numpy().tolist() == images.pixels_NHWC[image].tolist()
            seen[row[1] - 3] += 1
            if epoch == 0 and COUNTS[image] > 1:
                firsts.add(caption)
    assert seen == {10 * image + each: 60 // count for image, count in enumerate(COUNTS) for each in range(count)}
    assert len(firsts) > 1, "they do not all begin with their first"


def test_a_caption_is_read_after_start_and_ends():
    images = numbered_images(len(COUNTS), 4, 5)
    batches = list(in_order(images, some_captions().fitted(4), 4, rows=5))
    assert [len(batch.labels) for batch in batches] == [5, 5, 5, 3]
    read = [row for batch in batches for row in batch.caption_BT.tolist()]
    labels = [row for batch in batches for row in batch.labels.tolist()]
    whole = {1: [END, PAD, PAD], 2: [END, PAD], 3: [END], 4: [], 5: []}
    expected = [(10 * image + each + 3, each + 1) for image, count in enumerate(COUNTS) for each in range(count)]
    for row, label, (token, length) in zip(read, labels, expected, strict=True):
        assert label == ([token] * min(length, 4) + whole[length])[:4]
        kept = min(length, 3)
        assert row == [START, *[token] * kept, *[PAD] * (3 - kept)]
