"""Images that cannot be used: skipped, counted and named; and an error where nothing else is left."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from expect import error_of
from image_sources import mnist, tar, write
from photos import SETTINGS, numbers, pixels, spoil
from regard.data.image_cache import image_splits, must_have_classes
from regard.settings import ImageData


@pytest.mark.parametrize("packed", [False, True])
def test_bad_images_are_skipped_and_named(photos, tmp_path, packed):
    photos.add("dog", range(9)).add("cat", range(9, 20))
    spoil(photos.folder / "dog")
    images = "."
    if packed:
        images = str(tmp_path / "a.tar")
        with tarfile.open(images, "w") as archive:
            archive.add(photos.folder, ".")
    for _ in range(2):  # decoded, and from the cache
        splits = photos.splits(images=images, held_out=0.0)
        assert sorted(numbers(splits.train)) == list(range(20))
        assert sorted(splits.skipped) == [
            "dog/half.jpg: It is damaged or cut short.",
            "dog/text.png: It is not an image of a known form (PNG, JPEG, BMP, GIF, WEBP, TIFF, PPM).",
        ]


def test_a_table_with_missing_files_names_them(photos):
    photos.add("x", range(2))
    (photos.folder / "a.csv").write_text("path,label\nx/0.png,dog\nx/1.png,cat\nx/2.png,cat\n")
    splits = photos.splits(images="a.csv", held_out=0.0)
    assert splits.skipped == ["x/2.png: It is missing."]
    photos.add("x", range(2, 3))
    assert photos.splits(images="a.csv", held_out=0.0).skipped == []


def test_nothing_but_bad_images_is_an_error(photos):
    (photos.folder / "dog").mkdir()
    spoil(photos.folder / "dog")
    error = error_of(photos.splits)
    assert error.what == "None of the 2 training images in 'photos' can be used." and "half.jpg" in error.why


@pytest.mark.parametrize("packed", [False, True])
def test_idx_images_without_their_labels_name_the_file_that_is_looked_for(tmp_path, packed):
    files = mnist(12, 5)
    del files["train-labels-idx1-ubyte"]
    place = tar(tmp_path / "digits.tar", files) if packed else write(tmp_path / "digits", files)
    data = ImageData(images=str(place), cache=str(tmp_path / "cache"))
    error = error_of(image_splits, data, SETTINGS)
    assert error.what == f"None of the 12 training images in '{place.name}' has a label."
    assert "train-images-idx3-ubyte #0" in error.why and "there is no 'train-labels-idx1-ubyte'" in error.why


def test_idx_images_of_the_test_without_labels_are_left_out(tmp_path):
    files = mnist(12, 5)
    del files["t10k-labels-idx1-ubyte"]
    data = ImageData(images=str(write(tmp_path / "digits", files)), cache=str(tmp_path / "cache"))
    splits = image_splits(data, SETTINGS)
    assert len(splits.skipped) == 5 and all("no 't10k-labels-idx1-ubyte'" in line for line in splits.skipped)
    assert all(name.startswith("train") for name in splits.test.names)


def test_idx_images_none_of_which_has_a_label_name_the_file_too(tmp_path):
    files = {name: content for name, content in mnist(12, 5).items() if "images" in name}
    data = ImageData(images=str(write(tmp_path / "digits", files)), cache=str(tmp_path / "cache"))
    error = error_of(must_have_classes, image_splits(data, SETTINGS))
    assert error.what.startswith("17 images have no label") and "'train-labels-idx1-ubyte'" in error.why


def test_training_images_left_out_for_two_reasons_are_not_said_to_lack_labels(photos):
    photos.add("train", range(3)).add("test/cat", range(3, 6)).add("train/cat", range(0))
    assert error_of(photos.splits).what == "None of the 3 training images in 'photos' has a label."
    spoil(photos.folder / "train" / "cat")
    (photos.folder / "test" / "broken.png").touch()
    error = error_of(photos.splits)
    assert error.what == "None of the 5 training images in 'photos' can be used." and "train/" in error.why


def test_names_that_cannot_be_printed_take_one_line(photos):
    photos.add("dog", range(3)).add("cat", range(3, 6))
    (photos.folder / "dog" / "a\tb\nc\x1b.png").touch()
    assert photos.splits(held_out=0.0).skipped == ["dog/a�b�c�.png: It is empty."]
    (photos.folder / "e\nf" / "dog").mkdir(parents=True)
    spoil(photos.folder / "e\nf" / "dog")
    assert "in 'e�f' can be used" in error_of(photos.splits, images="e\nf").what


def test_an_archive_without_images_is_an_error(photos, tmp_path):
    (photos.folder / "notes.txt").touch()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(photos.folder, ".")
    assert "no images in 'a.tar'" in error_of(photos.splits, images=str(tmp_path / "a.tar")).what


def test_many_images_come_out_in_the_order_they_went_in(photos):
    photos.add("v/dog", range(500)).add("t/dog", range(500, 505))
    splits = photos.splits(images="", train=["t"], valid=["v"], held_out=0.0)
    assert numbers(splits.valid) == list(range(500))
    assert np.array_equal(splits.valid.pixels_NHWC, np.stack([pixels(number) for number in range(500)]))
