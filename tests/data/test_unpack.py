"""Packed files: what they hold is read, up to a limit that honest files never reach."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import tarfile
import tracemalloc
import zlib

import pytest
from PIL import Image

from expect import error_of
from image_sources import error_of_reading, idx, listing, mnist, png, write
from regard.data.image_sources import check_sources, open_source
from regard.data.images import BadImage, read_image
from regard.data.labelled import read_examples
from regard.data.lines import read_lines
from regard.data.text import text_source
from regard.data.word_vectors import WordVectors
from regard.settings import ImageData, ImageSettings, LabelledData, TextData

MEGABYTE = 10**6
LITTLE = 64 * MEGABYTE  # of memory: far less than the bombs below would take


def bomb(piece: bytes, size: int, before: bytes = b"", pack=gzip.compress) -> bytes:
    """So many bytes in parts of a megabyte, each packed by itself, one after the other."""
    part = pack(piece * (MEGABYTE // len(piece)))
    return (pack(before) if before else b"") + part * (size // MEGABYTE)


def weakly(raw: bytes) -> bytes:
    return lzma.compress(raw, preset=0)  # which takes less memory


def refused(error) -> bool:
    return "100 times its size" in error.what and "unpack it yourself" in error.fix


@pytest.fixture
def little_memory():
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LITTLE, f"{peak:,} bytes"


# ---------------------------------------------------------------- text


def test_lines_of_a_gz_that_packs_too_well_are_refused(tmp_path, little_memory):
    (tmp_path / "a.txt.gz").write_bytes(bomb(b"the cat sat " * 1000 + b"\n", 200 * MEGABYTE))
    assert refused(error_of(read_lines, tmp_path / "a.txt.gz"))


def test_one_line_of_a_gz_that_packs_too_well_is_refused(tmp_path, little_memory):
    (tmp_path / "a.jsonl.gz").write_bytes(bomb(b"x", 200 * MEGABYTE, before=b'{"text": "'))
    source = text_source("a.jsonl.gz", TextData(root=str(tmp_path)))
    assert refused(error_of(source.pieces))


def test_a_line_of_json_has_a_limit_which_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "' + b"x" * 17 * 2**20 + b'"}\n')
    error = error_of(text_source("a.jsonl", TextData(root=str(tmp_path))).pieces)
    assert "Line 1 of" in error.what and "16,777,216 bytes" in error.why and "several lines" in error.fix


def test_text_that_packs_fiftyfold_is_read_to_its_end(tmp_path):
    chance = random.Random(1)
    blocks = [f"{chance.randbytes(2000).hex()}\n" + ("the same again " * 70 + "\n") * 150 for _ in range(110)]
    raw = "".join(blocks).encode()
    packed = gzip.compress(raw)
    assert len(raw) > 16 * 2**20 and 40 < len(raw) / len(packed) < 100
    (tmp_path / "a.txt.gz").write_bytes(packed)
    assert sum(1 for _ in read_lines(tmp_path / "a.txt.gz")) == 110 * 151


def test_a_small_file_may_pack_as_well_as_it_likes(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress((b"x" * 99 + b"\n") * 40_000))
    assert sum(1 for _ in read_lines(tmp_path / "a.txt.gz")) == 40_000


def test_word_vectors_that_pack_too_well_are_refused(tmp_path):
    (tmp_path / "v.txt.gz").write_bytes(bomb(b"a" * 9997 + b" 1\n", 20 * MEGABYTE))
    assert refused(error_of(WordVectors.read, tmp_path / "v.txt.gz"))


@pytest.mark.parametrize("count", ["9" * 5000, "²"])
def test_a_count_that_is_no_number_is_no_count(tmp_path, count):
    (tmp_path / "v.txt").write_text(f"{count} 2\nthe 1 2\n", encoding="utf-8")
    assert "numbers" in error_of(WordVectors.read, tmp_path / "v.txt").why


@pytest.mark.parametrize(
    "rest",
    [b"x" * 40 * MEGABYTE, b'"' + (b"x" * 1999 + b"\n") * 4500, (b'"' + b"x" * 1996 + b'\n",') * 4500],
    ids=["line", "quote", "fields"],
)
def test_a_record_of_csv_has_a_limit(tmp_path, rest, little_memory):
    (tmp_path / "a.csv").write_bytes(b"label,text\na,good\nb," + rest)
    error = error_of(read_examples, tmp_path / "a.csv", LabelledData())
    assert error.what.startswith("Line 3 of") and ("longer than" in error.why or "field larger" in error.why)


# ---------------------------------------------------------------- images


def test_labels_that_pack_too_well_are_refused(tmp_path, little_memory):
    labels = bomb(b"\0", 200 * MEGABYTE, before=idx(200 * MEGABYTE, fill=b""))
    write(tmp_path, mnist() | {"train-labels-idx1-ubyte": labels})
    assert refused(error_of_reading(tmp_path))


def test_more_images_than_a_file_has_bytes_are_refused(tmp_path, little_memory):
    images = bomb(b"\0", 5 * MEGABYTE, before=idx(5 * MEGABYTE, 1, 1, fill=b""))
    write(tmp_path, {"train-images-idx3-ubyte.gz": images})
    assert "says that it has 5,000,000 images" in error_of_reading(tmp_path).what


def test_an_idx_image_has_as_many_pixels_at_most_as_any(tmp_path, little_memory):
    write(tmp_path, {"train-images-idx3-ubyte": idx(1, 10_000, 9_000, fill=b"")})
    with (tmp_path / "train-images-idx3-ubyte").open("ab") as file:
        file.truncate(16 + 90_000_000)  # with a hole, which takes no room
    assert "89,478,485 pixels" in error_of_reading(tmp_path).why


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, weakly], ids=["gz", "bz2", "xz"])
def test_a_header_of_a_hundred_megabytes_in_an_archive_is_never_read(tmp_path, pack, kind, little_memory):
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 100 * MEGABYTE
    with tarfile.open(tmp_path / "one.tar", "w") as archive:
        image = tarfile.TarInfo("cat/1.png")
        image.size = len(png())
        archive.addfile(image, io.BytesIO(png()))
    start = (tmp_path / "one.tar").read_bytes()[:1024] + header.tobuf(tarfile.GNU_FORMAT)
    path = tmp_path / "a.tar.packed"
    path.write_bytes(bomb(b"x", 100 * MEGABYTE, before=start, pack=pack))
    error = error_of(listing, path)
    assert "100,000,000 bytes" in error.why or refused(error)


def test_an_xz_that_asks_for_gigabytes_to_be_unpacked_is_refused(tmp_path):
    whole = lzma.compress(bytes(MEGABYTE), filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    header = bytearray(whole[12 : 12 + 4 * (whole[12] + 1)])
    header[header.index(b"\x21\x01") + 2] = 40  # a dictionary of 4 GiB
    header[-4:] = struct.pack("<I", zlib.crc32(bytes(header[:-4])))
    (tmp_path / "a.tar.xz").write_bytes(whole[:12] + bytes(header) + whole[12 + len(header) :])
    error = error_of(open_source, tmp_path / "a.tar.xz", ImageData())
    assert "form" in error.what or "limit" in error.why


def claim(width: int, height: int, content: bytes = b"") -> io.BytesIO:
    """A PNG that says that it is so large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", content) + chunk(b"IEND", b""))


def test_an_image_that_says_it_is_larger_than_its_file_can_be_is_bad():
    with pytest.raises(BadImage, match="100 times its size"):
        read_image(claim(9000, 9000), ImageSettings(size=8, colour=False))


def test_a_blank_page_is_an_image():
    page = claim(3000, 2000, zlib.compress(b"\0" * 3001 * 2000))
    assert read_image(page, ImageSettings(size=8, colour=False)).shape == (8, 8, 1)


def test_transparent_images_are_as_before_whatever_their_height(tmp_path):
    image = Image.effect_noise((20, 700), 90).convert("RGB")
    image.putalpha(Image.effect_noise((20, 700), 90))
    image.save(tmp_path / "a.png")
    expected = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    read = read_image(tmp_path / "a.png", ImageSettings(size=[700, 20]))
    assert read.tobytes() == expected.tobytes()


# ---------------------------------------------------------------- what is no file


def test_a_pipe_is_no_data(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    assert "neither a file nor a folder" in error_of(text_source, "a.txt", TextData(root=str(tmp_path))).what
    assert "neither" in error_of(check_sources, ImageData(root=str(tmp_path), images="a.txt")).what
    with pytest.raises(BadImage, match="pipe"):
        read_image(tmp_path / "a.txt", ImageSettings())
