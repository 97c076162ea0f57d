"""Running text made ready: its tokenizer, its splits, and what is too little."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from expect import error_of
from regard.data import running_text
from regard.data import text as text_module
from regard.data.running_text import divide_text, learn_text_tokenizer, must_have_text, text_fingerprints
from regard.data.text import text_source
from regard.data.tokenizers import START
from regard.settings import TextData, TokenizerSettings


@pytest.fixture
def data(tmp_path: Path) -> TextData:
    (tmp_path / "a.txt").write_text("".join(chr(ord("a") + n % 26) for n in range(1000)))
    (tmp_path / "b.txt").write_text("another text")
    return TextData(root=str(tmp_path), text="a.txt", cache=str(tmp_path / "cache"), held_out=0.1)


BYTES = TokenizerSettings(kind="byte")


def divided(data: TextData, starts: bool = False):
    text = text_source(data.text, data)
    return divide_text(text, data, learn_text_tokenizer(text, BYTES, sentences=False), starts)


def test_the_last_parts_are_held_out_and_the_test_is_the_very_last(data):
    splits = divided(data.model_copy(update={"held_out_test": 0.2}))
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [720, 80, 200]
    whole = divided(data.model_copy(update={"held_out": 0.0})).train.tolist()
    assert [*splits.train, *splits.valid, *splits.test] == whole
    assert splits.held_out is splits.test


def test_files_named_take_nothing_from_the_text(data):
    splits = divided(data.model_copy(update={"valid": ["b.txt"]}), starts=True)
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (1001, 13, 0)
    assert splits.train[0] == splits.valid[0] == START
    assert splits.held_out is splits.valid


def test_fingerprints_are_of_the_files_of_each_split(data):
    prints = text_fingerprints(data)
    assert prints["train"] == prints["valid"] == prints["test"]
    named = text_fingerprints(data.model_copy(update={"valid": ["b.txt"]}))
    assert named["train"] == prints["train"] != named["valid"]


def test_no_text_and_too_little_to_validate_on_are_errors(data):
    for changes, what in (({"held_out": 0.0}, "validate on"), ({"text": "empty.txt"}, "empty")):
        Path(data.root, "empty.txt").write_text("")
        given = data.model_copy(update=changes)
        assert what in error_of(must_have_text, divided(given), text_source(given.text, given), given).what


def test_a_tokenizer_is_learned_from_the_first_pieces_only_and_says_where_bytes_are_wrong(data):
    text = text_source(["a.txt", "b.txt"], data)
    settings = TokenizerSettings(kind="character", vocabulary=300, sample_lines=1)
    assert learn_text_tokenizer(text, settings, sentences=False).pieces("a ") == ["a", "<0x20>"]
    Path(data.root, "bad.txt").write_bytes(b"caf\xe9 au lait")
    bad = text_source("bad.txt", data)
    assert "bad.txt" in error_of(learn_text_tokenizer, bad, settings, sentences=False).what


def test_of_a_text_too_large_to_learn_from_pieces_from_all_over_it_are_read(data, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("regard.console.say", said.append)
    monkeypatch.setattr(text_module, "PIECE", 10)
    text = text_source("a.txt", data)
    settings = TokenizerSettings(kind="character", vocabulary=300)
    letters = learn_text_tokenizer(text, settings, sentences=False)
    assert letters.pieces("qz") == ["q", "z"] and not said
    monkeypatch.setattr(running_text, "LEARNED_FROM", 250)
    Path(data.root, "c.txt.gz").write_bytes(
        gzip.compress(b"".join(letter * 10 for letter in (b"a", b"b", b"c", b"d")) * 20)
    )
    packed = text_source("c.txt.gz", data)
    assert packed.size() == 800
    learned = learn_text_tokenizer(packed, settings, sentences=False)
    assert ["one piece in 4 of the text" in line for line in said] == [True]
    assert learned.pieces("ab") == ["a", "<0x62>"]
