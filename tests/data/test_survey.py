"""Surveys: their figures on data where each of them can be seen by eye, and the advice that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from photos import SETTINGS
from regard.data import survey as module
from regard.data.labelled import labelled_splits
from regard.data.questions import question_splits
from regard.data.running_text import TextSplits
from regard.data.splits import Obstacle
from regard.data.survey import (
    Survey,
    count_pairs,
    survey_images,
    survey_labelled,
    survey_pairs,
    survey_questions,
    survey_text,
)
from regard.data.text import text_source
from regard.data.tokenizers import train_tokenizer
from regard.settings import LabelledData, QuestionData, TextData, TokenizerSettings

KNOWN = "the dog sees a cat . der Hund sieht eine Katze . " + " ".join(f"w{n}" for n in range(20))
WORDS = train_tokenizer([KNOWN], TokenizerSettings(kind="word", vocabulary=1000))
BYTES = train_tokenizer([], TokenizerSettings(kind="byte"))


def words(count: int, first: int = 0) -> str:
    return " ".join(f"w{n}" for n in range(first, first + count))


PAIRS = [
    ("the dog", "der Hund"),
    ("a cat", "eine Katze"),
    ("the dog", "der Hund"),  # a duplicate
    ("the dog", "der Hund"),  # and another
    ("the dog", "Hund"),  # only its source stands above
    ("", "der Hund"),  # empty
    ("the dog", " \t"),  # empty
    ("", ""),  # empty
    (words(15), words(4)),  # unequal: over three times, and 11 more
    (words(12), words(4)),  # three times, not over
    (words(14), words(4)),  # over three times, but only 10 more
    (words(1), words(8)),  # over three times, but only 7 more
    (words(2), words(13)),  # unequal, the other way
    ("the xyz", "der Hund"),  # 4 bytes spelled out, of 5 tokens
]
KEPT = [pair for pair in PAIRS if pair[0].strip() and pair[1].strip()]


@pytest.fixture(params=[10_000, 1, 4])
def figures(request, monkeypatch) -> dict[str, Any]:
    """The same counts, however the pairs are cut into chunks."""
    monkeypatch.setattr(module, "CHUNK", request.param)
    return count_pairs(PAIRS, (WORDS, WORDS), max_length=15)[0]


def test_pairs_and_empty_pairs_are_counted(figures):
    assert (figures["pairs"], figures["empty"]) == (14, 3)


def test_duplicates_are_pairs_that_stand_earlier(figures):
    assert figures["duplicates"] == 2


def test_unequal_pairs_are_over_three_times_and_over_ten_words_apart(figures):
    assert figures["unequal"] == 2


def test_pairs_too_long_for_training_are_counted(figures):
    # 15 tokens and <end> do not fit into 15; 14 tokens and <end> do.
    assert figures["too_long"] == 1


def test_lengths_are_in_tokens_of_the_pairs_with_text(figures):
    source = [2, 2, 2, 2, 2, 15, 12, 14, 1, 2, 5]
    target = [2, 2, 2, 2, 1, 4, 4, 4, 8, 13, 2]
    for lengths, counts in ((source, figures["source_lengths"]), (target, figures["target_lengths"])):
        assert counts == {
            "mean": pytest.approx(np.mean(lengths), abs=0.005),
            "median": np.median(lengths),
            "99%": pytest.approx(np.percentile(lengths, 99)),
            "longest": max(lengths),
        }


def test_spelled_out_is_the_share_of_tokens(figures):
    assert figures["spelled_out"] == pytest.approx(4 / (59 + 44))


def test_bytes_spell_nothing_out():
    assert count_pairs(PAIRS, (BYTES, BYTES), 1000)[0]["spelled_out"] == 0


def test_each_side_has_its_own_tokenizer():
    counts = count_pairs([("the dog", "der Hund")], (WORDS, BYTES), 100)[0]
    assert (counts["source_lengths"]["longest"], counts["target_lengths"]["longest"]) == (2, 8)


def test_hashes_tell_which_pairs_and_sources_two_splits_share():
    _, pairs, sources = count_pairs(PAIRS, (WORDS, WORDS), 100)
    assert len(pairs) == len(sources) == len(KEPT)
    assert len(set(pairs.tolist())) == len(set(KEPT))
    assert len(set(sources.tolist())) == len({source for source, _ in KEPT})
    other = [("new", "neu"), ("the dog", "Der Hund"), ("a cat", "eine Katze")]
    _, other_pairs, other_sources = count_pairs(other, (WORDS, WORDS), 100)
    assert np.isin(other_pairs, pairs).tolist() == [False, False, True]
    assert np.isin(other_sources, sources).tolist() == [False, True, True]


def test_figures_of_nothing_are_all_zero():
    figures, pairs, sources = count_pairs([], (WORDS, WORDS), 100)
    assert not any(figures.values())
    assert len(pairs) == len(sources) == 0


def test_pairs_that_are_of_no_use_or_stand_in_train_and_test_are_named():
    splits = {"train": PAIRS, "valid": KEPT[:2], "test": [("new", "neu")]}
    figures, advice = survey_pairs(splits, (WORDS, WORDS), 15)
    assert figures["vocabulary"] == WORDS.size
    assert figures["valid"]["pairs_also_in_train"] == figures["valid"]["sources_also_in_train"] == 2
    assert figures["test"]["pairs_also_in_train"] == 0
    said = " ".join(advice)
    for part in (
        "2 training pairs are repeated",
        "3 training pairs have an empty side",
        "2 training pairs are of very",
    ):
        assert part in said
    assert "2 valid sentences are also in train" in said
    assert "of test tokens are spelled out" in said
    clean = [(words(3, n), words(3, n)) for n in range(9)]
    assert survey_pairs({"train": clean[:5], "valid": clean[5:7], "test": clean[7:]}, (WORDS, WORDS), 15)[1] == []


def test_answers_that_are_all_short_are_not_of_unequal_length():
    answers = [(words(18, n % 2), "w1") for n in range(20)]
    assert count_pairs(answers, (WORDS, WORDS), 100)[0]["unequal"] == 0
    swapped = [("w1", words(18)), ("w1", words(18)), *answers]
    assert count_pairs(swapped, (WORDS, WORDS), 100)[0]["unequal"] == 2


def test_a_split_without_samples_is_in_the_way_of_training(tmp_path):
    pairs = [(words(3, n), words(3, n)) for n in range(9)]
    whole = {"train": pairs[:5], "valid": pairs[5:7], "test": pairs[7:]}
    assert not obstacles(survey_pairs(whole, (WORDS, WORDS), 15))
    assert obstacles(survey_pairs(whole | {"test": [("", "w1")]}, (WORDS, WORDS), 15)) == [
        "The test data is empty: no pair with text on both sides is left for it."
    ]
    [only] = obstacles(survey_pairs(whole, (WORDS, WORDS), 3))
    assert "All training pairs are longer than data.max_length = 3" in only
    (tmp_path / "a.jsonl").write_text('{"question": "Who?", "context": "Mary went.", "answer": "John"}\n' * 2)
    sources = question_splits(QuestionData(root=str(tmp_path), train=["a.jsonl"], valid=["a.jsonl"]))
    assert [line.partition(":")[0] for line in obstacles(survey_questions(sources, True))] == [
        "The test data is empty",
        "No training question has an answer that stands in its context.",
    ]


def obstacles(survey: Survey) -> list[str]:
    return [line for line in survey[1] if isinstance(line, Obstacle)]


def test_text_that_is_little_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "three"}\n')
    text = text_source("a.jsonl", TextData(root=str(tmp_path)))
    little = TextSplits(*(np.zeros(count, np.int64) for count in (640, 999, 0)))
    figures, advice = survey_text(text, little, vocabulary=259, row_length=64)
    assert (figures["files"], figures["documents"], figures["bytes"]) == (1, 2, 8)
    assert (figures["train_tokens"], figures["valid_tokens"], figures["test_tokens"]) == (640, 999, 0)
    assert "only 10 rows of 64 tokens" in advice[0] and "little text to validate" in advice[1]
    enough = TextSplits(*(np.zeros(count, np.int64) for count in (6400, 1000, 0)))
    assert survey_text(text, enough, vocabulary=259, row_length=64)[1] == []


def test_labels_that_are_rare_or_unknown_and_texts_in_train_and_test_are_named(tmp_path):
    (tmp_path / "train.tsv").write_text("".join(f"a\ttext {n}\n" for n in range(12)) + "b\tone two three\nb\tone\n")
    (tmp_path / "test.tsv").write_text("a\ttext 1\na\tnew\nc\tstrange\n")
    data = LabelledData(root=str(tmp_path), train=["train.tsv"], valid=["test.tsv"], test=["test.tsv"])
    figures, advice = survey_labelled(labelled_splits(data))
    assert figures["classes"] == {"a": {"train": 12, "valid": 2, "test": 2}, "b": {"train": 2, "valid": 0, "test": 0}}
    assert figures["train"] == {"texts": 14, "repeated": 0, "mean_words": 2.0, "longest_words": 3}
    assert figures["test"]["texts_also_in_train"] == 1
    said = " ".join(advice)
    assert "Labels of test that train does not have: c." in said
    assert "1 test text is also in train" in said
    assert "The class 'b' has only 2 training texts." in said


def test_images_that_are_bad_repeated_or_rare_are_named(photos):
    photos.add("train/cat", range(12)).add("train/dog", range(20, 32)).add("train/few", range(40, 41))
    photos.add("test/cat", range(10, 14)).add("test/dog", range(10, 11))
    (photos.folder / "train" / "none").mkdir()
    (photos.folder / "train" / "cat" / "text.png").write_text("not an image")
    figures, advice = survey_images(photos.data(held_out=0.0), SETTINGS, with_classes=True)
    assert figures["classes"]["cat"] == {"train": 12, "valid": 0, "test": 4}
    assert (figures["empty_classes"], figures["left_out"]) == (1, 1)
    assert figures["test"] == {"images": 5, "repeated": 1, "images_also_in_train": 3}
    said = " ".join(advice)
    for part in (
        "text.png",
        "train/none",
        "1 image occurs with more than one label",
        "3 test images are also in train",
    ):
        assert part in said
    assert "The class 'few' has only 1 training image." in said
