"""The survey: its counts on pairs where each of them can be seen by eye."""

from __future__ import annotations

import json

import numpy as np
import pytest

from regard.settings import TokenizerSettings
from regard.data import survey as module
from regard.data.survey import Survey, survey
from regard.data.tokenizers import train_tokenizer

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
def found(request, monkeypatch) -> Survey:
    """The same counts, however the pairs are cut into chunks."""
    monkeypatch.setattr(module, "CHUNK", request.param)
    return survey(PAIRS, (WORDS, WORDS), max_length=15)[0]


def test_pairs_and_empty_pairs_are_counted(found):
    assert (found.pairs, found.empty) == (14, 3)


def test_duplicates_are_pairs_that_stand_earlier(found):
    assert found.duplicates == 2


def test_unequal_pairs_are_over_three_times_and_over_ten_words_apart(found):
    assert found.unequal == 2


def test_pairs_too_long_for_training_are_counted(found):
    # 15 tokens and <end> do not fit into 15; 14 tokens and <end> do.
    assert found.too_long == 1


def test_lengths_are_in_tokens_of_the_pairs_with_text(found):
    source = [2, 2, 2, 2, 2, 15, 12, 14, 1, 2, 5]
    target = [2, 2, 2, 2, 1, 4, 4, 4, 8, 13, 2]
    for lengths, counts in ((source, found.source_lengths), (target, found.target_lengths)):
        assert counts == {
            "mean": pytest.approx(np.mean(lengths), abs=0.005),
            "median": np.median(lengths),
            "99%": pytest.approx(np.percentile(lengths, 99)),
            "longest": max(lengths),
        }


def test_spelled_out_is_the_share_of_tokens(found):
    assert found.spelled_out == pytest.approx(4 / (59 + 44))


def test_bytes_spell_nothing_out():
    assert survey(PAIRS, (BYTES, BYTES), 1000)[0].spelled_out == 0


def test_each_side_has_its_own_tokenizer():
    counts = survey([("the dog", "der Hund")], (WORDS, BYTES), 100)[0]
    assert (counts.source_lengths["longest"], counts.target_lengths["longest"]) == (2, 8)


def test_hashes_tell_which_pairs_and_sources_two_splits_share():
    _, pairs, sources = survey(PAIRS, (WORDS, WORDS), 100)
    assert len(pairs) == len(sources) == len(KEPT)
    assert len(set(pairs.tolist())) == len(set(KEPT))
    assert len(set(sources.tolist())) == len({source for source, _ in KEPT})
    other = [("new", "neu"), ("the dog", "Der Hund"), ("a cat", "eine Katze")]
    _, other_pairs, other_sources = survey(other, (WORDS, WORDS), 100)
    assert np.isin(other_pairs, pairs).tolist() == [False, False, True]
    assert np.isin(other_sources, sources).tolist() == [False, True, True]


def test_a_survey_of_nothing_is_all_zero():
    counts, pairs, sources = survey([], (WORDS, WORDS), 100)
    assert counts == Survey(0, 0, 0, 0, {}, {}, 0, 0.0)
    assert len(pairs) == len(sources) == 0


def test_a_survey_becomes_json(found):
    tree = json.loads(json.dumps(found.to_json()))
    assert tree["pairs"] == 14
    assert tree["source_lengths"]["longest"] == 15
