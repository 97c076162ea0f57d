"""Word vectors that are learned without labels help where labels are few.

    unlabelled sentences  →  CBOW  →  a vector for every word  →  the embedding that a classifier starts from

A classifier learns to tell what a sentence speaks of (animal, food, place or thing), from few labelled sentences. Of
most nouns it has seen no label. Vectors put a noun near others that stand in the same contexts, so that what is learned
of one holds for its neighbours. Both classifiers are the same Transformer and train the same way, embeddings included;
the other one starts from random numbers. The vectors have read 10,000 sentences; no test sentence has a label there.

A trial with one seed gave 87 % with vectors and 77 % without from 160 labels, and no difference from 40. So the gain
is asked for at 160, the middle of the sizes. It was to be 3 points at first; but vectors that had been trained for a
single step "gained" 4, by chance, with one seed and 200 test sentences. So it is 8 now; this was set before the normal
size had been looked at. Four seeds of that then gained 9, 3, 7 and 1: it holds by neither threshold. One reason may be
that the classifier's vocabulary is that of its labelled sentences: it spells other words in bytes, vectors or not. The
tiny version has vectors that have learned next to nothing, which do not help either.

Shapes: N numbers of labels
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import by_count
from regard.claims.frame.topics import classifier, some_sentences
from regard.claims.frame.trainings import made_once, metrics, trained
from regard.data.samples import english_german

HELPS, NEVER_WORSE = 8.0, -2.0  # points of accuracy
STEPS = {"tiny": 20, "normal": 400, "full": 1500}  # of CBOW
CONTROL: tuple[str, ...] = ()  # settings of the classifier without vectors: none of its own; a test stops its learning

ABOUT = About(
    text="Word vectors learned without labels help a classifier that has few labels.",
    decks=("004",),
    group="text",
    measures="test accuracy of a small Transformer that starts from CBOW vectors of unlabelled sentences, minus that "
    "of one that starts from random embeddings, by the number of labelled sentences.",
    threshold=f"at least {HELPS:.0f} points more from 160 labels, with an interval above nothing, and nowhere more "
    f"than {-NEVER_WORSE:.0f} points less.",
    figures={
        "gain": "points gained, 160 labels",
        "gain_few": "points gained, fewest labels",
        "gain_many": "points gained, most labels",
        "vectors_many": "accuracy from word vectors, most labels",
        "random_many": "accuracy from random embeddings, most labels",
    },
    seeds=Seeds(tiny=1, normal=4, full=10),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    labels = budget.choose(tiny=(160,), normal=(40, 160, 640), full=(20, 40, 160, 640, 1280))
    read, held_out, steps = budget.choose(tiny=(1000, 300, 60), normal=(10_000, 500, 100), full=(30_000, 1000, 300))
    english = english_german.pairs(read, seed=1000 + seed)
    folder = made_once(budget, f"unlabelled-{read}-{seed}", lambda: {"text.txt": "".join(f"{e}\n" for e, _ in english)})
    words = trained(
        budget,
        "words",
        f'data.text="{folder.resolve()}/text.txt"',
        "tokenizer.vocabulary=2000",
        "embeddings.width=32",
        "embeddings.window=3",
        "embeddings.minimum_count=2",
        "embeddings.words_per_batch=2048",
        f"training.steps={STEPS[budget.size]}",
        f"training.validate_every={STEPS[budget.size]}",
        seed=seed,
    )
    known = some_sentences(max(labels) + held_out, seed)
    test = known[max(labels) :]
    starts = {"vectors": words / "vectors.txt", "random": None}
    accuracy_N2 = np.zeros((len(labels), len(starts)))
    for row, count in enumerate(labels):
        settings = classifier(budget, f"topics-{count}-{held_out}-{seed}", known[:count], test, steps)
        for column, vectors in enumerate(starts.values()):
            own = () if vectors else CONTROL
            run = trained(budget, "trec", *settings, *own, seed=seed, embeddings=vectors)
            accuracy_N2[row, column] = metrics(run)["accuracy"]
    gain_N = accuracy_N2[:, 0] - accuracy_N2[:, 1]
    return {
        "gain": gain_N[len(labels) // 2],
        "gain_few": gain_N[0],
        "gain_many": gain_N[-1],
        "vectors_many": accuracy_N2[-1, 0],
        "random_many": accuracy_N2[-1, 1],
        "accuracy": accuracy_N2.T,
        "labels": labels,
    }


def verdict(measured: Measured) -> Verdict:
    labels_N, accuracy_S2N = measured.curve("labels"), measured["accuracy"]
    gain, half = measured.mean("gain"), measured.half_width("gain") or 0.0
    least = (accuracy_S2N[:, 0] - accuracy_S2N[:, 1]).mean(0).min()
    told = "; ".join(
        f"from {count:.0f} labels {vectors:.0f} % with vectors, {random:.0f} % without"
        for count, (vectors, random) in zip(labels_N, accuracy_S2N.mean(0).T, strict=True)
    )
    told = f"{told[0].upper()}{told[1:]}. From {labels_N[len(labels_N) // 2]:.0f} the gain is {gain:.1f} ± {half:.1f}."
    if gain < HELPS or gain - half <= 0:
        return does_not_hold(told)
    return holds(told) if least >= NEVER_WORSE else depends("the number of labels", told)


def picture(measured: Measured) -> Figure:
    names = ("starts from word vectors", "starts from random embeddings")
    figure, axis = by_count(
        ABOUT.text, "labelled sentences", "test accuracy, %", measured.curve("labels"), measured["accuracy"], names
    )
    axis.set_ylim(0, 105)
    return figure
