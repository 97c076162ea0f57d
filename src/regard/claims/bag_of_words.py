"""Bag of words or sequence model: a rule of thumb by the size of the training data.

    r = number of texts / mean length of a text in words
    r < 1,500:  a bag of words (TF-IDF of words and pairs of words, a linear classifier)
    r ≥ 1,500:  a sequence model (here a small Transformer)

The rule asks for size alone. It is tried on two labels of texts of two sentences: one that depends on the words (both
sentences have the same topic: which?), one that depends on their order (two topics: which comes first?). The rule is
followed where its choice is not worse than the other one by more than two points, at every size. All Transformers are
trained for the same number of steps.

The tiny version has one size, far below 1,500.

Shapes: N sizes of the training data
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import GREY, chart, line
from regard.claims.frame.topics import classifier, some_sentences, texts
from regard.claims.frame.trainings import metrics, trained
from regard.evaluation.bag_of_words import FEW_FOR_THEIR_LENGTH, bags_of_words, samples_per_length

LABELS = {"words": True, "order": False}  # whether both sentences of a text have the same topic
SEQUENCE_MODEL: tuple[str, ...] = ()  # as it is; a test blinds it
BAG = "tf-idf unigrams+bigrams"
WORSE = 2.0  # points of accuracy

ABOUT = About(
    text="With fewer than 1,500 texts for each word of their mean length, prefer a bag of words to a sequence model; "
    "with more, the sequence model.",
    decks=("003",),
    group="before",
    measures="test accuracy of a bag of words and pairs (TF-IDF, linear) and of a small Transformer, by the number of "
    "training texts on both sides of the rule, for a label that depends on words and for one that depends on order.",
    threshold=f"at every size and for both labels, what the rule prefers is at most {WORSE:.0f} points worse than the "
    "other.",
    figures={
        "lost_words": "most points lost by the rule, label of words",
        "lost_order": "most points lost by the rule, label of order",
        "gain_few": "Transformer minus bag, fewest texts, label of words",
        "gain_many": "Transformer minus bag, most texts, label of words",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    sizes = budget.choose(tiny=(1000,), normal=(60, 6000, 24_000), full=(60, 200, 600, 2000, 6000, 24_000, 60_000))
    made, held_out, longest, steps = budget.choose(
        tiny=(350, 150, 4, 140), normal=(2500, 500, 6, 120), full=(10_000, 1000, 6, 600)
    )
    known = some_sentences(made + held_out, seed, longest)
    accuracy, ratios = {}, {}
    for label, same in LABELS.items():
        test = texts(known[made:], held_out, seed, same)
        for size in sizes:
            train = texts(known[:made], size, seed, same)
            settings = classifier(budget, f"topics-{label}-{longest}-{size}-{seed}", train, test, steps)
            bag = bags_of_words(train, test, (BAG,))[0]
            run = trained(budget, "trec", *settings, *SEQUENCE_MODEL, seed=seed)
            accuracy[label, size] = bag.accuracy, metrics(run)["accuracy"]
            ratios[size] = samples_per_length(train)
    of = {label: np.array([accuracy[label, size] for size in sizes]) for label in LABELS}  # [N, 2]
    gains = {label: of[label][:, 1] - of[label][:, 0] for label in LABELS}
    for_bag = np.array([ratios[size] for size in sizes]) < FEW_FOR_THEIR_LENGTH
    lost = {label: np.where(for_bag, gain_N, -gain_N).max() for label, gain_N in gains.items()}
    return {
        **{f"lost_{label}": max(points, 0.0) for label, points in lost.items()},
        "gain_few": gains["words"][0],
        "gain_many": gains["words"][-1],
        "accuracy": [of[label].T for label in LABELS],
        "ratios": [ratios[size] for size in sizes],
    }


def verdict(measured: Measured) -> Verdict:
    words, order = measured.mean("lost_words"), measured.mean("lost_order")
    ratios_N, (of_words_2N, of_order_2N) = measured.curve("ratios"), measured.curve("accuracy")
    told = (
        f"Where the label depends on words, the rule's choice is at most {words:.1f} points worse; where it depends on "
        f"order, up to {order:.0f}. At {ratios_N[0]:,.0f} texts per word of length the Transformer has "
        f"{of_words_2N[1, 0]:.0f} % on words (the bag {of_words_2N[0, 0]:.0f} %) and {of_order_2N[1, 0]:.0f} % on "
        f"order (the bag {of_order_2N[0, 0]:.0f} %), at {ratios_N[-1]:,.0f} {of_words_2N[1, -1]:.0f} % "
        f"({of_words_2N[0, -1]:.0f} %) and {of_order_2N[1, -1]:.0f} % ({of_order_2N[0, -1]:.0f} %). No number of texts "
        "tells what a label depends on."
    )
    if max(words, order) <= WORSE:
        return holds(told)
    return depends("what the label depends on", told) if min(words, order) <= WORSE else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "training texts / mean length in words", "test accuracy, %")
    ratios_N = measured.curve("ratios")
    names = [f"{model}, label of {label}" for label in LABELS for model in ("bag of words", "Transformer")]
    for number, name in enumerate(names):
        line(axis, ratios_N, measured["accuracy"][:, number // 2, number % 2], name, number)
    axis.axvline(FEW_FOR_THEIR_LENGTH, color=GREY, linestyle=":", label="the rule: 1,500")
    axis.set_xscale("log")
    axis.set_ylim(0, 105)
    axis.legend(loc="lower right", fontsize=8)
    return figure
