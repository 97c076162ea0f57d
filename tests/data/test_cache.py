"""The cache of tokenised pairs: it is what direct encoding gives, is used again, and is never half-written."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from regard.data import tokenised
from regard.data.cache import cache_folder
from regard.data.pairs import Pair, PairSource, pair_splits
from regard.data.ragged import Ragged, spread
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


# --- What is in them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 2, 20_000])
def test_the_cache_holds_what_direct_encoding_gives(corpus, monkeypatch, chunk):
    monkeypatch.setattr(tokenised, "CHUNK", chunk)
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


def test_small_vocabularies_take_two_bytes_an_id(corpus):
    found = corpus.tokenise()
    (folder,) = corpus.folders()
    assert (folder / "source.ids").stat().st_size == 2 * int(found.source.lengths.sum())


def test_no_pairs_give_no_ids(corpus):
    corpus.write([("", "x"), (" ", "y")])
    for found in (corpus.tokenise(), corpus.tokenise()):
        assert len(found) == 0
        assert found.source.lengths.tolist() == found.target.ids.tolist() == []


def test_progress_counts_the_pairs(corpus, monkeypatch):
    monkeypatch.setattr(tokenised, "CHUNK", 2)
    seen: list[int] = []
    tokenise_pairs(corpus.source, TOKENIZERS, corpus.cache, seen.append)
    assert seen == [2, 3]


# --- Using them again ------------------------------------------------------------------------------------


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


def test_the_cache_is_where_the_settings_or_the_environment_say(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("") == tmp_path / "regard"
    assert cache_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("") == Path.home() / ".cache" / "regard"


# --- Damage ----------------------------------------------------------------------------------------------

FILES = ["source.ids", "source.offsets", "target.ids", "target.offsets"]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_is_found_and_the_cache_written_again(corpus, name):
    corpus.tokenise()
    path = corpus.folders()[0] / name
    raw = bytearray(path.read_bytes())
    for place in (0, len(raw) // 2, len(raw) - 1):
        damaged = raw.copy()
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert as_lists(corpus.tokenise()) == encoded(WHOLE)
        assert path.read_bytes() == raw


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("kept", [None, 0, 1, -1])
def test_a_missing_or_truncated_file_is_found_and_the_cache_written_again(corpus, name, kept):
    corpus.tokenise()
    path = corpus.folders()[0] / name
    raw = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(raw[:kept])
    assert as_lists(corpus.tokenise()) == encoded(WHOLE)
    assert path.read_bytes() == raw


def test_no_flipped_byte_of_the_manifest_does_harm(corpus):
    corpus.tokenise()
    path = corpus.folders()[0] / "manifest.json"
    raw = path.read_bytes()
    for place in (*range(raw.index(b"sha256")), *range(raw.index(b"sha256"), len(raw), 17)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        assert as_lists(corpus.tokenise()) == encoded(WHOLE), place


class Interrupted(Exception):
    pass


def test_an_interrupted_writing_leaves_nothing_behind(corpus, monkeypatch):
    monkeypatch.setattr(tokenised, "CHUNK", 1)

    class Breaking(PairSource):
        def __iter__(self):
            yield from itertools.islice(super().__iter__(), 3)
            assert any((corpus.cache / "prepared").iterdir()), "writing has begun"
            raise Interrupted

    whole = corpus.source
    with pytest.raises(Interrupted):
        tokenise_pairs(Breaking(whole.name, whole.settings, whole.corpora, whole.division), TOKENIZERS, corpus.cache)
    assert corpus.folders() == []
    assert as_lists(corpus.tokenise()) == encoded(WHOLE)


def test_an_error_in_the_text_leaves_nothing_behind_and_is_told(corpus):
    (corpus.folder / "a.tsv").write_bytes(b"a\tb\n\xff\tc\n")
    with pytest.raises(RegardError, match="Line 2"):
        corpus.tokenise()
    assert corpus.folders() == []


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(corpus):
    corpus.cache.write_text("a file, where a folder should be")
    with pytest.raises(RegardError) as caught:
        corpus.tokenise()
    assert str(corpus.cache) in caught.value.what
    assert "data.cache" in caught.value.fix


# --- Ragged arrays ---------------------------------------------------------------------------------------


def ragged(rows: list[list[int]]) -> Ragged:
    flat = np.array([token for row in rows for token in row], np.uint16)
    return Ragged(flat, np.cumsum([0, *map(len, rows)]))


def test_spread_equals_a_loop():
    generator = np.random.default_rng(1)
    for count in (0, 1, 2, 50):
        starts, lengths = generator.integers(0, 1000, count), generator.integers(0, 6, count)
        expected = [start + step for start, length in zip(starts, lengths, strict=True) for step in range(length)]
        assert spread(starts, lengths).tolist() == expected


def test_take_equals_a_loop():
    generator = np.random.default_rng(2)
    rows = [generator.integers(0, 60_000, length).tolist() for length in generator.integers(0, 7, 40)]
    sentences = ragged(rows)
    for chosen in (
        [],
        [0],
        [39],
        [3, 3, 3],
        generator.permutation(40).tolist(),
        generator.integers(0, 40, 100).tolist(),
    ):
        taken = sentences.take(np.array(chosen, np.int64))
        assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in chosen]
        assert taken.lengths.tolist() == [len(rows[i]) for i in chosen]


def test_take_copies():
    sentences = ragged([[1, 2], [3]])
    taken = sentences.take(np.array([0, 1]))
    taken.ids[:] = 0
    assert sentences.ids.tolist() == [1, 2, 3]
