"""Answers from probabilities: the likeliest spans of each window, and what they say together.

A text that stands in several places of a window has the probability of all of them. Windows overlap, so of several
windows the one that is surest counts; that there is no answer is as likely as in the window that is least sure of it.

Shapes: C tokens of a window · A tokens of the longest answer
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.questions import Place
from regard.data.tokenised_questions import text_of

AMONG = 20  # spans of a window that are looked at


class WindowGuess(NamedTuple):
    """What a model says of one window: logarithms of probabilities."""

    first: int  # token of the context that it begins with
    start_C: NDArray[np.float32]
    end_C: NDArray[np.float32]
    not_here: float


@dataclass(frozen=True)
class Answer:
    """Characters `start` to `end` (not included) of a context; an empty text: there is no answer in it."""

    text: str
    probability: float
    start: int = -1
    end: int = -1


def best_spans(
    start_C: NDArray[np.float32], end_C: NDArray[np.float32], longest: int, count: int = AMONG
) -> list[tuple[int, int, float]]:
    """The likeliest (first, last, log p) of spans of up to `longest` tokens, best first."""
    longest = min(longest, len(start_C))
    padded = np.pad(end_C, (0, longest - 1), constant_values=-np.inf)
    score_CA = start_C[:, None] + np.lib.stride_tricks.sliding_window_view(padded, longest)
    count = min(count, score_CA.size)
    best = np.argpartition(-score_CA, count - 1, axis=None)[:count]
    ordered = best[np.lexsort((best, -score_CA.flat[best]))]  # of equals, the first
    return [
        (int(at // longest), int(at // longest + at % longest), float(score_CA.flat[at]))
        for at in ordered
        if score_CA.flat[at] > -np.inf
    ]


def answers_of(
    guesses: Iterable[WindowGuess], context: str, places_T2: NDArray[np.int64], longest: int, no_answer: bool
) -> list[Answer]:
    """Different texts, the likeliest first; with `no_answer`, that there is none is one of them."""
    surest: dict[str, Answer] = {}
    nothing = math.inf
    for guess in guesses:
        nothing = min(nothing, guess.not_here)
        for text, (probability, place) in _by_text(guess, context, places_T2, longest).items():
            if text not in surest or probability > surest[text].probability:
                surest[text] = Answer(text, min(probability, 1.0), *place)
    if no_answer:
        surest[""] = Answer("", math.exp(nothing))
    return sorted(surest.values(), key=lambda answer: -answer.probability)


def _by_text(
    guess: WindowGuess, context: str, places_T2: NDArray[np.int64], longest: int
) -> dict[str, tuple[float, Place]]:
    """The probability of each text over its places, and the likeliest place."""
    found: dict[str, tuple[float, Place]] = {}
    for first, last, log_p in best_spans(guess.start_C, guess.end_C, longest):
        place = text_of(context, places_T2, guess.first + first, guess.first + last)
        text = context[place.start : place.end]
        if text:
            before, best = found.get(text, (0.0, place))
            found[text] = (before + math.exp(log_p), best)
    return found
