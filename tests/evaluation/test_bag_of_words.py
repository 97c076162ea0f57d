"""Bags of words: what they can learn, what they cannot, and the rule of thumb."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard.data.labelled import Example
from regard.evaluation.bag_of_words import advice, bags_of_words, samples_per_length

SEPARABLE = [
    Example(label, f"the {word} {noun} {mark}")
    for label, word, mark in (("pos", "fine", "!"), ("neg", "dull", "."), ("other", "odd", "?"))
    for noun in ("film", "book", "play")
]


def turned_by_not(nouns: list[str]) -> list[Example]:
    """'good' and 'not bad' are pos, 'bad' and 'not good' are neg: no weights of single words do this."""
    phrases = {"good": "pos", "not good": "neg", "bad": "neg", "not bad": "pos"}
    return [Example(label, f"{noun} was {phrase}") for noun in nouns for phrase, label in phrases.items()]


def test_separable_texts_are_all_told_apart():
    found = bags_of_words(SEPARABLE, SEPARABLE)
    assert [baseline.name for baseline in found] == ["unigrams", "unigrams+bigrams", "tf-idf unigrams+bigrams"]
    for baseline in found:
        assert baseline.accuracy == baseline.macro_f1 == 100
        assert baseline.seconds > 0


def test_pairs_of_words_solve_what_words_alone_cannot():
    words, pairs, tfidf = bags_of_words(
        turned_by_not(["film", "book", "play", "song"]), turned_by_not(["opera", "cast"])
    )
    assert words.accuracy <= 75
    assert pairs.accuracy == tfidf.accuracy == 100


def test_words_are_lower_cased_and_punctuation_is_a_word():
    train = [Example("loud", "Yes !"), Example("calm", "yes ."), Example("loud", "NO!"), Example("calm", "no.")]
    words, pairs, _ = bags_of_words(train, [Example("loud", "new!"), Example("calm", "new.")])
    assert words.accuracy == 100
    assert words.features == 4  # yes no ! .
    assert pairs.features == 8  # and each word before each mark


def test_a_test_label_that_training_never_saw_counts_as_wrong():
    for baseline in bags_of_words(SEPARABLE, [SEPARABLE[0], Example("new", "the fine film !")]):
        assert baseline.accuracy == 50


def test_the_same_data_gives_the_same_scores():
    train, test = turned_by_not(["film", "book", "play"]) + SEPARABLE, turned_by_not(["opera"]) + SEPARABLE
    first, again = ([replace(found, seconds=0.0) for found in bags_of_words(train, test)] for _ in range(2))
    assert first == again


def test_samples_per_length_divides_by_the_mean_number_of_words():
    assert samples_per_length([Example("a", "one two three"), Example("b", "one")]) == pytest.approx(1.0)
    assert samples_per_length([Example("a", "w " * 10)] * 50) == pytest.approx(5.0)


def test_the_advice_turns_at_1500_and_is_given_as_a_rule_of_thumb():
    few, enough = ([Example("a", "two words")] * count for count in (2998, 3000))
    assert "is 1,499, which speaks for a bag of words" in advice(few)
    assert "is 1,500, which speaks for a model of word order" in advice(enough)
    for train in (few, enough):
        assert "rule of thumb: prefer a bag of words when samples / mean length < 1,500" in advice(train)
