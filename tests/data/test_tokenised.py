"""Tokenised running text and labelled text: what is written, and when it is used again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from regard.data import text, tokenising
from regard.data.labelled import LabelledSource, labelled_splits
from regard.data.text import TextSource, text_source
from regard.data.tokenised import TokenisedTexts, tokenise_labelled, tokenise_text
from regard.data.tokenizers import END, START, TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import LabelledData, TextData, TokenizerSettings

KINDS = ["bpe", "word", "character", "byte"]
BYTES = train_tokenizer([], TokenizerSettings(kind="byte"))
CHARACTERS = train_tokenizer(["abc é句"], TokenizerSettings(kind="character", vocabulary=300), sentences=False)


def source(folder: Path, *contents: bytes) -> TextSource:
    """A folder with these documents."""
    texts = folder / "text"
    texts.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (texts / f"{number}.txt").write_bytes(content)
    return text_source(str(texts), TextData())


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def encoded(content: str, tokenizer: TextTokenizer = BYTES) -> list[int]:
    return tokenizer.encode([content])[0]


# --- Running text ----------------------------------------------------------------------------------------


def test_one_document_alone_has_no_end(tmp_path):
    found = tokenise_text(source(tmp_path, b"one\ntwo"), BYTES, tmp_path / "cache")
    assert found.tolist() == encoded("one\ntwo")
    assert found.dtype == np.uint16


def test_every_document_of_several_is_closed(tmp_path):
    found = tokenise_text(source(tmp_path, b"one", b"", b"three"), BYTES, tmp_path / "cache")
    assert found.tolist() == [*encoded("one"), END, END, *encoded("three"), END]


def test_starts_open_every_document(tmp_path):
    alone = tokenise_text(source(tmp_path, b"one"), BYTES, tmp_path / "cache", starts=True)
    assert alone.tolist() == [START, *encoded("one")]
    several = tokenise_text(source(tmp_path, b"one", b"two"), BYTES, tmp_path / "cache", starts=True)
    assert several.tolist() == [START, *encoded("one"), END, START, *encoded("two"), END]


def test_lines_of_jsonl_are_documents(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    found = tokenise_text(text_source(str(tmp_path / "a.jsonl"), TextData()), BYTES, tmp_path / "cache")
    assert found.tolist() == [*encoded("one"), END, *encoded("two"), END]


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("size", [1, 3, 5, 1 << 20])
def test_the_size_of_the_pieces_leaves_no_trace(tmp_path, monkeypatch, size, starts):
    """Characters of one token each, so that no token can reach over a border."""
    monkeypatch.setattr(text, "PIECE", size)
    contents = ["abc é句\nabc", "é" * 9]
    found = tokenise_text(
        source(tmp_path, *(content.encode() for content in contents)), CHARACTERS, tmp_path / "cache", starts
    )
    start = [START] if starts else []
    expected = [token for content in contents for token in [*start, *encoded(content, CHARACTERS), END]]
    assert found.tolist() == expected


def test_an_empty_text_has_no_ids(tmp_path):
    assert len(tokenise_text(source(tmp_path, b""), BYTES, tmp_path / "cache")) == 0


def test_text_is_tokenised_once(tmp_path):
    documents = source(tmp_path, b"one", b"two")
    first, before = tokenise_text(documents, BYTES, tmp_path / "cache").tolist(), times(tmp_path / "cache")
    assert tokenise_text(documents, BYTES, tmp_path / "cache").tolist() == first
    assert times(tmp_path / "cache") == before


def test_another_text_tokenizer_or_start_goes_to_another_folder(tmp_path):
    cache = tmp_path / "cache"
    tokenise_text(source(tmp_path, b"one"), BYTES, cache)
    assert tokenise_text(source(tmp_path, b"one"), BYTES, cache, starts=True).tolist() == [START, *encoded("one")]
    assert tokenise_text(source(tmp_path, b"one"), CHARACTERS, cache).tolist() == encoded("one", CHARACTERS)
    assert tokenise_text(source(tmp_path, b"two"), BYTES, cache).tolist() == encoded("two")
    assert len(list((cache / "prepared").iterdir())) == 4


# --- Bytes that are not UTF-8 -----------------------------------------------------------------------------

NO_TEXT = b"a good beginning \xff\xfe and more"


def test_invalid_utf8_is_an_error_that_shows_the_place_and_leaves_nothing_behind(tmp_path):
    with pytest.raises(RegardError) as caught:
        tokenise_text(source(tmp_path, NO_TEXT), CHARACTERS, tmp_path / "cache")
    assert "UTF-8" in caught.value.what
    assert "beginning \\xff" in caught.value.why
    assert 'tokenizer.kind="byte"' in caught.value.fix
    assert list((tmp_path / "cache" / "prepared").iterdir()) == []


def test_a_byte_vocabulary_takes_any_bytes(tmp_path):
    raw = bytes(range(256)) + NO_TEXT
    found = tokenise_text(source(tmp_path, raw), BYTES, tmp_path / "cache")
    assert len(found) == len(raw)
    assert sorted(set(found.tolist())) == list(range(3, 259))


@pytest.mark.parametrize("content", ["", "plain", "é句🙂\n\0 <end>"])
def test_bytes_and_letters_are_the_same_ids(content):
    for kind in KINDS:
        for sentences in (True, False):
            found = train_tokenizer(["plain"], TokenizerSettings(kind=kind, vocabulary=270), sentences)
            assert list(found.encode_bytes(content.encode())) == found.encode([content])[0]


def test_a_byte_pair_vocabulary_without_merges_reads_bytes_alike():
    smallest = train_tokenizer(["plain plain"], TokenizerSettings(kind="bpe", vocabulary=259), sentences=False)
    assert list(smallest.encode_bytes("aé\n b".encode())) == smallest.encode(["aé\n b"])[0]


def test_characters_are_looked_up_in_a_table_as_the_library_finds_them():
    draw = random.Random(3)
    letters = [*"abcde \n\0", "é", "句", "🙂", "\u0301", "\U0010ffff"]
    text = "".join(draw.choices(letters, k=2000))
    tokenizer = train_tokenizer(["abc é 🙂"], TokenizerSettings(kind="character", vocabulary=300))
    assert tokenizer._characters is not None
    assert tokenizer.encode_bytes(text.encode()).tolist() == tokenizer.encode([text])[0]
    for kind, lowercase in (("bpe", False), ("word", False), ("character", True)):
        other = train_tokenizer(["abc é"], TokenizerSettings(kind=kind, vocabulary=300, lowercase=lowercase))
        assert other._characters is None


@pytest.mark.parametrize("together", [1, 7, 2**22])
@pytest.mark.parametrize("tokenizer", [CHARACTERS, BYTES], ids=["characters", "bytes"])
def test_ids_do_not_depend_on_how_much_is_tokenised_at_a_time(tmp_path, monkeypatch, tokenizer, together):
    monkeypatch.setattr(tokenising, "TOGETHER", together)
    documents = ["one é", "two", "", "three 句"]
    text = source(tmp_path, *(document.encode() for document in documents))
    found = tokenise_text(text, tokenizer, tmp_path / "cache", starts=True)
    assert found.tolist() == [token for each in documents for token in (START, *encoded(each, tokenizer), END)]


# --- Labelled text ---------------------------------------------------------------------------------------

LINES = [("sport", "The ball is round."), ("food", "Soup with é."), ("sport", "句"), ("food", "x")]


def labelled(folder: Path, lines: list[tuple[str, str]] = LINES) -> LabelledSource:
    (folder / "a.tsv").write_text("".join(f"{label}\t{line}\n" for label, line in lines), encoding="utf-8")
    return labelled_splits(LabelledData(root=str(folder), train=["a.tsv"], held_out=0.0))["train"]


def as_lists(found: TokenisedTexts) -> list[tuple[list[int], int]]:
    return [(found.texts[i].tolist(), int(found.classes[i])) for i in range(len(found))]


@pytest.mark.parametrize("chunk", [1, 3, 20_000])
def test_labelled_texts_hold_every_text_and_the_number_of_its_class(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(tokenising, "CHUNK", chunk)
    found = tokenise_labelled(labelled(tmp_path), BYTES, ["food", "sport"], tmp_path / "cache")
    assert as_lists(found) == [(encoded(line), int(label == "sport")) for label, line in LINES]


def test_take_gives_these_texts_in_this_order(tmp_path):
    found = tokenise_labelled(labelled(tmp_path), BYTES, ["food", "sport"], tmp_path / "cache")
    every = as_lists(found)
    assert as_lists(found.take(np.array([2, 0, 2]))) == [every[2], every[0], every[2]]


def test_other_texts_labels_or_classes_go_to_another_folder(tmp_path):
    cache, classes = tmp_path / "cache", ["food", "sport"]
    tokenise_labelled(labelled(tmp_path), BYTES, classes, cache)
    turned = tokenise_labelled(labelled(tmp_path), BYTES, classes[::-1], cache)
    assert turned.classes.tolist() == [0, 1, 0, 1]
    relabelled = tokenise_labelled(labelled(tmp_path, [("food", line) for _, line in LINES]), BYTES, classes, cache)
    assert relabelled.classes.tolist() == [0, 0, 0, 0]
    shorter = tokenise_labelled(labelled(tmp_path, LINES[:1]), BYTES, classes, cache)
    assert as_lists(shorter) == [(encoded("The ball is round."), 1)]
    assert len(list((cache / "prepared").iterdir())) == 4


def test_a_label_that_is_not_a_class_is_named_with_the_classes_and_its_text(tmp_path):
    with pytest.raises(RegardError) as caught:
        tokenise_labelled(labelled(tmp_path), BYTES, ["music", "sport"], tmp_path / "cache")
    assert caught.value.what == "The label 'food' does not occur in the training data."
    assert caught.value.why == "The classes are: music, sport."
    assert "Soup with é." in caught.value.fix
    assert list((tmp_path / "cache" / "prepared").iterdir()) == []


def test_only_the_first_of_many_classes_are_listed(tmp_path):
    with pytest.raises(RegardError) as caught:
        tokenise_labelled(labelled(tmp_path), BYTES, [f"c{n}" for n in range(30)], tmp_path / "cache")
    assert "c19 …" in caught.value.why
    assert "c20" not in caught.value.why
