"""IBM Model 2 near the diagonal: against expectation and maximisation written out with dictionaries."""

import math
import random
from collections import defaultdict

import pytest
from scipy.optimize import minimize_scalar

from regard.evaluation.ibm2 import NO_WORD, SHARPEST, SHARPNESS, BothWays, Ibm2

PAIRS = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book."), ("Haus", "Haus house")]
PAIRS += [("das alte Haus", "the old house"), ("das Buch dort", "there the book"), ("dort ein Haus", "a house there")]


def priors(sources, targets, sharpness):
    """p(i | j) as nested lists, e_0 first."""
    rows = []
    for j in range(1, targets + 1):
        near = [math.exp(-sharpness * abs(i / sources - j / targets)) for i in range(1, sources + 1)]
        rows.append([NO_WORD, *((1 - NO_WORD) * each / sum(near) for each in near)])
    return rows


def by_hand(pairs, iterations):
    cut = [(["", *s.lower().split()], t.lower().replace(".", " .").split()) for s, t in pairs]
    words = {word for _, target in cut for word in target}
    t, sharpness = defaultdict(lambda: 1 / len(words)), SHARPNESS
    for _ in range(iterations):
        counts, totals, shares = defaultdict(float), defaultdict(float), []
        for source, target in cut:
            for j, f in enumerate(target):
                prior = priors(len(source) - 1, len(target), sharpness)[j]
                whole = sum(p * t[f, e] for p, e in zip(prior, source, strict=True))
                for i, (p, e) in enumerate(zip(prior, source, strict=True)):
                    share = p * t[f, e] / whole
                    counts[f, e] += share
                    totals[e] += share
                    shares.append((share, len(source) - 1, len(target), i, j))
        t = {(f, e): count / totals[e] for (f, e), count in counts.items()}

        def unlikelihood(sharpness, shares=shares):
            return -sum(s * math.log(priors(a, b, sharpness)[j][i]) for s, a, b, i, j in shares if i)

        sharpness = minimize_scalar(unlikelihood, bounds=(0, SHARPEST), method="bounded", options={"xatol": 1e-6}).x
    return t, sharpness


@pytest.mark.parametrize("iterations", [1, 5])
def test_probabilities_are_those_of_the_algorithm(iterations):
    model = Ibm2(PAIRS, iterations)
    probabilities, sharpness = by_hand(PAIRS, iterations)
    assert 0.1 < model.sharpness < SHARPEST - 0.1
    assert model.sharpness == pytest.approx(sharpness, abs=5e-3)
    for (target, source), expected in probabilities.items():
        assert model.t(target, source) == pytest.approx(expected, abs=1e-12 if iterations == 1 else 1e-3)
    assert model.t("the", "ein") == model.t("unseen", "das") == model.t("the", "unseen") == 0.0


def made_up_pairs():
    """The second language says everything backwards."""
    random_ = random.Random(3)
    for _ in range(600):
        numbers = random_.sample(range(30), 5)
        yield " ".join(f"s{n}" for n in numbers), " ".join(f"t{n}" for n in reversed(numbers)) + "."


def test_words_of_a_made_up_language_are_found_wherever_they_stand():
    model = Ibm2(made_up_pairs())
    assert model.align(["s3", "S7", "s9"], ["t9", "t7,", "t3"]) == {(2, 0), (1, 1), (0, 2)}
    assert model.align(["s3"], ["never"]) == frozenset()
    assert model.align([], ["t9"]) == model.align(["s3"], []) == frozenset()


def test_a_word_that_stands_twice_is_aligned_with_the_nearer():
    in_order = Ibm2((source, " ".join(f"t{word[1:]}" for word in source.split())) for source, _ in made_up_pairs())
    assert in_order.align(["s3", "s4", "s3"], ["t3", "t4", "t3"]) == {(0, 0), (1, 1), (2, 2)}
    assert in_order.sharpness > 5
    assert Ibm2(made_up_pairs()).sharpness < 0.5  # where the order tells nothing, it is not used


def test_links_are_sure_where_both_ways_agree():
    both = BothWays(made_up_pairs())
    found = both.align(["s3", "s7"], ["t7", "t3", "t3"])
    assert found.possible == both.forth.align(["s3", "s7"], ["t7", "t3", "t3"]) | found.sure
    assert len(found.sure) == 2 and (1, 0) in found.sure
    assert found.possible == {(1, 0), (0, 1), (0, 2)}  # back, s3 has only one


def test_without_pairs_nothing_is_aligned():
    assert Ibm2([]).align(["a"], ["b"]) == frozenset()
