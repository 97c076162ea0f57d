"""The Markov tables of deck 003, and what the second latest word adds.

    first order    P(next | latest)                 "my" → directories .2, files .3, photos .5
    second order   P(next | the two latest)         "battery ran" → down, "program ran" → please

The deck's tables are typed in below and compared, cell by cell, with those that Regard counts from the deck's own
sentences. What the second order gains is the drop in bits per word.

Shapes: R rows · W words
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.claims.frame.claim import ONE, About, Budget, Measured, Verdict, does_not_hold, holds
from regard.claims.frame.pictures import chart, table
from regard.explain.markov import EXAMPLES
from regard.models.markov import Markov, split_words

WORDS = ["directories", "files", "me", "my", "photos", "please", "show"]
Table = Mapping[str, Mapping[str, float]]
FIRST: Table = {
    "directories": {"please": 1},
    "files": {"please": 1},
    "me": {"my": 1},
    "my": {"directories": 0.2, "files": 0.3, "photos": 0.5},
    "photos": {"please": 1},
    "please": {},
    "show": {"me": 1},
}
ALONE: Table = {
    "battery": {"ran": 1},
    "check": {"whether": 1},
    "down": {"please": 1},
    "please": {},
    "program": {"ran": 1},
    "ran": {"down": 0.4, "please": 0.6},
    "the": {"battery": 0.4, "program": 0.6},
    "whether": {"the": 1},
}
SECOND: Table = {
    "battery ran": {"down": 1},
    "check whether": {"the": 1},
    "program ran": {"please": 1},
    "ran down": {"please": 1},
    "the battery": {"ran": 1},
    "the program": {"ran": 1},
    "whether the": {"battery": 0.4, "program": 0.6},
}

ABOUT = About(
    text="A first-order Markov chain must guess where a second-order one knows: what has run stands before 'ran'.",
    decks=("003",),
    group="before",
    measures="cells in which the counted tables differ from the deck's three; and bits per word of the deck's second "
    "example under each order.",
    threshold="no cell differs, and the second order needs fewer bits.",
    figures={
        "differences": "cells that differ from the deck's tables",
        "bits_first": "bits per word, first order",
        "bits_second": "bits per word, second order",
    },
    seeds=ONE,
)


def experiment(budget: Budget, seed: int) -> Mapping[str, ArrayLike]:
    show, ran, ran_by_two = chain(1, "1"), chain(2, "1"), chain(2, "2")
    differences = sum(differing(*each) for each in ((show, FIRST), (ran, ALONE), (ran_by_two, SECOND)))
    text = sentences(2)
    return {
        "differences": differences,
        "bits_first": ran.score(text).bits_per_word,
        "bits_second": ran_by_two.score(text).bits_per_word,
        "table": show.table()[1],
    }


def sentences(example: int) -> list[list[str]]:
    return [split_words(sentence) for sentence, times in EXAMPLES[example].items() for _ in range(times)]


def chain(example: int, order: str) -> Markov:
    return Markov.fit(sentences(example), order)


def differing(model: Markov, expected: Table) -> int:
    """How many cells of the table are not what the deck says; rows that only one of them has count as well."""
    contexts, values_RW = model.table()
    rows = {" ".join(context): row for context, row in zip(contexts, values_RW, strict=True)}
    cells = 0
    for name in rows.keys() | expected.keys():
        row = rows.get(name, np.full(len(model.words), np.nan))
        cells += sum(
            not np.isclose(row[at], expected.get(name, {}).get(word, 0)) for at, word in enumerate(model.words)
        )
    return cells


def verdict(measured: Measured) -> Verdict:
    differences, first, second = (measured.mean(name) for name in ABOUT.figures)
    told = (
        f"{differences:.0f} cells differ from the deck's. The second order needs {second:.2f} bits per word, the first "
        f"{first:.2f}. 'whether the' stays at .4 / .6: no number of words before it would tell."
    )
    return holds(told) if not differences and second < first else does_not_hold(told)


def picture(measured: Measured) -> Figure:
    figure, axis = chart(ABOUT.text, "next word", "latest word", size=(7, 5))
    table(axis, measured["table"][0], WORDS, WORDS)
    return figure
