"""n-grams with Kneser-Ney smoothing: the same numbers as nltk's, and probabilities that sum to one."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from nltk.lm import KneserNeyInterpolated

from regard.data.ragged import Ragged
from regard.evaluation.kneser_ney import KneserNey, perplexity

VOCABULARY, START, DISCOUNT = 9, 1, 0.4


def drawn(count: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    shares = [5, 4, 3, 2, 1, 1, 0.001]
    return [[START, *rng.choices(range(2, VOCABULARY), shares, k=rng.randrange(1, 9))] for _ in range(count)]


def padded(text: list[int], order: int) -> list[int]:
    return [START] * (order - 2) + text


@pytest.mark.parametrize("order", [2, 3, 5])
def test_the_probabilities_are_those_of_nltk(order):
    train, test = drawn(25, seed=1), [*drawn(8, seed=2), [START, 8, 7, 8, 7]]
    ours = KneserNey(Ragged.from_lists(train), VOCABULARY, order, DISCOUNT)
    theirs = KneserNeyInterpolated(order, discount=DISCOUNT)
    for text in (padded(text, order) for text in train):
        ends = range(order - 1, len(text))
        theirs.counts.update([[tuple(text[end - n + 1 : end + 1]) for end in ends for n in range(1, order + 1)]])
    estimator = theirs.estimator

    def of_one_word(word: int) -> float:
        """nltk gives a word that never occurs no probability; here what is taken off is shared by all."""
        count, total = estimator._continuation_counts(word)
        kinds = sum(estimator._continuation_counts(other)[0] > 0 for other in range(VOCABULARY))
        return max(count - DISCOUNT, 0) / total + DISCOUNT * kinds / total / VOCABULARY

    estimator.unigram_score = of_one_word
    expected = []
    for text in (padded(text, order) for text in test):
        for end in range(order - 1, len(text)):
            expected.append(math.log(theirs.unmasked_score(text[end], tuple(text[end - order + 1 : end]))))
    assert ours.log_probabilities(Ragged.from_lists(test)) == pytest.approx(np.array(expected), abs=1e-12)


def test_after_any_context_they_sum_to_one():
    model = KneserNey(Ragged.from_lists(drawn(40, seed=3)), VOCABULARY)
    for context in ([], [3], [8, 8], [2, 3, 2, 4], [4, 4, 4, 4, 4]):
        texts = Ragged.from_lists([[START, *context, word] for word in range(VOCABULARY)])
        last = model.log_probabilities(texts).reshape(VOCABULARY, -1)[:, -1]
        assert np.exp(last).sum() == pytest.approx(1.0)


def test_longer_contexts_help_where_there_is_something_to_know():
    """Each token follows from the two before it."""
    rng = random.Random(4)
    texts = []
    for _ in range(200):
        text = [START, rng.randrange(2, VOCABULARY), rng.randrange(2, VOCABULARY)]
        while len(text) < 12:
            text.append(2 + (text[-1] * 3 + text[-2] * 5) % (VOCABULARY - 2))
        texts.append(text)
    train, test = Ragged.from_lists(texts[:150]), Ragged.from_lists(texts[150:])
    found = []
    for order in (1, 2, 3, 5):
        log_p = KneserNey(train, VOCABULARY, order).log_probabilities(test)
        found.append(perplexity(log_p, np.ones(len(log_p), bool)))
    assert min(found[:2]) > 6 and max(found[2:]) < 2
