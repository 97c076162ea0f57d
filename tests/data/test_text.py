"""Plain text: files and folders give their exact bytes, piece by piece, and say where documents end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from regard.data import text
from regard.data.text import TextSource, text_source
from regard.errors import RegardError, UsageError
from regard.settings import TextData


def source(folder: Path, listed: str | list[str], **settings) -> TextSource:
    return text_source(listed, TextData(root=str(folder), **settings))


def documents(found: TextSource) -> list[bytes]:
    """The pieces of each document put together."""
    whole, parts = [], b""
    for piece, ends in found.pieces():
        parts += piece
        if ends:
            whole.append(parts)
            parts = b""
    assert parts == b""
    return whole


def names(found: TextSource, folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in found.paths]


# --- Which files -----------------------------------------------------------------------------------------


def test_files_are_read_in_the_order_listed(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"text {name}\n")
    assert documents(source(tmp_path, "b.txt")) == [b"text b\n"]
    assert documents(source(tmp_path, ["c.txt", "a.txt"])) == [b"text c\n", b"text a\n"]


def test_a_file_that_is_named_may_have_any_ending(tmp_path):
    (tmp_path / "corpus").write_bytes(b"no ending")
    assert documents(source(tmp_path, "corpus")) == [b"no ending"]


def test_a_folder_gives_its_text_files_by_name_whatever_their_depth(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ["z.txt", "a.md", "deep/m.jsonl", "deep/er/b.txt.gz", "deep/c.jsonl.xz", "picture.png", "notes.csv"]:
        (tmp_path / name).write_bytes(b"")
    expected = ["a.md", "deep/c.jsonl.xz", "deep/er/b.txt.gz", "deep/m.jsonl", "z.txt"]
    assert names(source(tmp_path, "."), tmp_path) == expected


def test_folders_and_files_may_be_mixed(tmp_path):
    (tmp_path / "more").mkdir()
    for name in ["more/2.txt", "more/1.txt", "a.txt"]:
        (tmp_path / name).write_text(name)
    assert documents(source(tmp_path, ["more", "a.txt"])) == [b"more/1.txt", b"more/2.txt", b"a.txt"]


def test_a_missing_file_is_named_with_the_folder_it_was_looked_for_in(tmp_path):
    with pytest.raises(RegardError) as caught:
        source(tmp_path, "gone.txt")
    assert str(tmp_path / "gone.txt") in caught.value.what
    assert str(tmp_path) in caught.value.why
    assert "--data" in caught.value.fix


@pytest.mark.parametrize("listed", [".", [], ["."]])
def test_a_folder_without_text_and_an_empty_list_are_errors(tmp_path, listed):
    (tmp_path / "picture.png").write_bytes(b"")
    with pytest.raises(RegardError, match="No text is named") as caught:
        source(tmp_path, listed)
    assert ".jsonl" in caught.value.why


def test_a_list_within_a_list_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="list within a list"):
        text_source([["a.txt"]], TextData(root=str(tmp_path)))


# --- Pieces ----------------------------------------------------------------------------------------------

SAMPLES = {
    "empty": "",
    "one line": "a line\n",
    "lines": "one\ntwo\n\nthree with no end",
    "windows line ends": "one\r\ntwo\r\n",
    "long characters": "aé句🙂" * 20,
    "long characters and lines": "aé句🙂\n" * 20 + "🙂🙂🙂",
    "only characters of four bytes": "🙂" * 30,
    "a byte order mark": "\ufeffa",
    "NUL": "a\0b\0\n",
}


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize("content", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("size", [*range(1, 12), 1 << 20])
def test_pieces_put_together_are_the_file_and_each_is_valid_utf8(tmp_path, monkeypatch, content, size, ending):
    monkeypatch.setattr(text, "PIECE", size)
    raw = content.encode()
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(raw) if ending.endswith(".gz") else raw)
    pieces = list(source(tmp_path, f"a{ending}").pieces())
    assert b"".join(piece for piece, _ in pieces) == raw
    assert "".join(piece.decode() for piece, _ in pieces) == content
    assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True]


def test_a_character_across_the_real_border_of_two_pieces_stays_whole(tmp_path):
    for before in range(4):
        raw = b"x" * (text.PIECE - before) + "🙂é".encode() + b"y" * 10
        (tmp_path / "a.txt").write_bytes(raw)
        pieces = [piece for piece, _ in source(tmp_path, "a.txt").pieces()]
        assert b"".join(pieces) == raw
        assert len(pieces[0]) == text.PIECE - before
        assert "".join(piece.decode() for piece in pieces) == raw.decode()


def test_pieces_end_at_line_ends_where_there_are_any(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PIECE", 10)
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nthree\nfour\nfive\nsix\n")
    pieces = [piece for piece, _ in source(tmp_path, "a.txt").pieces() if piece]
    assert len(pieces) > 1
    assert all(piece.endswith(b"\n") for piece in pieces)


def test_bytes_that_are_not_text_also_come_back(tmp_path, monkeypatch):
    raw = bytes(range(256)) * 3 + b"\x80" * 50 + b"\xff" * 20 + b"\xf0\x9f"
    (tmp_path / "a.txt").write_bytes(raw)
    for size in (1, 2, 3, 5, 7, 64):
        monkeypatch.setattr(text, "PIECE", size)
        assert documents(source(tmp_path, "a.txt")) == [raw]


def test_a_truncated_gz_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"some text " * 1000)[:-12])
    with pytest.raises(RegardError) as caught:
        list(source(tmp_path, "a.txt.gz").pieces())
    assert "a.txt.gz" in caught.value.what
    assert "whole" in caught.value.fix


# --- Documents -------------------------------------------------------------------------------------------


def test_every_file_is_one_document_also_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "PIECE", 4)
    contents = [b"first\ndocument\n", b"", b"the third"]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.txt").write_bytes(content)
    assert documents(source(tmp_path, ".")) == contents


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_every_line_of_jsonl_is_one_document(tmp_path, ending):
    texts = ["one", "two\nlines", "", "é句🙂 \u2028", '"quoted"']
    lines = [json.dumps({"text": t, "other": 1}, ensure_ascii=n % 2 == 0) for n, t in enumerate(texts)]
    raw = "\n\n".join(lines).encode()  # empty lines are left out, and the last line needs no end
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(raw) if ending.endswith(".gz") else raw)
    found = source(tmp_path, f"a{ending}")
    assert [(piece.decode(), ends) for piece, ends in found.pieces()] == [(t, True) for t in texts]


def test_the_field_of_jsonl_can_be_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "wrong", "body": "right"}\n')
    assert documents(source(tmp_path, "a.jsonl", text_field="body")) == [b"right"]


NO_JSON = {"not JSON": b"{oops", "not UTF-8": b'{"text": "\xff"}', "too deep": b"[" * 100_000}


@pytest.mark.parametrize("line", NO_JSON.values(), ids=NO_JSON)
def test_a_line_that_is_not_json_is_named_with_its_number(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n' + line + b"\n")
    with pytest.raises(RegardError) as caught:
        list(source(tmp_path, "a.jsonl").pieces())
    assert caught.value.what.startswith("Line 2 of ") and "not valid JSON" in caught.value.what


BAD_LINES = {
    "no such field": b'{"words": "x"}',
    "a number": b'{"text": 5}',
    "nothing": b'{"text": null}',
    "a list": b'["text"]',
    "half a character": b'{"text": "\\ud800"}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_of_jsonl_is_named_with_its_number(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n\n' + line + b'\n{"text": "good"}\n')
    pieces = source(tmp_path, "a.jsonl").pieces()
    assert next(pieces) == (b"good", True)
    with pytest.raises(RegardError) as caught:
        next(pieces)
    assert caught.value.what.startswith("Line 3 of ")
    assert "a.jsonl" in caught.value.what
    assert "'text'" in caught.value.why
    assert "data.text_field" in caught.value.fix


# --- The fingerprint -------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_the_content_the_order_and_the_field(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")

    def fingerprint(*listed: str, **settings) -> str:
        return source(tmp_path, list(listed), **settings).fingerprint

    seen = [
        fingerprint("a.txt"),
        fingerprint("b.txt"),
        fingerprint("a.txt", "b.txt"),
        fingerprint("b.txt", "a.txt"),
        fingerprint("a.txt", text_field="body"),
    ]
    assert fingerprint("a.txt") == seen[0]
    (tmp_path / "a.txt").write_text("onE")
    seen.append(fingerprint("a.txt"))
    assert len(set(seen)) == len(seen)


def test_the_fingerprint_does_not_depend_on_where_the_file_is(tmp_path):
    (tmp_path / "moved").mkdir()
    for name in ("a.txt", "moved/b.txt"):
        (tmp_path / name).write_text("same")
    assert source(tmp_path, "a.txt").fingerprint == source(tmp_path / "moved", "b.txt").fingerprint
