"""Reading sentence pairs: every form of file, every way a file can be wrong, and the hold-out split."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from expect import error_of
from regard.data.lines import LONGEST_LINE
from regard.data.pairs import _sample_pairs, not_empty, pair_files, pair_source, pair_splits, read_aligned, read_tsv
from regard.data.samples import english_german, stories
from regard.settings import PairData

PAIRS = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("Größe 句子 🙂", "naïve Ωmega")]


def write(path: Path, lines: list[str] | list[bytes], end: str = "\n", start: bytes = b"") -> Path:
    raw = start + b"".join((line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def write_aligned(folder: Path, name: str = "train", pairs=PAIRS, **form) -> list[str]:
    for side, language in enumerate(("en", "de")):
        write(folder / f"{name}.{language}", [pair[side] for pair in pairs], **form)
    return [f"{name}.en", f"{name}.de"]


def settings(folder: Path, **values) -> PairData:
    return PairData(root=str(folder), **values)


# --- Forms of files --------------------------------------------------------------------------------------


def test_aligned_files_give_line_n_with_line_n(tmp_path):
    train = write_aligned(tmp_path)
    named = settings(tmp_path, train=train, valid=train, test=train)
    assert {name: list(source) for name, source in pair_splits(named).items()} == dict.fromkeys(
        ("train", "valid", "test"), PAIRS
    )


def test_reading_twice_gives_the_same(tmp_path):
    source = pair_splits(settings(tmp_path, train=write_aligned(tmp_path), held_out=0.0))["train"]
    assert list(source) == list(source) == PAIRS


@pytest.mark.parametrize(
    "form", [{"end": "\r\n"}, {"start": b"\xef\xbb\xbf"}, {"end": "\r\n", "start": b"\xef\xbb\xbf"}]
)
def test_windows_line_ends_and_a_byte_order_mark_are_not_part_of_the_text(tmp_path, form):
    write_aligned(tmp_path, **form)
    assert list(read_aligned(tmp_path / "train.en", tmp_path / "train.de")) == PAIRS


def test_gzipped_files_read_like_plain_ones(tmp_path):
    write(tmp_path / "a.en.gz", [pair[0] for pair in PAIRS])
    write(tmp_path / "a.de", [pair[1] for pair in PAIRS])
    assert list(read_aligned(tmp_path / "a.en.gz", tmp_path / "a.de")) == PAIRS


@pytest.mark.parametrize(
    ("columns", "expected"),
    [([0, 1], ("en", "de")), ([1, 0], ("de", "en")), ([2, 0], ("fr", "en")), ([1, 1], ("de", "de"))],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_tsv_gives_the_columns_asked_for(tmp_path, columns, expected, name):
    write(tmp_path / name, ["en\tde\tfr", "en\tde\tfr\tmore"], end="\r\n")
    source = pair_splits(settings(tmp_path, train=[name], columns=columns, held_out=0.0))["train"]
    assert list(source) == [expected, expected]


def test_a_tsv_with_a_missing_column_is_named_by_line(tmp_path):
    path = write(tmp_path / "a.tsv", ["a\tb", "only one", "c\td"])
    error = error_of(read_tsv, path, [0, 1])
    assert "Line 2" in error.what
    assert str(path) in error.what
    assert list(read_tsv(path, [0, 1], "skip")) == [("a", "b"), None, ("c", "d")]


def test_an_unreadable_line_of_a_tsv_can_be_skipped(tmp_path):
    path = write(tmp_path / "a.tsv", [b"a\tb", b"\xff\tx", b"c\td"])
    assert list(read_tsv(path, [0, 1], "skip")) == [("a", "b"), None, ("c", "d")]
    source = pair_source([str(path)], settings(tmp_path, bad_lines="skip"))
    assert list(source) == [("a", "b"), ("c", "d")]
    assert list(source.lines()) == [("a", "b"), None, ("c", "d")]


def test_several_corpora_follow_one_another(tmp_path):
    first = write_aligned(tmp_path, "first", PAIRS[:1])
    write(tmp_path / "second.tsv", ["\t".join(pair) for pair in PAIRS[1:]])
    source = pair_splits(settings(tmp_path, train=[first, ["second.tsv"]], held_out=0.0))["train"]
    assert list(source) == PAIRS


def test_absolute_paths_do_not_start_at_the_root(tmp_path):
    write_aligned(tmp_path)
    train = [str(tmp_path / "train.en"), str(tmp_path / "train.de")]
    assert list(pair_splits(settings(Path("/nowhere"), train=train, held_out=0.0))["train"]) == PAIRS


def test_one_corpus_is_told_from_several(tmp_path):
    a, b, c = (write(tmp_path / name, ["x"]) for name in "abc")
    assert pair_files([], str(tmp_path), "data.train") == ()
    assert pair_files(["a", "b"], str(tmp_path), "data.train") == ((a, b),)
    assert pair_files([["a", "b"], ["c"]], str(tmp_path), "data.train") == ((a, b), (c,))


def test_other_files_are_read_as_the_settings_say_from_where_the_command_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "other.tsv", ["x\ten\tde"])
    built_in = PairData(root="/nowhere", sample="english-german", columns=[1, 2])
    assert list(pair_source(["other.tsv"], built_in)) == [("en", "de")]
    assert "gone.tsv" in error_of(pair_source, ["gone.tsv"], built_in).what


@pytest.mark.parametrize(("listed", "count"), [(["a", "b", "c"], 3), ([["a"], []], 0), ([["a", "b", "c"]], 3)])
def test_a_corpus_of_none_or_three_files_is_refused_by_key(listed, count):
    error = error_of(pair_files, listed, ".", "data.valid")
    assert "data.valid" in error.what
    assert str(count) in error.what


def test_the_built_in_corpus_needs_no_files():
    sources = pair_splits(PairData(sample="english-german"))
    assert len(list(sources["train"])) == 31_000
    assert not {s for s, _ in sources["train"]} & ({s for s, _ in sources["valid"]} | {s for s, _ in sources["test"]})


def test_pairs_with_an_empty_side_can_be_left_out():
    assert list(not_empty([("a", "b"), ("", "b"), ("a", " \t"), ("\u3000", "b"), ("c", "d")])) == [
        ("a", "b"),
        ("c", "d"),
    ]


# --- Files that are wrong --------------------------------------------------------------------------------


def test_no_training_data_says_which_key_to_set():
    error = error_of(pair_splits, PairData())
    assert "data.train" in error.fix


@pytest.mark.parametrize("key", ["train", "valid", "test"])
def test_a_missing_file_is_named_with_the_folder_before_anything_is_read(tmp_path, key):
    train = write_aligned(tmp_path)
    named = {"train": train, "valid": train, "test": train} | {key: ["train.en", "gone.de"]}
    error = error_of(pair_splits, settings(tmp_path, **named))
    assert str(tmp_path / "gone.de") in error.what
    assert str(tmp_path) in error.why


def test_a_folder_in_place_of_a_file_counts_as_missing(tmp_path):
    (tmp_path / "gone.de").mkdir()
    write_aligned(tmp_path)
    error = error_of(pair_splits, settings(tmp_path, train=["train.en", "gone.de"]))
    assert "gone.de" in error.what


@pytest.mark.parametrize(("left", "right"), [(1200, 1234), (1234, 1200), (0, 3), (3, 0)])
def test_unequal_line_counts_are_both_stated(tmp_path, left, right):
    source = write(tmp_path / "a.en", ["x"] * left)
    target = write(tmp_path / "a.de", ["y"] * right)
    error = error_of(read_aligned, source, target)
    assert f"{left:,} lines, the second {right:,}" in error.why
    assert str(source) in error.what
    assert str(target) in error.what


def test_unequal_line_counts_count_bad_lines_too(tmp_path):
    source = write(tmp_path / "a.en", [b"\xff", b"x", b"\xff"])
    target = write(tmp_path / "a.de", [b"y", b"\xff"])
    assert "3 lines, the second 2" in error_of(read_aligned, source, target, "skip").why


def test_skipping_bad_lines_keeps_the_others_aligned(tmp_path):
    count = 20
    sources = [f"s{n}".encode() for n in range(count)]
    targets = [f"t{n}".encode() for n in range(count)]
    sources[3], targets[7], sources[11], targets[11] = b"\xff", b"\xc3", b"\xff", b"\xff"
    sources[0], targets[count - 1] = b"x" * (LONGEST_LINE + 5), b"y" * (LONGEST_LINE + 5)
    write(tmp_path / "a.en", sources)
    write(tmp_path / "a.de", targets)
    named = settings(tmp_path, train=["a.en", "a.de"], bad_lines="skip", held_out=0.0)
    good = [n for n in range(count) if n not in (0, 3, 7, 11, count - 1)]
    assert list(pair_splits(named)["train"]) == [(f"s{n}", f"t{n}") for n in good]


def test_a_bad_line_stops_the_reading_unless_it_is_to_be_skipped(tmp_path):
    write(tmp_path / "a.en", [b"fine", b"\xff"])
    write(tmp_path / "a.de", [b"gut", b"gut"])
    source = pair_splits(settings(tmp_path, train=["a.en", "a.de"], held_out=0.0))["train"]
    assert "Line 2" in error_of(list, source).what


# --- The hold-out split ----------------------------------------------------------------------------------

MANY = [(f"sentence {n % 4000}", f"Satz {n}") for n in range(6000)]  # a third of the sources stand twice


@pytest.fixture
def divided(tmp_path) -> dict[str, list[tuple[str, str]]]:
    train = write_aligned(tmp_path, pairs=MANY)
    return {name: list(source) for name, source in pair_splits(settings(tmp_path, train=train, held_out=0.1)).items()}


def test_every_pair_falls_into_exactly_one_split(divided):
    assert Counter(pair for pairs in divided.values() for pair in pairs) == Counter(MANY)


def test_no_source_sentence_is_in_two_splits(divided):
    sides = [{source for source, _ in pairs} for pairs in divided.values()]
    assert all(sides)
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])


def test_the_order_of_the_file_is_kept_in_every_split(divided):
    index_of = {pair: index for index, pair in enumerate(MANY)}
    for pairs in divided.values():
        indices = [index_of[pair] for pair in pairs]
        assert indices == sorted(indices)


# --- The fingerprint -------------------------------------------------------------------------------------


def test_the_fingerprint_stays_while_the_text_does(tmp_path):
    train = write_aligned(tmp_path)
    named = settings(tmp_path, train=train)
    first = {name: source.fingerprint for name, source in pair_splits(named).items()}
    write_aligned(tmp_path)
    assert {name: source.fingerprint for name, source in pair_splits(named).items()} == first
    assert len(set(first.values())) == 3


def test_the_fingerprint_changes_with_the_text_and_with_how_it_is_read(tmp_path):
    train = write_aligned(tmp_path, pairs=[("a\tb", "c\td"), ("e\tf", "g\th")])
    ways = [
        settings(tmp_path, train=train),
        settings(tmp_path, train=train[::-1]),
        settings(tmp_path, train=[[train[0]], [train[1]]]),
        settings(tmp_path, train=[[train[0]], [train[1]]], columns=[1, 0]),
        settings(tmp_path, train=train, held_out=0.2),
        settings(tmp_path, train=train, bad_lines="skip"),
        settings(tmp_path, train=train, valid=train),
    ]
    prints = {pair_splits(way)["train"].fingerprint for way in ways}
    write_aligned(tmp_path, pairs=[("a\tb", "c\td"), ("e\tf", "g\tH")])
    prints.add(pair_splits(ways[0])["train"].fingerprint)
    assert len(prints) == len(ways) + 1


# --- The built-in corpus ---------------------------------------------------------------------------------


def test_the_built_in_corpus_is_made_up_once_and_read_from_then_on(tmp_path, monkeypatch):
    small, made = english_german.corpus(train=30, valid=5, test=5), []
    monkeypatch.setattr(english_german, "corpus", lambda: made.append(1) or small)
    for _ in range(2):  # the second time as another process would
        _sample_pairs.cache_clear()
        named = PairData(sample="english-german", cache=str(tmp_path))
        read = {name: list(source) for name, source in pair_splits(named).items()}
        assert read == {"train": small.train, "valid": small.valid, "test": small.test}
    _sample_pairs.cache_clear()
    assert len(made) == 1


def test_the_built_in_corpus_needs_no_place_to_be_kept(tmp_path, monkeypatch):
    small = english_german.corpus(train=30, valid=5, test=5)
    monkeypatch.setattr(english_german, "corpus", lambda: small)
    (tmp_path / "file").write_text("")
    _sample_pairs.cache_clear()
    named = PairData(sample="english-german", cache=str(tmp_path / "file"))
    assert list(pair_splits(named)["test"]) == small.test
    _sample_pairs.cache_clear()


def test_the_stories_are_pairs_of_a_question_with_its_story_and_an_answer_in_words():
    splits = pair_splits(PairData(sample="stories"))
    pairs = list(splits["test"])
    asked = stories.stories().test
    assert [pair[0] for pair in pairs] == [f"{each.question} {each.story}" for each in asked]
    assert [pair[1] for pair in pairs] == [each.answer or "nobody knows" for each in asked]
