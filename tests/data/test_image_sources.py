"""Where images come from: every form, how labels and splits are told, and every way a source can be wrong."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.config import DataSettings
from regard.data import image_archives
from regard.data.image_sources import check_sources, found, place_of, places
from regard.data.images import BadImage
from regard.errors import RegardError, UsageError


def png(colour: int = 0, side: int = 4) -> bytes:
    file = io.BytesIO()
    Image.new("L", (side, side), colour).save(file, "PNG")
    return file.getvalue()


def tree(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    return folder


def tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def idx(*shape: int, fill: bytes | None = None) -> bytes:
    count = int(np.prod(shape))
    content = bytes(number % 10 for number in range(count)) if fill is None else fill
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


def mnist(train: int = 3, test: int = 2) -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(train, 4, 5),
        "train-labels-idx1-ubyte": idx(train),
        "t10k-images-idx3-ubyte": idx(test, 4, 5),
        "t10k-labels-idx1-ubyte": idx(test),
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def listing(path: Path, split: str = "train", **settings) -> list[tuple[str, str, str]]:
    """Name, label and split of all images of a place, in natural order."""
    count, images = found([place_of(path, DataSettings(**settings))], split)
    entries = [tuple(entry) for entry, _ in images]
    assert len(entries) == count
    return sorted(entries)


def error_of(path: Path, **settings) -> RegardError:
    with pytest.raises(RegardError) as caught:
        _, images = found([place_of(path, DataSettings(**settings))], "train")
        list(images)
    assert all(part.strip() for part in (caught.value.what, caught.value.why, caught.value.fix))
    return caught.value


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


def test_a_folder_around_all_classes_is_no_class(tmp_path):
    tree(tmp_path, "flowers/rose/1.png", "flowers/tulip/2.png")
    assert {label for _, label, _ in listing(tmp_path)} == {"rose", "tulip"}


def test_one_class_alone_keeps_its_name(tmp_path):
    tree(tmp_path, "rose/1.png", "rose/2.png")
    assert {label for _, label, _ in listing(tmp_path)} == {"rose"}


def test_what_lies_outside_of_the_splits_is_named_as_unused(tmp_path):
    tree(tmp_path, "train/cat/1.png", "test/cat/2.png", "extra/cat/3.png")
    _, images = found([place_of(tmp_path, DataSettings())], "train")
    bad = [(entry.name, content.reason) for entry, content in images if isinstance(content, BadImage)]
    assert bad == [("extra/cat/3.png", "It lies outside of train, valid and test.")]


def test_a_divided_place_named_for_a_split_gives_that_split_only(tmp_path):
    tree(tmp_path, "train/cat/1.png", "test/cat/2.png")
    assert listing(tmp_path, "test") == [("test/cat/2.png", "cat", "test")]
    assert len(listing(tmp_path, "valid")) == 2  # it has none for validation, yet is named for it


def test_a_folder_without_images_is_an_error(tmp_path):
    (tmp_path / "notes.txt").touch()
    assert "has no images" in error_of(tmp_path).what


# --- idx files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "MNIST/raw/"])
def test_a_folder_of_idx_files_is_divided_by_their_names(tmp_path, ending, below):
    files = {name + ending: gzip.compress(content) if ending else content for name, content in mnist().items()}
    write(tmp_path / below, files)
    assert listing(tmp_path) == [
        (f"t10k-images-idx3-ubyte{ending} #0", "0", "test"),
        (f"t10k-images-idx3-ubyte{ending} #1", "1", "test"),
        (f"train-images-idx3-ubyte{ending} #0", "0", "train"),
        (f"train-images-idx3-ubyte{ending} #1", "1", "train"),
        (f"train-images-idx3-ubyte{ending} #2", "2", "train"),
    ]


def test_the_pixels_of_idx_files_are_the_bytes_in_order(tmp_path):
    write(tmp_path, mnist())
    _, images = found([place_of(tmp_path / "train-images-idx3-ubyte", DataSettings())], "train")
    pixels = np.stack([content for _, content in images])
    assert np.array_equal(pixels.ravel(), np.arange(60) % 10)
    assert pixels.shape == (3, 4, 5)


def test_an_idx_file_alone_finds_its_labels_beside_it_whatever_its_folder(tmp_path):
    files = mnist()
    write(tmp_path / "images", {"train-images-idx3-ubyte": files["train-images-idx3-ubyte"]})
    write(tmp_path / "images", {"train-labels-idx1-ubyte.gz": gzip.compress(files["train-labels-idx1-ubyte"])})
    assert [label for _, label, _ in listing(tmp_path / "images" / "train-images-idx3-ubyte")] == ["0", "1", "2"]


def test_an_idx_file_beside_its_gz_counts_once(tmp_path):
    write(tmp_path, mnist())
    write(tmp_path, {f"{name}.gz": gzip.compress(content) for name, content in mnist().items()})
    assert len(listing(tmp_path)) == 5


def test_idx_files_may_have_colours_and_lack_labels(tmp_path):
    write(tmp_path, {"x-images-idx4-ubyte": idx(2, 4, 5, 3)})
    _, images = found([place_of(tmp_path, DataSettings())], "train")
    assert [(entry.label, content.shape) for entry, content in images] == [("", (4, 5, 3))] * 2
    write(tmp_path, {"x-images-idx4-ubyte": idx(2, 4, 5, 2)})
    assert "4 x 5 x 2" in error_of(tmp_path).what


def test_an_idx_file_is_known_by_its_first_bytes(tmp_path):
    write(tmp_path, {"digits.bin": idx(2, 4, 5)})
    assert len(listing(tmp_path / "digits.bin")) == 2


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"\0\0\x0d\x03" + bytes(12), b"<html>not found", b"\0\0\x08\x03\0\0"]
)
def test_a_wrong_start_of_an_idx_file_is_shown(tmp_path, content):
    write(tmp_path, mnist() | {"train-images-idx3-ubyte": content})
    error = error_of(tmp_path)
    assert "train-images-idx3-ubyte' is not an idx file" in error.what
    assert content[:4].hex(" ") in error.why


def test_idx_files_cut_short_are_errors(tmp_path):
    files = mnist()
    write(tmp_path, files | {"train-images-idx3-ubyte": files["train-images-idx3-ubyte"][:-1]})
    error = error_of(tmp_path)
    assert "cut short" in error.what and "more than 2" in error.why
    write(tmp_path, files | {"train-labels-idx1-ubyte": files["train-labels-idx1-ubyte"][:-1]})
    assert "train-labels-idx1-ubyte' is cut short" in error_of(tmp_path).what


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_gzipped_idx_files_cut_short_or_with_other_bytes_are_errors(tmp_path, file):
    packed = gzip.compress(mnist()[file])
    write(tmp_path, mnist() | {file: packed[:-3]})
    assert f"Cannot read '{tmp_path / file}'" in error_of(tmp_path).what
    write(tmp_path, mnist() | {file: packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]})
    assert "CRC" in error_of(tmp_path).why


def test_a_header_that_claims_billions_of_images_fills_no_memory(tmp_path):
    write(tmp_path, {"train-images-idx3-ubyte": idx(2**32 - 1, 28, 28, fill=b"")})
    assert "cut short" in error_of(tmp_path).what


def test_other_counts_of_labels_and_images_are_an_error_before_training(tmp_path):
    write(tmp_path, mnist() | {"train-labels-idx1-ubyte": idx(4)})
    with pytest.raises(RegardError, match="3 images, but 4 labels"):
        check_sources(DataSettings(images=str(tmp_path)))


def test_labels_alone_are_an_error(tmp_path):
    write(tmp_path, {"train-labels-idx1-ubyte": idx(4)})
    assert "labels, but no images" in error_of(tmp_path / "train-labels-idx1-ubyte").what


# --- Archives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_an_archive_is_as_the_folder_in_it(tmp_path, ending):
    names = ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/.4.png", "readme.txt")
    folder = tree(tmp_path / "folder", *names)
    members = {f"./top/{name}": (folder / name).read_bytes() for name in names}
    archive = tar(tmp_path / f"a.tar{ending}", members, "w:" + ending[1:])
    inside = [(name.removeprefix("top/"), label, split) for name, label, split in listing(archive)]
    assert inside == listing(folder)
    _, images = found([place_of(archive, DataSettings())], "train")
    assert {content for _, content in images} == {members[f"./top/{name}"] for name in names[:3]}


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_may_hold_idx_files_labels_first_or_last(tmp_path, packed):
    files = {f"m/{name}{'.gz' * packed}": gzip.compress(file) if packed else file for name, file in mnist().items()}
    forth = tar(tmp_path / "forth.tar", files)
    back = tar(tmp_path / "back.tgz", dict(reversed(files.items())), "w:gz")
    assert listing(forth) == listing(back)
    assert [(label, split) for _, label, split in listing(forth)] == [
        ("0", "test"),
        ("1", "test"),
        ("0", "train"),
        ("1", "train"),
        ("2", "train"),
    ]


def test_names_in_an_archive_lead_nowhere(tmp_path):
    path = tmp_path / "inside" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for name in ("../../evil.png", "/abs/1.png", "line\nend\x1b[1m/2.png"):
            info = tarfile.TarInfo(name)
            info.size = len(png())
            archive.addfile(info, io.BytesIO(png()))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("cat/link.png")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    assert listing(path) == [("abs/1.png", "abs", "train"), ("line�end�[1m/2.png", "line�end�[1m", "train")]
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_name_twice_in_an_archive_is_two_images(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for colour in (1, 2):
            info = tarfile.TarInfo("cat/1.png")
            info.size = len(png(colour))
            archive.addfile(info, io.BytesIO(png(colour)))
    _, images = found([place_of(path, DataSettings())], "train")
    assert [content for _, content in images] == [png(1), png(2)]


def test_too_large_a_file_in_an_archive_is_skipped(tmp_path, monkeypatch):
    path = tar(tmp_path / "a.tar", {"cat/1.png": png(), "cat/2.png": bytes(5000)})
    monkeypatch.setattr(image_archives, "LARGEST", 4999)
    _, images = found([place_of(path, DataSettings())], "train")
    first, second = [content for _, content in images]
    assert first == png()
    assert isinstance(second, BadImage) and "larger than" in second.reason


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_an_archive_cut_short_is_an_error(tmp_path, mode, share):
    noise = np.random.default_rng(1).bytes(3000)
    path = tar(tmp_path / "a.tar", {f"cat/{n}.png": noise for n in range(9)}, mode)
    whole = path.read_bytes()
    used = len(whole) if mode != "w" else 9 * (512 + 3072)
    path.write_bytes(whole[: int(used * share)])
    assert str(path) in error_of(path).what


def test_an_archive_damaged_in_the_middle_does_not_just_end_there(tmp_path):
    path = tar(tmp_path / "a.tar", {f"cat/{n}.png": bytes(512) for n in range(9)})
    raw = bytearray(path.read_bytes())
    raw[4096:4608] = bytes(range(256)) * 2  # the header of the fifth
    path.write_bytes(bytes(raw))
    assert "Cannot read" in error_of(path).what


# --- Tables ----------------------------------------------------------------------------------------------


def test_a_table_names_images_from_its_own_folder(tmp_path):
    tree(tmp_path / "data", "x/1.png", "x/2.png")
    table = tmp_path / "data" / "labels.csv"
    table.write_bytes('\ufefflabel,path\ncat,x/1.png\n"big, dog", x/2.png \n\n'.encode())
    assert listing(table) == [("x/1.png", "cat", "train"), ("x/2.png", "big, dog", "train")]
    _, images = found([place_of(table, DataSettings())], "train")
    assert [content for _, content in images] == [tmp_path / "data/x/1.png", tmp_path / "data/x/2.png"]


def test_the_columns_of_a_table_can_be_named_and_the_label_may_lack(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("file,kind\n1.png,cat\n")
    assert listing(table, image_field="file", label_field="kind") == [("1.png", "cat", "train")]
    assert listing(table, image_field="file") == [("1.png", "", "train")]
    error = error_of(table)
    assert "no column 'path'" in error.what and "file, kind" in error.why


def test_a_table_is_known_by_its_header(tmp_path):
    (tmp_path / "labels.txt").write_text("path,label\n1.png,cat\n")
    assert listing(tmp_path / "labels.txt") == [("1.png", "cat", "train")]


def test_bad_lines_of_a_table_are_skipped_and_named(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("path,label\n1.png,cat\n2.png\n,dog\n3.png,dog\n")
    _, images = found([place_of(table, DataSettings())], "train")
    bad = [entry.name for entry, content in images if isinstance(content, BadImage)]
    assert bad == ["a.csv line 3", "a.csv line 4"]


@pytest.mark.parametrize("content", [b"", b"a\rb", b'"', b"\0\xff\n", b"path\rlabel"])
def test_no_garbage_is_taken_for_a_table(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    assert "no column 'path'" in error_of(tmp_path / "a.csv").what
    (tmp_path / "a.bin").write_bytes(content)
    assert "is not known" in error_of(tmp_path / "a.bin").what


# --- What is named in the settings -----------------------------------------------------------------------


def test_the_digits_are_1797_and_use_all_greys():
    count, images = found(places(DataSettings(sample="digits"), "train"), "train")
    entries, contents = zip(*images, strict=True)
    assert count == len(entries) == 1797
    assert entries[0].name == "digits #0" and {entry.label for entry in entries} == set("0123456789")
    pixels = np.stack(contents)
    assert pixels.shape == (1797, 8, 8)
    assert pixels.dtype == np.uint8 and pixels.min() == 0 and pixels.max() == 255
    assert len(np.unique(pixels)) == 17


def test_several_places_are_told_apart_by_name(tmp_path):
    tree(tmp_path, "a/cat/1.png", "a/dog/1.png", "b/cat/1.png", "b/dog/1.png")
    data = DataSettings(root=str(tmp_path), train=["a", "b"])
    _, images = found(places(data, "train"), "train")
    assert [entry.name for entry, _ in images] == ["a/cat/1.png", "a/dog/1.png", "b/cat/1.png", "b/dog/1.png"]


def test_everything_named_is_checked(tmp_path):
    tree(tmp_path, "photos/cat/1.png", "photos/dog/2.png")
    data = {"root": str(tmp_path), "images": "photos"}
    check_sources(DataSettings(**data))
    with pytest.raises(RegardError, match=r"nowhere' is missing") as caught:
        check_sources(DataSettings(**data, test=["nowhere"]))
    assert str(tmp_path) in caught.value.why and "--data DIR" in caught.value.fix
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(RegardError, match=r"form of .*a\.zip' is not known"):
        check_sources(DataSettings(**data, valid=["a.zip"]))
    with pytest.raises(RegardError, match="No training data"):
        check_sources(DataSettings(root=str(tmp_path)))
    with pytest.raises(UsageError, match="list within a list"):
        check_sources(DataSettings(root=str(tmp_path), train=[["photos"]]))
    with pytest.raises(UsageError, match="has no images"):
        check_sources(DataSettings(sample="english-german"))
