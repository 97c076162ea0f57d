"""Images decoded once: the splits, what is held out, and what is decoded again."""

from __future__ import annotations

import os
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from expect import error_of
from photos import SETTINGS, numbers, pixels, spoil
from regard.data.image_cache import image_splits, labelled_images, must_have_classes
from regard.settings import ImageData, ImageSettings

# --- Splits ----------------------------------------------------------------------------------------------


def test_every_image_keeps_its_pixels_its_label_and_its_name(photos):
    photos.add("dog", range(300)).add("cat", range(300, 400))
    splits = photos.splits(held_out=0.2)
    assert splits.classes == ["cat", "dog"]
    for images in (splits.train, splits.valid, splits.test):
        assert len(images) == len(images.names) == len(images.pixels_NHWC) > 50
        assert images.labels_N.dtype == np.int64
        for at, name in enumerate(images.names):
            assert splits.classes[images.labels_N[at]] == name.split("/")[0]
            assert np.array_equal(images.pixels_NHWC[at], pixels(numbers(images)[at]))
    assert sorted(numbers(splits.train) + numbers(splits.valid) + numbers(splits.test)) == list(range(400))


def test_pixels_stay_on_disk(photos):
    photos.add("dog", range(50)).add("cat", range(50, 99))
    splits = photos.splits(held_out=0.1)
    for images in (splits.train, splits.valid, splits.test):
        assert isinstance(images.pixels_NHWC, np.memmap)
        assert not images.pixels_NHWC.flags.owndata and not images.pixels_NHWC.flags.writeable


def test_folders_named_as_splits_are_the_splits(photos):
    photos.add("train/dog", range(9)).add("train/cat", range(9, 20))
    photos.add("val/dog", range(20, 25)).add("test/cat", range(25, 37))
    splits = photos.splits(held_out=0.4)
    assert sorted(numbers(splits.train)) == list(range(20))
    assert numbers(splits.valid) == list(range(20, 25))
    assert numbers(splits.test) == list(range(25, 37))
    assert (splits.valid.labels_N == 1).all() and (splits.test.labels_N == 0).all()


def test_only_what_is_missing_is_held_out(photos):
    photos.add("train/dog", range(200)).add("train/cat", range(200, 400)).add("test/cat", range(400, 410))
    splits = photos.splits(held_out=0.2)
    assert numbers(splits.test) == list(range(400, 410))
    assert 40 < len(splits.valid) < 120
    assert len(splits.train) + len(splits.valid) == 400


def test_shares_are_about_as_set_and_the_test_has_its_own(photos):
    photos.add("dog", range(1000)).add("cat", range(1000, 2000))
    splits = photos.splits(held_out=0.1, held_out_test=0.3)
    assert abs(len(splits.valid) - 200) < 50 and abs(len(splits.test) - 600) < 80
    splits = photos.splits(held_out=0.0, held_out_test=0.3)
    assert len(splits.valid) == 0 and abs(len(splits.test) - 600) < 80


def test_places_can_be_named_for_each_split(photos):
    photos.add("a/dog", range(5)).add("a/cat", range(5, 9)).add("b/dog", range(9, 12))
    photos.add("v/cat", range(12, 14)).add("t/dog", range(14, 17))
    splits = photos.splits(images="", train=["a", "b"], valid=["v"], test=["t"])
    assert sorted(numbers(splits.train)) == list(range(12))
    assert (numbers(splits.valid), numbers(splits.test)) == ([12, 13], [14, 15, 16])
    assert splits.classes == ["cat", "dog"]


def test_a_place_named_for_a_split_counts_more_than_the_folder(photos):
    photos.add("all/train/dog", range(5)).add("all/train/cat", range(5, 9)).add("all/test/dog", range(9, 12))
    photos.add("other/cat", range(12, 14))
    splits = photos.splits(images="all", test=["other"], held_out=0.0)
    assert numbers(splits.test) == [12, 13]
    assert sorted(numbers(splits.train)) == list(range(9))


def test_more_images_move_none(photos):
    photos.add("dog", range(300)).add("cat", range(300, 400))
    before = photos.splits(held_out=0.2)
    photos.add("dog", range(400, 600)).add("ant", range(600, 700))
    after = photos.splits(held_out=0.2)
    for split in ("train", "valid", "test"):
        old, new = numbers(getattr(before, split)), numbers(getattr(after, split))
        assert set(old) == {number for number in new if number < 400}


def test_equal_images_are_never_on_two_sides(photos):
    photos.add("dog", range(200)).add("cat", range(200, 400))
    for number in range(400):
        label = "dog" if number < 200 else "cat"
        shutil.copy(photos.folder / label / f"{number}.png", photos.folder / label / f"{number + 1000}.png")
    splits = photos.splits(held_out=0.2)
    for images in (splits.train, splits.valid, splits.test):
        found = set(numbers(images))
        assert found and all((number + 1000 if number < 1000 else number - 1000) in found for number in found)


def test_the_same_images_as_archive_and_as_folder_are_divided_alike(photos, tmp_path):
    photos.add("dog", range(100)).add("cat", range(100, 200))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(photos.folder, "photos")
    folder = photos.splits(held_out=0.2)
    packed = photos.splits(images=str(tmp_path / "a.tar.gz"), held_out=0.2)
    assert packed.classes == folder.classes
    for split in ("train", "valid", "test"):
        one, other = getattr(folder, split), getattr(packed, split)
        assert numbers(one) == numbers(other)
        assert np.array_equal(one.pixels_NHWC, other.pixels_NHWC)
        assert np.array_equal(one.labels_N, other.labels_N)


def test_the_digits_are_images_too(tmp_path):
    data = ImageData(sample="digits", cache=str(tmp_path), held_out=0.1)
    splits = image_splits(data, ImageSettings(size=8, colour=False))
    must_have_classes(splits)
    assert splits.classes == list("0123456789")
    assert len(splits.train) + len(splits.valid) + len(splits.test) == 1797
    assert splits.train.pixels_NHWC.shape[1:] == (8, 8, 1)


def test_take_gives_the_images_asked_for(photos):
    photos.add("dog", range(9)).add("cat", range(9, 20))
    train = photos.splits(held_out=0.0).train
    some = train.take(np.array([5, 0, 5]))
    assert some.names == [train.names[5], train.names[0], train.names[5]]
    assert np.array_equal(some.pixels_NHWC, train.pixels_NHWC[[5, 0, 5]])
    assert np.array_equal(some.labels_N, train.labels_N[[5, 0, 5]])
    assert train.take(slice(2, 5)).names == train.names[2:5]
    assert len(train.take([])) == 0


# --- Classes ---------------------------------------------------------------------------------------------


def test_classes_are_in_natural_order(photos):
    for number in (10, 9, 1):
        photos.add(str(number), range(number, number + 1))
    assert photos.splits(held_out=0.0).classes == ["1", "9", "10"]


def test_a_class_that_training_lacks_is_named_with_its_count(photos):
    photos.add("train/dog", range(5)).add("train/cat", range(5, 9)).add("test/dog", range(9, 11))
    photos.add("test/zebra", range(11, 23))
    error = error_of(photos.splits, held_out=0.0)
    assert error.what == "The test images have a class that training has none of: 'zebra' (12 images)."
    photos.add("test/ant", range(30, 31))
    error = error_of(photos.splits, held_out=0.0)
    assert "2 classes" in error.what and "'ant' (1 image), 'zebra' (12 images)" in error.what


def test_images_without_labels_are_fine_unless_classes_are_needed(photos):
    photos.add(".", range(8))
    splits = photos.splits(held_out=0.0)
    assert splits.classes == []
    assert (splits.train.labels_N == -1).all()
    error = error_of(must_have_classes, splits)
    assert error.what.startswith("8 images have no label: '") and error.what.endswith(" ….")


def test_images_beside_the_classes_are_left_out_and_named(photos):
    photos.add("train/dog", range(5)).add("train/cat", range(5, 9)).add("test", range(9, 10)).add(
        "test/dog", range(10, 12)
    )
    splits = photos.splits(held_out=0.2)
    must_have_classes(splits)
    assert numbers(splits.test) == [10, 11]
    [line] = splits.skipped
    assert line.startswith("test/9.png: It has no label")


def test_labels_count_for_nothing_where_training_has_none(photos):
    photos.add("a", range(5)).add("b/dog", range(5, 9)).add("b/cat", range(9, 12))
    (photos.folder / "flat").mkdir()
    for path in (photos.folder / "a").iterdir():
        path.rename(photos.folder / "flat" / path.name)
    splits = photos.splits(images="flat", test=["b"], held_out=0.0)
    assert (splits.test.labels_N == -1).all() and len(splits.test) == 7


def test_one_class_is_not_a_task_for_a_classifier(photos):
    photos.add("dog", range(5))
    splits = photos.splits(held_out=0.0)
    assert "'dog'" in error_of(must_have_classes, splits).what


def test_other_test_images_have_labels_by_the_classes_given(photos):
    photos.add("more/cat", range(3)).add("more/zebra", range(3, 5))
    more = labelled_images([photos.folder / "more"], photos.data(), SETTINGS, ["ant", "cat", "zebra"])
    assert more.labels_N.tolist() == [1, 1, 1, 2, 2]
    assert numbers(more) == [0, 1, 2, 3, 4]
    error = error_of(labelled_images, [photos.folder / "more"], photos.data(), SETTINGS, ["ant", "cat"])
    assert "'zebra' (2 images)" in error.what
    assert "missing" in error_of(labelled_images, [photos.folder / "no"], photos.data(), SETTINGS, ["ant"]).what


# --- The cache -------------------------------------------------------------------------------------------


def test_the_second_time_nothing_is_decoded(photos):
    photos.add("dog", range(50)).add("cat", range(50, 90))
    first = photos.splits(held_out=0.1)
    times = photos.cached()
    for path in photos.folder.rglob("*.png"):  # other pixels, but as old and as long as before: not to be noticed
        state = path.stat()
        path.write_bytes(bytes(state.st_size))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    second = photos.splits(held_out=0.1)
    assert photos.cached() == times
    assert second.train.names == first.train.names
    assert np.array_equal(second.train.pixels_NHWC, first.train.pixels_NHWC)


def test_another_share_held_out_decodes_nothing_again(photos):
    photos.add("dog", range(50)).add("cat", range(50, 90))
    photos.splits(held_out=0.1)
    times = photos.cached()
    splits = photos.splits(held_out=0.3, held_out_test=0.2)
    assert photos.cached() == times
    assert len(splits.valid) > 9


@pytest.mark.parametrize("changed", [{"size": 5}, {"colour": False}, {"fit": "pad"}])
def test_other_settings_of_images_are_another_cache(photos, changed):
    photos.add("dog", range(5)).add("cat", range(5, 9))
    photos.splits(held_out=0.0)
    before = len(list(photos.cache.glob("prepared/*")))
    photos.splits(ImageSettings(**{"size": 4} | changed), held_out=0.0)
    assert len(list(photos.cache.glob("prepared/*"))) == before + 1
    photos.splits(ImageSettings(size=[4, 4]), held_out=0.0)  # the same as 4
    assert len(list(photos.cache.glob("prepared/*"))) == before + 1


def test_a_changed_image_and_a_changed_label_are_noticed(photos):
    photos.add("dog", range(5)).add("cat", range(5, 9))
    photos.splits(held_out=0.0)
    Image.fromarray(pixels(77)).save(photos.folder / "dog" / "0.png")
    changed = photos.splits(held_out=0.0).train
    assert np.array_equal(changed.pixels_NHWC[numbers(changed).index(0)], pixels(77))
    (photos.folder / "dog" / "1.png").rename(photos.folder / "cat" / "1.png")
    moved = photos.splits(held_out=0.0)
    assert moved.classes[moved.train.labels_N[numbers(moved.train).index(1)]] == "cat"


def test_what_fails_leaves_nothing_half_written(photos):
    (photos.folder / "dog").mkdir()
    spoil(photos.folder / "dog")
    error_of(photos.splits)
    assert list(photos.cache.glob("prepared/*")) == []


def test_images_stay_on_their_side_at_another_size_and_in_grey(photos):
    photos.add("cat", range(60))
    before = photos.splits(held_out=0.2)
    for settings in (ImageSettings(size=8), ImageSettings(size=[4, 6], colour=False)):
        after = photos.splits(settings, held_out=0.2)
        for split in ("train", "valid", "test"):
            assert sorted(numbers(getattr(before, split))) == sorted(numbers(getattr(after, split)))


def test_of_few_images_at_least_one_is_held_out_for_each_purpose(photos):
    splits = photos.add("cat", range(12)).splits(held_out=0.001)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (10, 1, 1)
    assert len(photos.splits(held_out=0.0, held_out_test=0.001).valid) == 0  # none is asked for


@pytest.mark.parametrize(("count", "sizes"), [(4, (4, 0, 0)), (5, (3, 1, 1))])
def test_at_least_one_is_held_out_from_five_images_on(photos, count, sizes):
    splits = photos.add("cat", range(count)).splits(held_out=0.001)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == sizes


def test_a_table_that_is_not_utf8_is_an_error_with_its_line(photos):
    photos.add("cat", range(2))
    (photos.folder / "list.csv").write_bytes("path,label\ncat/0.png,cat\ncat/1.png,Kätze\n".encode("latin-1"))
    error = error_of(photos.splits, images="list.csv")
    assert "Line 3" in error.what and "UTF-8" in error.what
