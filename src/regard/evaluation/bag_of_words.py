"""Bags of words: the baselines that a Transformer has to beat.

A text is the set of its words, or of its words and pairs of neighbours; a linear classifier weighs each. Words are
lower-cased, and a punctuation mark is a word. The strength of the classifiers is scikit-learn's default, C = 1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from regard.data.labelled import Example
from regard.evaluation.classification import Baseline, accuracy, macro_f1

WORDS = r"(?u)\w+|[^\w\s]"
MOST_FEATURES = 500_000  # the most frequent are kept: on 25,000 film reviews, about all that occur twice
FEW_FOR_THEIR_LENGTH = 1_500


NAMES = ("unigrams", "unigrams+bigrams", "tf-idf unigrams+bigrams")


def bags_of_words(train: Sequence[Example], test: Sequence[Example], names: Sequence[str] = NAMES) -> list[Baseline]:
    """How well each of the three does, or those of these names."""
    bags = classifiers()
    return [_baseline(name, bags[name], train, test) for name in names]


def classifiers() -> dict[str, Any]:
    """Three bags: words; words and pairs of words; the same weighted by how rare they are (TF-IDF).

    Each is scikit-learn's, to be fitted to texts and their labels.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    common = {"token_pattern": WORDS, "max_features": MOST_FEATURES}
    pairs = {**common, "ngram_range": (1, 2)}
    # Whether a word occurs says more than how often, so the bags are of zeros and ones.
    return {
        "unigrams": make_pipeline(CountVectorizer(binary=True, **common), LogisticRegression(max_iter=1000)),
        "unigrams+bigrams": make_pipeline(CountVectorizer(binary=True, **pairs), LogisticRegression(max_iter=1000)),
        "tf-idf unigrams+bigrams": make_pipeline(
            TfidfVectorizer(sublinear_tf=True, **pairs), LinearSVC(random_state=0)
        ),
    }


def _baseline(name: str, bag: Any, train: Sequence[Example], test: Sequence[Example]) -> Baseline:
    start = time.perf_counter()
    bag.fit([example.text for example in train], [example.label for example in train])
    true_N = [example.label for example in test]
    predicted_N = bag.predict([example.text for example in test])
    seconds = time.perf_counter() - start
    return Baseline(
        name, accuracy(true_N, predicted_N), macro_f1(true_N, predicted_N), seconds, len(bag[0].vocabulary_)
    )


def samples_per_length(train: Sequence[Example]) -> float:
    """The number of samples divided by their mean length in words."""
    words = sum(len(example.text.split()) for example in train)
    return len(train) ** 2 / words


def advice(train: Sequence[Example]) -> str:
    """What the rule of thumb in Google's guide to text classification says about these texts."""
    ratio = samples_per_length(train)
    choice = "a bag of words" if ratio < FEW_FOR_THEIR_LENGTH else "a model of word order"
    return (
        f"Samples / mean length in words is {ratio:,.0f}, which speaks for {choice}. "
        f"A rule of thumb: prefer a bag of words when samples / mean length < {FEW_FOR_THEIR_LENGTH:,}."
    )
