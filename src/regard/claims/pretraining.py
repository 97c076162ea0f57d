"""A masked model that has read unlabelled text learns a new task from few labels: pre-training, then fine-tuning.

    unlabelled sentences  →  guess the hidden words  →  the blocks and embeddings that a classifier starts from

The task is to tell what a sentence speaks of (animal, food, place or thing). The classifier from scratch has the same
shape, and is given three times the steps: what it lacks is text, not time. It has its own vocabulary, that of its
labelled sentences, as it would have without the unlabelled ones. One pre-training serves all seeds, which differ in
the labelled sentences and in where fine-tuning starts from at its new head.

How long to pre-train was found by trials of one seed: half as many updates of half the size gained nothing. So does the
tiny version, which has a sixtieth of them. Of the unlabelled sentences some may be in the test, without their labels.
The vocabulary alone is not what helps: with that of the masked model but none of its training, the classifier told 44,
71 and 94 % from 16, 40 and 160 labels, where the one from scratch has 43, 63 and 91.

Shapes: N numbers of labels
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import About, Budget, Measured, Seeds, Verdict, depends, does_not_hold, holds
from regard.claims.frame.pictures import by_count
from regard.claims.frame.topics import classifier, some_sentences
from regard.claims.frame.trainings import made_once, metrics, trained

LONGEST = 6  # words of a sentence
GAIN = 5.0  # points
SHAPE = ("model.layers=2", "model.width=32", "model.heads=4", "model.feedforward=64", 'tokenizer.kind="word"')

ABOUT = About(
    text="A model that is pre-trained on text without labels needs fewer labels than one from scratch.",
    decks=("002", "003"),
    group="text",
    measures="test accuracy by the number of labelled sentences: a masked model fine-tuned, and the same classifier "
    "from scratch with three times the steps; and the share of hidden words that the masked model guesses.",
    threshold=f"with the fewest and with the middle number of labels, pre-training gains at least {GAIN:.0f} points, "
    "and more than the interval of the difference.",
    figures={
        "gain_few": "gain, fewest labels, points",
        "gain": "gain, middle number of labels, points",
        "gain_many": "gain, most labels, points",
        "tuned_few": "accuracy of the pre-trained one, fewest labels, %",
        "guessed": "hidden words that the masked model guesses, %",
    },
    seeds=Seeds(tiny=1, normal=3, full=5),
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    labels = budget.choose(tiny=(40,), normal=(16, 40, 160), full=(16, 40, 160, 640))
    held_out, steps = budget.choose(tiny=(100, 20), normal=(300, 80), full=(1000, 200))
    pretrained = masked_model(budget)
    known = some_sentences(max(labels) + held_out, seed, LONGEST)
    test = known[max(labels) :]
    accuracies = np.zeros((2, len(labels)))
    for place, count in enumerate(labels):
        name = f"short-topics-{count}-{held_out}-{seed}"
        tuning, longer = (
            [*classifier(budget, name, known[:count], test, each), *SHAPE, "training.learning_rate=0.003"]
            for each in (steps, steps_from_scratch(steps))
        )
        accuracies[0, place] = metrics(trained(budget, "trec", *tuning, seed=seed, start_from=pretrained))["accuracy"]
        accuracies[1, place] = metrics(trained(budget, "trec", *longer, seed=seed))["accuracy"]
    gain_N = accuracies[0] - accuracies[1]
    return {
        "gain_few": gain_N[0],
        "gain": gain_N[len(labels) // 2],
        "gain_many": gain_N[-1],
        "tuned_few": accuracies[0, 0],
        "guessed": metrics(pretrained)["accuracy"],
        "accuracies": accuracies,
        "labels": labels,
    }


def masked_model(budget: Budget) -> Path:
    """The run of a masked model of sentences without labels."""
    read, steps, tokens = budget.choose(tiny=(500, 20, 512), normal=(12_000, 1200, 2048), full=(60_000, 6000, 4096))
    made = some_sentences(read, 1000, LONGEST)
    folder = made_once(
        budget,
        f"short-{read}",
        lambda: {"text.jsonl": "".join(f"{json.dumps({'text': each.text})}\n" for each in made)},
    )
    return trained(
        budget,
        "bert-small",
        f'data.text="{folder.resolve()}/text.jsonl"',
        *SHAPE,
        "model.dropout=0.0",
        "tokenizer.vocabulary=2000",
        "model.max_positions=32",
        "masking.share=0.2",
        "training.row_length=32",
        f"training.tokens_per_batch={tokens}",
        f"training.steps={steps}",
        f"training.warmup={steps // 10}",
        f"training.validate_every={steps}",
        'training.optimizer="muon"',
        "training.learning_rate=0.01",
        seed=1,
    )


def steps_from_scratch(steps: int) -> int:
    return 3 * steps


def verdict(measured: Measured) -> Verdict:
    told = "; ".join(
        f"{tuned:.0f} and {scratch:.0f} % from {count:.0f}"
        for count, tuned, scratch in zip(measured.curve("labels"), *measured.curve("accuracies"), strict=True)
    )
    told = (
        f"Accuracy pre-trained and from scratch, by the number of labels: {told}. The masked model guesses "
        f"{measured.mean('guessed'):.0f} % of hidden words."
    )
    gained = [measured.mean(name) > max(GAIN, measured.half_width(name) or 0) for name in ("gain_few", "gain")]
    if all(gained):
        return holds(told)
    return depends("the number of labels", told) if any(gained) else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    names = ("pre-trained, then fine-tuned", "from scratch, three times the steps")
    figure, axis = by_count(
        ABOUT.text, "labelled sentences", "test accuracy, %", measured.curve("labels"), measured["accuracies"], names
    )
    axis.set_ylim(0, 105)
    return figure
