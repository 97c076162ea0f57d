"""idx files, as of MNIST: how they belong together, and every way they can be wrong."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from image_sources import error_of_reading, idx, listing, mnist, write
from regard.data.image_sources import check_sources, images_for, open_source
from regard.errors import RegardError
from regard.settings import ImageData


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
    _, images = images_for([open_source(tmp_path / "train-images-idx3-ubyte", ImageData())], "train")
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
    _, images = images_for([open_source(tmp_path, ImageData())], "train")
    assert [(entry.label, content.shape) for entry, content in images] == [("", (4, 5, 3))] * 2
    write(tmp_path, {"x-images-idx4-ubyte": idx(2, 4, 5, 2)})
    assert "4 x 5 x 2" in error_of_reading(tmp_path).what


def test_an_idx_file_is_known_by_its_first_bytes(tmp_path):
    write(tmp_path, {"digits.bin": idx(2, 4, 5)})
    assert len(listing(tmp_path / "digits.bin")) == 2


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"\0\0\x0d\x03" + bytes(12), b"<html>not found", b"\0\0\x08\x03\0\0"]
)
def test_a_wrong_start_of_an_idx_file_is_shown(tmp_path, content):
    write(tmp_path, mnist() | {"train-images-idx3-ubyte": content})
    error = error_of_reading(tmp_path)
    assert "train-images-idx3-ubyte' is not an idx file" in error.what
    assert content[:4].hex(" ") in error.why


def test_idx_files_cut_short_are_errors(tmp_path):
    files = mnist()
    write(tmp_path, files | {"train-images-idx3-ubyte": files["train-images-idx3-ubyte"][:-1]})
    error = error_of_reading(tmp_path)
    assert "cut short" in error.what and "more than 2" in error.why
    write(tmp_path, files | {"train-labels-idx1-ubyte": files["train-labels-idx1-ubyte"][:-1]})
    assert "train-labels-idx1-ubyte' is cut short" in error_of_reading(tmp_path).what


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_gzipped_idx_files_cut_short_or_with_other_bytes_are_errors(tmp_path, file):
    packed = gzip.compress(mnist()[file])
    write(tmp_path, mnist() | {file: packed[:-3]})
    assert f"Cannot read '{tmp_path / file}'" in error_of_reading(tmp_path).what
    write(tmp_path, mnist() | {file: packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:]})
    assert "CRC" in error_of_reading(tmp_path).why


def test_a_header_that_claims_billions_of_images_fills_no_memory(tmp_path):
    write(tmp_path, {"train-images-idx3-ubyte": idx(2**32 - 1, 28, 28, fill=b"")})
    assert "cut short" in error_of_reading(tmp_path).what


def test_other_counts_of_labels_and_images_are_an_error_before_training(tmp_path):
    write(tmp_path, mnist() | {"train-labels-idx1-ubyte": idx(4)})
    with pytest.raises(RegardError, match="3 images, but 4 labels"):
        check_sources(ImageData(images=str(tmp_path)))


def test_labels_alone_are_an_error(tmp_path):
    write(tmp_path, {"train-labels-idx1-ubyte": idx(4)})
    assert "labels, but no images" in error_of_reading(tmp_path / "train-labels-idx1-ubyte").what
