"""The reader of lines: what a line is, and every way a file can be wrong."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
from pathlib import Path

import pytest

from expect import error_of
from regard.data.lines import LONGEST_LINE, Line, good_lines, numbered_lines, read_lines


def write(path: Path, lines: list[str] | list[bytes]) -> Path:
    raw = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def test_a_byte_order_mark_inside_a_file_is_kept(tmp_path):
    path = write(tmp_path / "a.txt", ["one", "\ufefftwo"])
    assert list(read_lines(path)) == ["one", "\ufefftwo"]


def test_the_last_line_needs_no_line_end(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo")
    assert list(read_lines(tmp_path / "a.txt")) == ["one", "two"]


def test_only_a_line_feed_ends_a_line(tmp_path):
    odd = "a\u2028b\x0bc\x0cd\x85e\rf\u2029g"
    assert list(read_lines(write(tmp_path / "a.txt", [odd, "next"]))) == [odd, "next"]


def test_empty_lines_and_spaces_are_kept(tmp_path):
    lines = ["", "  a  ", "\tb", ""]
    assert list(read_lines(write(tmp_path / "a.txt", lines))) == lines


def test_an_empty_file_has_no_lines(tmp_path):
    assert list(read_lines(write(tmp_path / "a.txt", []))) == []
    assert list(read_lines(write(tmp_path / "a.txt.gz", []))) == []


@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"half \xe5\x8f"])
def test_invalid_utf8_is_named_by_file_and_line(tmp_path, bad):
    path = write(tmp_path / "a.en", [b"fine"] * 1233 + [bad] + [b"fine"])
    error = error_of(read_lines, path)
    assert "Line 1,234" in error.what
    assert str(path) in error.what
    assert "UTF-8" in error.why
    assert "bad_lines" in error.fix


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
@pytest.mark.parametrize("length", [LONGEST_LINE + 1, 2 * LONGEST_LINE, 2 * LONGEST_LINE + 1, 3 * LONGEST_LINE + 1])
def test_a_line_over_a_megabyte_is_one_bad_line(tmp_path, name, length):
    path = write(tmp_path / name, [b"before", b"x" * length, b"after"])
    error = error_of(read_lines, path)
    assert "Line 2" in error.what
    assert "1,000,000" in error.why
    assert list(read_lines(path, "skip")) == ["before", None, "after"]


def test_a_line_just_under_a_megabyte_is_read(tmp_path):
    text = "ä" * (LONGEST_LINE // 2 - 1)
    assert list(read_lines(write(tmp_path / "a.en", [text, "after"]))) == [text, "after"]


def test_an_overlong_line_at_the_end_of_a_file_is_one_bad_line(tmp_path):
    (tmp_path / "a.en").write_bytes(b"before\n" + b"x" * (2 * LONGEST_LINE + 7))
    assert list(read_lines(tmp_path / "a.en", "skip")) == ["before", None]


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_a_line_of_ten_megabytes_is_never_held_whole(tmp_path, name):
    line = random.Random(1).randbytes(10_000_000).hex()[:10_000_000].encode()  # one that packs like text
    path = write(tmp_path / name, [b"before", line, b"after"])
    tracemalloc.start()
    try:
        assert list(read_lines(path, "skip")) == ["before", None, "after"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


def damaged(raw: bytes, how: str) -> bytes:
    middle = len(raw) // 2
    return {
        "truncated": raw[:middle],
        "without its end": raw[:-4],
        "flipped byte": raw[:middle] + bytes([raw[middle] ^ 0xFF]) + raw[middle + 1 :],
        "impossible code": raw[:10] + b"\xff" + raw[11:],  # the first byte of the compressed stream
        "not gzip": b"plain text\n",
        "rubbish after it": raw + b"rubbish",
    }[how]


@pytest.mark.parametrize(
    "how", ["truncated", "without its end", "flipped byte", "impossible code", "not gzip", "rubbish after it"]
)
@pytest.mark.parametrize("bad_lines", ["error", "skip"])
def test_a_damaged_gz_is_an_error_that_names_the_file(tmp_path, how, bad_lines):
    whole = gzip.compress("".join(f"line {n} {n * n}\n" for n in range(5000)).encode(), mtime=0)
    path = tmp_path / "a.en.gz"
    path.write_bytes(damaged(whole, how))
    assert str(path) in error_of(read_lines, path, bad_lines).what


def test_lines_are_numbered_and_a_bad_one_says_what_is_wrong_with_it():
    raw = b"\xef\xbb\xbfone\r\n\xff\nthree"
    good, bad, last = numbered_lines(io.BytesIO(raw))
    assert (good, last) == (Line(1, "one"), Line(3, "three"))
    assert (bad.number, bad.text) == (2, "") and "UTF-8" in bad.problem
    assert [line.text for line in numbered_lines(io.BytesIO("é\n".encode("latin-1")), "latin-1")] == ["é"]


def test_a_stream_without_a_name_of_its_own_is_called_as_asked():
    error = error_of(good_lines, io.BytesIO(b"fine\n\xff\n"), "the input", advice="Convert the input to UTF-8.")
    assert error.what == "Line 2 of the input cannot be used."
    assert error.fix == "Convert the input to UTF-8."
