"""Where images come from: folders, tables, what the settings name; how labels and splits are told."""

from __future__ import annotations

import numpy as np
import pytest

from image_sources import error_of_reading, listing, tree
from regard.data.image_sources import check_sources, empty_classes, image_sources, images_for, open_source
from regard.data.images import BadImage
from regard.data.splits import SPLITS
from regard.errors import RegardError, UsageError
from regard.settings import ImageData

# --- Folders ---------------------------------------------------------------------------------------------


def test_the_folder_an_image_lies_in_is_its_class(tmp_path):
    tree(tmp_path, "cat/1.png", "cat/more/2.png", "dog/1.png", "loose.png", ".hidden.png", "dog/notes.txt")
    assert listing(tmp_path) == [
        ("cat/1.png", "cat", "train"),
        ("cat/more/2.png", "cat", "train"),
        ("dog/1.png", "dog", "train"),
        ("loose.png", "", "train"),
    ]


def test_images_without_folders_have_no_label(tmp_path):
    tree(tmp_path, "1.png", "2.png")
    assert listing(tmp_path) == [("1.png", "", "train"), ("2.png", "", "train")]


@pytest.mark.parametrize("valid", ["valid", "val", "Validation"])
@pytest.mark.parametrize("top", ["", "photos/", "a/b/"])
def test_train_beside_test_or_valid_divides(tmp_path, valid, top):
    names = [f"{top}{name}" for name in ("train/cat/1.png", "train/dog/x/2.png", f"{valid}/cat/3.png", "test/4.png")]
    tree(tmp_path, *names)
    assert sorted((label, split) for _, label, split in listing(tmp_path)) == [
        ("", "test"),
        ("cat", "train"),
        ("cat", "valid"),
        ("dog", "train"),
    ]


def test_train_alone_or_test_alone_divides_nothing(tmp_path):
    tree(tmp_path / "a", "train/cat/1.png", "train/dog/2.png")
    assert {(label, split) for _, label, split in listing(tmp_path / "a")} == {("cat", "train"), ("dog", "train")}
    tree(tmp_path / "b", "test/1.png", "exam/2.png")
    assert {label for _, label, _ in listing(tmp_path / "b")} == {"test", "exam"}


def test_a_folder_around_all_classes_is_not_a_class(tmp_path):
    tree(tmp_path, "flowers/rose/1.png", "flowers/tulip/2.png")
    assert {label for _, label, _ in listing(tmp_path)} == {"rose", "tulip"}


def test_one_class_alone_keeps_its_name(tmp_path):
    tree(tmp_path, "rose/1.png", "rose/2.png")
    assert {label for _, label, _ in listing(tmp_path)} == {"rose"}


def test_a_class_with_folders_in_it_keeps_its_name(tmp_path):
    tree(tmp_path, "rose/1.png", "rose/more/2.png", "rose/more/still/3.png")
    assert {label for _, label, _ in listing(tmp_path)} == {"rose"}


def test_what_lies_outside_of_the_splits_is_named_as_unused(tmp_path):
    tree(tmp_path, "train/cat/1.png", "test/cat/2.png", "extra/cat/3.png")
    _, images = images_for([open_source(tmp_path, ImageData())], "train")
    bad = [(entry.name, content.reason) for entry, content in images if isinstance(content, BadImage)]
    assert bad == [("extra/cat/3.png", "It lies outside of train, valid and test.")]


def test_a_divided_place_named_for_a_split_gives_that_split_only(tmp_path):
    tree(tmp_path, "train/cat/1.png", "test/cat/2.png")
    assert listing(tmp_path, "test") == [("test/cat/2.png", "cat", "test")]
    assert len(listing(tmp_path, "valid")) == 2  # it has none for validation, yet is named for it


def test_a_folder_without_images_is_an_error(tmp_path):
    (tmp_path / "notes.txt").touch()
    assert "has no images" in error_of_reading(tmp_path).what


def test_folders_beside_the_classes_without_images_are_named_once(tmp_path, capsys):
    tree(tmp_path / "flat", "cat/1.png", "dog/more/2.png")
    for name in ("flat/ant", "flat/bee/deep", "flat/.git", "flat/cat/none", "flat/b\tc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "flat/bee/notes.txt").touch()
    tree(tmp_path / "divided", "top/train/cat/1.png", "top/test/cat/2.png", "top/extra/cat/3.png", "top/test/4.png")
    for name in ("divided/top/train/dog", "divided/top/extra/ant", "divided/top/valid"):
        (tmp_path / name).mkdir(parents=True)
    data = ImageData(root=str(tmp_path), images="flat", valid=["flat"], test=["divided"])
    assert empty_classes([place for split in SPLITS for place in image_sources(data, split)]) == [
        "flat/ant",
        "flat/b�c",
        "flat/bee",
        "divided/top/train/dog",
    ]
    for _ in range(2):
        check_sources(data)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("4 folders beside the classes hold no images: 'flat/ant', 'flat/b�c', 'flat/bee', ") == 1


def test_images_without_folders_have_no_empty_classes(tmp_path):
    tree(tmp_path, "1.png", "2.png")
    (tmp_path / "empty").mkdir()
    assert empty_classes([open_source(tmp_path, ImageData())]) == []
    tree(tmp_path, "cat/3.png")
    assert empty_classes([open_source(tmp_path, ImageData())]) == [f"{tmp_path.name}/empty"]


# --- Tables ----------------------------------------------------------------------------------------------


def test_a_table_names_images_from_its_own_folder(tmp_path):
    tree(tmp_path / "data", "x/1.png", "x/2.png")
    table = tmp_path / "data" / "labels.csv"
    table.write_bytes('\ufefflabel,path\ncat,x/1.png\n"big, dog", x/2.png \n\n'.encode())
    assert listing(table) == [("x/1.png", "cat", "train"), ("x/2.png", "big, dog", "train")]
    _, images = images_for([open_source(table, ImageData())], "train")
    assert [content for _, content in images] == [tmp_path / "data/x/1.png", tmp_path / "data/x/2.png"]


def test_the_columns_of_a_table_can_be_named_and_the_label_may_lack(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("file,kind\n1.png,cat\n")
    assert listing(table, image_field="file", label_field="kind") == [("1.png", "cat", "train")]
    assert listing(table, image_field="file") == [("1.png", "", "train")]
    error = error_of_reading(table)
    assert "no column 'path'" in error.what and "file, kind" in error.why


def test_a_table_is_known_by_its_header(tmp_path):
    (tmp_path / "labels.txt").write_text("path,label\n1.png,cat\n")
    assert listing(tmp_path / "labels.txt") == [("1.png", "cat", "train")]


def test_bad_lines_of_a_table_are_skipped_and_named(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("path,label\n1.png,cat\n2.png\n,dog\n3.png,dog\n")
    _, images = images_for([open_source(table, ImageData())], "train")
    bad = [entry.name for entry, content in images if isinstance(content, BadImage)]
    assert bad == ["a.csv line 3", "a.csv line 4"]


@pytest.mark.parametrize("content", [b"", b"a\rb", b'"', b"\0\xff\n", b"path\rlabel"])
def test_no_garbage_is_taken_for_a_table(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    assert "no column 'path'" in error_of_reading(tmp_path / "a.csv").what
    (tmp_path / "a.bin").write_bytes(content)
    assert "is not known" in error_of_reading(tmp_path / "a.bin").what


# --- What is named in the settings -----------------------------------------------------------------------


def test_the_digits_are_1797_and_use_all_greys():
    count, images = images_for(image_sources(ImageData(sample="digits"), "train"), "train")
    entries, contents = zip(*images, strict=True)
    assert count == len(entries) == 1797
    assert entries[0].name == "digits #0" and {entry.label for entry in entries} == set("0123456789")
    pixels = np.stack(contents)
    assert pixels.shape == (1797, 8, 8)
    assert pixels.dtype == np.uint8 and pixels.min() == 0 and pixels.max() == 255
    assert len(np.unique(pixels)) == 17


def test_several_places_are_told_apart_by_name(tmp_path):
    tree(tmp_path, "a/cat/1.png", "a/dog/1.png", "b/cat/1.png", "b/dog/1.png")
    data = ImageData(root=str(tmp_path), train=["a", "b"])
    _, images = images_for(image_sources(data, "train"), "train")
    assert [entry.name for entry, _ in images] == ["a/cat/1.png", "a/dog/1.png", "b/cat/1.png", "b/dog/1.png"]


def test_everything_named_is_checked(tmp_path):
    tree(tmp_path, "photos/cat/1.png", "photos/dog/2.png")
    data = {"root": str(tmp_path), "images": "photos"}
    check_sources(ImageData(**data))
    with pytest.raises(RegardError, match=r"nowhere' is missing") as caught:
        check_sources(ImageData(**data, test=["nowhere"]))
    assert str(tmp_path) in caught.value.why and "--data DIR" in caught.value.fix
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(RegardError, match=r"form of .*a\.zip' is not known"):
        check_sources(ImageData(**data, valid=["a.zip"]))
    with pytest.raises(RegardError, match="No training data"):
        check_sources(ImageData(root=str(tmp_path)))
    with pytest.raises(UsageError, match="list within a list"):
        check_sources(ImageData(root=str(tmp_path), train=[["photos"]]))
