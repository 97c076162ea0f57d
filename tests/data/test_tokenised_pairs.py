"""Tokenised pairs: what direct encoding gives, written once for every text and tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from regard.data import parts, tokenising
from regard.data.pairs import Pair, PairSource, pair_splits
from regard.data.tokenised import TokenisedPairs, tokenise_pairs
from regard.data.tokenizers import TextTokenizer, train_tokenizer
from regard.errors import RegardError
from regard.settings import PairData, TokenizerSettings

PAIRS = [
    ("A dog sees a cat.", "Ein Hund sieht eine Katze."),
    ("", "Ohne Quelle."),
    ("Größe 句子 🙂", "naïve Ωmega"),
    ("Without target.", "   "),
    ("The end.", "Ende."),
]
WHOLE = [pair for pair in PAIRS if pair[0].strip() and pair[1].strip()]

BYTES = train_tokenizer([], TokenizerSettings(kind="byte"))
CHARACTERS = train_tokenizer(
    [text for pair in PAIRS for text in pair], TokenizerSettings(kind="character", vocabulary=300)
)
TOKENIZERS = (BYTES, CHARACTERS)


class Corpus:
    """Pairs on disk, a cache beside them, and a way to tokenise the ones into the other."""

    def __init__(self, folder: Path):
        self.folder, self.cache = folder, folder / "cache"
        self.write(PAIRS)

    def write(self, pairs: list[Pair]) -> None:
        (self.folder / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")

    @property
    def source(self) -> PairSource:
        return pair_splits(PairData(root=str(self.folder), train=["a.tsv"], held_out=0.0))["train"]

    def tokenise(self, tokenizers: tuple[TextTokenizer, TextTokenizer] = TOKENIZERS) -> TokenisedPairs:
        return tokenise_pairs(self.source, tokenizers, self.cache)

    def folders(self) -> list[Path]:
        return sorted((self.cache / "prepared").iterdir())

    def times(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(self.cache.rglob("*"))}


@pytest.fixture
def corpus(tmp_path) -> Corpus:
    return Corpus(tmp_path)


def as_lists(found: TokenisedPairs) -> list[tuple[list[int], list[int]]]:
    return [(found.source[i].tolist(), found.target[i].tolist()) for i in range(len(found))]


def encoded(pairs: list[Pair], tokenizers=TOKENIZERS) -> list[tuple[list[int], list[int]]]:
    return [
        tuple(tokenizer.encode([text])[0] for tokenizer, text in zip(tokenizers, pair, strict=True)) for pair in pairs
    ]


@pytest.mark.parametrize("chunk", [1, 2, 20_000])
def test_the_cache_holds_what_direct_encoding_gives(corpus, monkeypatch, chunk):
    monkeypatch.setattr(tokenising, "CHUNK", chunk)
    found = corpus.tokenise()
    assert as_lists(found) == encoded(WHOLE)
    assert found.source.lengths.tolist() == [len(source) for source, _ in encoded(WHOLE)]


def test_cached_ids_decode_to_the_text(corpus):
    found = corpus.tokenise()
    assert BYTES.decode([row for row, _ in as_lists(found)]) == [source for source, _ in WHOLE]
    assert CHARACTERS.decode([row for _, row in as_lists(found)]) == [target for _, target in WHOLE]


def test_ids_above_65535_are_kept(corpus):
    words = train_tokenizer((f"w{n:05}" for n in range(66_000)), TokenizerSettings(kind="word", vocabulary=66_259))
    corpus.write([("w00001", "w00002"), *((f"w{n}", f"w{n + 1}") for n in range(65_900, 65_990))])
    found = corpus.tokenise((words, words))
    assert as_lists(found) == encoded(list(corpus.source), (words, words))
    assert found.source.ids.max() > 2**16


def test_small_vocabularies_take_two_bytes_per_id(corpus):
    found = corpus.tokenise()
    (folder,) = corpus.folders()
    assert (folder / "source.ids").stat().st_size == 2 * int(found.source.lengths.sum())


def test_no_pairs_give_no_ids(corpus):
    corpus.write([("", "x"), (" ", "y")])
    for found in (corpus.tokenise(), corpus.tokenise()):
        assert len(found) == 0
        assert found.source.lengths.tolist() == found.target.ids.tolist() == []


def test_progress_counts_the_pairs(corpus, monkeypatch):
    monkeypatch.setattr(parts, "PART_SAMPLES", 2)
    seen: list[int] = []
    tokenise_pairs(corpus.source, TOKENIZERS, corpus.cache, seen.append)
    assert seen == [2, 3]


def test_pairs_are_tokenised_once(corpus):
    first, before = corpus.tokenise(), corpus.times()
    again = corpus.tokenise()
    assert corpus.times() == before
    assert as_lists(again) == as_lists(first)


def test_a_moved_corpus_is_still_known(corpus, tmp_path_factory):
    corpus.tokenise()
    moved = tmp_path_factory.mktemp("moved")
    shutil.copy(corpus.folder / "a.tsv", moved / "b.tsv")
    source = pair_splits(PairData(root=str(moved), train=["b.tsv"], held_out=0.0))["train"]
    before = corpus.times()
    assert as_lists(tokenise_pairs(source, TOKENIZERS, corpus.cache)) == encoded(WHOLE)
    assert corpus.times() == before


def test_another_text_goes_to_another_folder(corpus):
    corpus.tokenise()
    corpus.write(PAIRS[:1])
    assert as_lists(corpus.tokenise()) == encoded(PAIRS[:1])
    assert len(corpus.folders()) == 2


@pytest.mark.parametrize("tokenizers", [(CHARACTERS, BYTES), (BYTES, BYTES), (CHARACTERS, CHARACTERS)])
def test_another_tokenizer_goes_to_another_folder(corpus, tokenizers):
    corpus.tokenise()
    assert as_lists(corpus.tokenise(tokenizers)) == encoded(WHOLE, tokenizers)
    assert len(corpus.folders()) == 2


def test_the_same_files_as_another_corpus_go_to_another_folder(corpus):
    """Two aligned files are other pairs than two TSVs, even of the same bytes."""
    for name in ("left", "right"):
        (corpus.folder / name).write_text("".join(f"{s}\t{t}\n" for s, t in WHOLE), encoding="utf-8")
    for train in (["left", "right"], [["left"], ["right"]]):
        source = pair_splits(PairData(root=str(corpus.folder), train=train, held_out=0.0))["train"]
        assert as_lists(tokenise_pairs(source, (BYTES, BYTES), corpus.cache)) == encoded(list(source), (BYTES, BYTES))
    assert len(corpus.folders()) == 2


def test_an_error_in_the_text_leaves_nothing_behind_and_is_told(corpus):
    (corpus.folder / "a.tsv").write_bytes(b"a\tb\n\xff\tc\n")
    with pytest.raises(RegardError, match="Line 2"):
        corpus.tokenise()
    assert corpus.folders() == []
