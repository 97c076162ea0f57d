"""Made-up sequences: their answers, worked out again slowly; and that they are the same whenever they are asked for."""

import itertools

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from corpora import equal
from regard.data.batch import DataState
from regard.data.synthetic import (
    FIRST,
    MARK,
    SyntheticStream,
    chance,
    held_out,
    sequences,
    spell,
    vocabulary_size,
)
from regard.data.tokenizers import PAD, START
from regard.settings import SyntheticSettings

RECALL = ["recall", "recall-multi", "recall-one-shot"]
ALL = ["copy", "reverse", "sort", *RECALL]


def settings(kind: str, **changes) -> SyntheticSettings:
    return SyntheticSettings(**({"kind": kind, "vocabulary": 8, "length": 24, "test_sequences": 50} | changes))


def made(given: SyntheticSettings, rows: int = 200, training: bool = False) -> list[tuple[list[int], list[int]]]:
    """Sequences as (tokens, labels)."""
    batch = sequences(given, rows, np.random.default_rng(4), training)
    assert batch.tokens_BT.dtype == batch.labels.dtype == torch.int64
    assert batch.tokens_BT.shape == batch.labels.shape == (rows, given.length - 1)
    return list(zip(batch.tokens_BT.tolist(), batch.labels.tolist(), strict=True))


# --- The kinds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copy", "reverse", "sort"])
def test_the_answer_follows_from_the_symbols_before_the_mark(kind):
    for tokens, labels in made(settings(kind)):
        count = 11  # of 24 tokens, after <start> and the mark
        assert tokens[0] == START and tokens[count + 1] == MARK
        symbols = tokens[1 : count + 1]
        assert all(FIRST <= symbol < FIRST + 8 for symbol in symbols)
        answer = {"copy": symbols, "reverse": symbols[::-1], "sort": sorted(symbols)}[kind]
        assert labels == [PAD] * (count + 1) + answer
        assert tokens[count + 2 :] == answer[:-1]


def test_symbols_are_drawn_with_repetition_and_all_occur():
    rows = [tokens[1:12] for tokens, _ in made(settings("copy"))]
    assert any(len(set(row)) < len(row) for row in rows)
    assert {symbol for row in rows for symbol in row} == set(range(FIRST, FIRST + 8))


def expected_recall(tokens: list[int], every: bool) -> list[int]:
    """The labels of pairs, by a dictionary that is filled as they are read."""
    values: dict[int, int] = {}
    labels = [PAD] * len(tokens)
    for place in range(0, len(tokens) - 1, 2):
        key, value = tokens[place], tokens[place + 1]
        assert FIRST <= key < FIRST + 4 <= value < FIRST + 8
        if key in values:
            assert values[key] == value  # one value per key
            labels[place] = value if every else PAD
        values[key] = value
    assert len(set(values.values())) == len(values)  # and one key per value
    labels[-1] = values[tokens[-1]]  # the last key has occurred
    return labels


@pytest.mark.parametrize(
    ("kind", "learn_from", "training", "every"),
    [
        ("recall", "query", False, False),
        ("recall", "query", True, False),
        ("recall", "all", False, False),  # what is measured stays the same
        ("recall", "all", True, True),
        ("recall-multi", "query", False, True),
        ("recall-multi", "query", True, True),
    ],
)
def test_the_value_of_a_key_is_the_one_it_had_before(kind, learn_from, training, every):
    for tokens, labels in made(settings(kind, learn_from=learn_from), training=training):
        assert labels == expected_recall(tokens, every)


def test_every_sequence_has_its_own_dictionary():
    seen = {(tokens[-1], labels[-1]) for tokens, labels in made(settings("recall"))}
    assert len(seen) == 4 * 4


def test_the_last_key_is_any_that_occurred_each_as_likely():
    # Two pairs and a query: where both keys are the same there is no choice; else it is even.
    rows = [tokens for tokens, _ in made(settings("recall", length=6), rows=4000) if tokens[0] != tokens[2]]
    share = np.mean([tokens[-1] == tokens[0] for tokens in rows])
    assert 0.45 < share < 0.55


@pytest.mark.parametrize("length", [10, 24])
def test_in_one_shot_every_key_occurs_exactly_once_before_the_query(length):
    places = set()
    for tokens, labels in made(settings("recall-one-shot", length=length), rows=400):
        body, query = tokens[:-1], tokens[-1]
        values = {}
        for key in range(FIRST, FIRST + 4):
            assert body.count(key) == 1
            values[key] = body[body.index(key) + 1]
            places.add(body.index(key))
        assert sorted(values.values()) == list(range(FIRST + 4, FIRST + 8))
        assert body.count(MARK) == length - 2 - 8  # nothing else stands there
        assert labels == [PAD] * (length - 2) + [values[query]]
    assert places == set(range(0, 8, 2) if length == 10 else range(length - 3))


@pytest.mark.parametrize("kind", ALL)
def test_chance_is_what_a_guess_among_the_possible_answers_gets(kind):
    given = settings(kind)
    answers = [label for _, labels in made(given, rows=500) for label in labels if label != PAD]
    possible = sorted(set(answers))
    assert chance(given) == 100 / len(possible)
    guesses = np.random.default_rng(1).choice(possible, len(answers))
    assert 100 * np.mean(guesses == answers) == pytest.approx(chance(given), abs=6)


@pytest.mark.parametrize("kind", ALL)
def test_all_tokens_are_in_the_vocabulary_and_are_spelled_apart(kind):
    given = settings(kind)
    used = {token for tokens, labels in made(given) for token in tokens + labels}
    assert max(used) == vocabulary_size(given) - 1
    assert len({spell(given, token) for token in used}) == len(used)


# --- Permutations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "vocabulary"), [(3, 6), (4, 24), (5, 120)])
def test_each_label_is_what_all_permutations_so_far_make_of_the_elements(elements, vocabulary):
    given = settings("permutations", vocabulary=vocabulary, length=17)
    batch = sequences(given, 100, np.random.default_rng(4))
    assert batch.tokens_BT.shape == batch.labels.shape == (100, 17)
    for tokens, labels in zip(batch.tokens_BT.tolist(), batch.labels.tolist(), strict=True):
        things = "abcde"[:elements]
        for token, label in zip(tokens, labels, strict=True):
            taken_from = [ord(letter) - ord("a") for letter in spell(given, token)]
            things = "".join(things[place] for place in taken_from)
            assert spell(given, label) == things


def test_permutations_are_all_drawn_and_chance_is_one_of_them():
    given = settings("permutations", vocabulary=6, length=16)
    batch = sequences(given, 500, np.random.default_rng(4))
    spelled = {spell(given, token) for token in batch.tokens_BT.flatten().tolist()}
    assert spelled == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert chance(given) == 100 / 6
    _, counts = batch.labels.unique(return_counts=True)
    assert len(counts) == 6 and counts.max() < 1.1 * counts.min()  # no answer is commoner
    assert vocabulary_size(given) == int(batch.tokens_BT.max()) + 1


def test_permutations_come_from_the_seed_and_the_row_alone():
    given = settings("permutations", vocabulary=6, length=16)

    def first(seed: int):
        return next(SyntheticStream(given, 50, seed).batches(DataState()))[0]

    assert equal(first(3), first(3))
    assert not equal(first(3), first(4))
    assert not equal(held_out(given, "valid"), held_out(given, "test"))


# --- The stream ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_no_sequence_comes_twice_in_training_nor_in_validation_or_test(kind):
    given = settings(kind, vocabulary=20, length=40)
    batches = [batch for batch, _ in itertools.islice(SyntheticStream(given, 50, seed=3).batches(DataState()), 20)]
    batches += [held_out(given, "valid"), held_out(given, "test")]
    rows = [tuple(row) for batch in batches for row in batch.tokens_BT.tolist()]
    assert len(rows) == 1100
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_sequences_are_fixed_and_as_many_as_asked_for(split):
    first = held_out(settings("recall"), split)
    assert len(first.tokens_BT) == 50
    assert equal(first, held_out(settings("recall", learn_from="all"), split))


# --- Settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"vocabulary": 2}, "vocabulary"),
        ({"vocabulary": 9}, "vocabulary = 9 is odd"),
        ({"length": 25}, "length = 25 is odd"),
        ({"length": 2}, "length"),
        ({"kind": "recall-one-shot", "length": 8}, "length = 8 has no room"),
        ({"kind": "permutations", "vocabulary": 8}, "use 6 .of three elements., 24 .of four. or 120"),
    ],
)
def test_sequences_that_cannot_be_made_are_refused(changes, named):
    with pytest.raises(ValidationError, match=named):
        SyntheticSettings(**({"kind": "recall", "vocabulary": 8, "length": 24} | changes))
