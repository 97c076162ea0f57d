"""IBM Model 1: against expectation and maximisation written out with dictionaries."""

import random
from collections import defaultdict

import pytest

from regard.evaluation.ibm1 import Ibm1

PAIRS = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book."), ("Haus", "Haus house")]


def by_hand(pairs, iterations):
    cut = [(["", *s.lower().split()], t.lower().replace(".", " .").split()) for s, t in pairs]
    words = {word for _, target in cut for word in target}
    t = defaultdict(lambda: 1 / len(words))
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in cut:
            for f in target:
                whole = sum(t[f, e] for e in source)
                for e in source:
                    counts[f, e] += t[f, e] / whole
                    totals[e] += t[f, e] / whole
        t = {(f, e): count / totals[e] for (f, e), count in counts.items()}
    return t


@pytest.mark.parametrize("iterations", [1, 5])
def test_probabilities_are_those_of_the_algorithm(iterations):
    model = Ibm1(PAIRS, iterations)
    for (target, source), expected in by_hand(PAIRS, iterations).items():
        assert model.t(target, source) == pytest.approx(expected, abs=1e-12)
    assert model.t("the", "ein") == model.t("unseen", "das") == model.t("the", "unseen") == 0.0


def test_words_of_a_made_up_language_are_found_wherever_they_stand():
    random_ = random.Random(3)
    pairs = []
    for _ in range(300):
        numbers = random_.sample(range(30), 5)
        pairs.append((" ".join(f"s{n}" for n in numbers), " ".join(f"t{n}" for n in reversed(numbers)) + "."))
    model = Ibm1(pairs)
    assert model.align(["s3", "S7", "s9"], ["t9", "t7,", "t3"]) == {(2, 0), (1, 1), (0, 2)}
    assert model.align(["s3"], ["t9", "never"]) == frozenset()
    assert model.align([], ["t9"]) == model.align(["s3"], []) == frozenset()


def test_without_pairs_nothing_is_aligned():
    assert Ibm1([]).align(["a"], ["b"]) == frozenset()
