"""Scores of captions against all that people wrote about the same image, and what they are to be compared with.

    bleu4, bleu1   sacreBLEU's, small letters, tokenised 13a; of the lengths of the references the closest counts
    chrf           sacreBLEU's, small letters
    exact          the share of captions that are, but for capitals, one of the references

Captions of any image are alike, so a score by itself says little of whether a model looks at its image. Two others
stand beside it: the same captions given to the wrong images, and one caption for all images.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from regard.evaluation.classification import share_score
from regard.evaluation.metrics import Score, TextScorer

CAPTION_METRICS: dict[str, Callable[..., Any]] = {
    "bleu4": partial(BLEU, lowercase=True),
    "bleu1": partial(BLEU, lowercase=True, max_ngram_order=1),
    "chrf": partial(CHRF, lowercase=True),
}
CANDIDATES = 50  # captions that are tried as the one for all
LONGEST_PHRASE = 4  # words


class CaptionScorer:
    def __init__(self, references: Sequence[Sequence[str]]):
        """All captions of each image."""
        self.references = references
        # The first of every image, the second of every image …; None where an image has no more.
        self.texts = TextScorer(list(itertools.zip_longest(*references)), CAPTION_METRICS)
        self.known = [{_plain(text) for text in of_image} for of_image in references]

    def scores(self, captions: Sequence[str], bootstrap: bool = True) -> list[Score]:
        right = sum(_plain(caption) in known for caption, known in zip(captions, self.known, strict=True))
        return [*self.texts.scores(captions, bootstrap), share_score("exact", right, len(captions))]

    def shuffled(self, captions: Sequence[str], seed: int) -> list[Score]:
        """The scores of the same captions, each given to another image than the one it was written about."""
        if len(captions) < 2:
            return []
        scores = self.scores(another_of_each(captions, seed), bootstrap=False)
        return [replace(score, name=f"{score.name}_shuffled", interval=None) for score in scores]

    def bleu4(self, captions: Sequence[str]) -> float:
        return float(self.texts.score("bleu4", captions))


def another_of_each(captions: Sequence[str], seed: int) -> list[str]:
    """For each image the caption of another: the next in a circle through all of them in random order."""
    order = np.random.default_rng(seed).permutation(len(captions))
    others = [""] * len(captions)
    for mine, other in zip(order.tolist(), np.roll(order, 1).tolist(), strict=True):
        others[mine] = captions[other]
    return others


@dataclass(frozen=True)
class Constant:
    """One caption for all images."""

    caption: str
    scores: list[Score]


def best_constant(scorer: CaptionScorer, training: Sequence[str]) -> Constant:
    """Of the training captions whose phrases are frequent, the one that has the best BLEU-4 on these images.

    It is chosen by what it reaches on them, so it is more than could be known beforehand.
    """
    count = len(scorer.references)
    best = max(frequent(training, CANDIDATES), key=lambda caption: scorer.bleu4([caption] * count))
    return Constant(best, scorer.scores([best] * count, bootstrap=False))


def frequent(captions: Sequence[str], most: int) -> list[str]:
    """The captions of usual length whose phrases of one to four words are in many captions."""
    several = list(dict.fromkeys(map(_plain, captions)))
    found: Counter[tuple[str, ...]] = Counter()
    for caption in map(_plain, captions):
        found.update(set(_phrases(caption)))

    def score(caption: str) -> float:
        phrases = _phrases(caption)
        return float(np.mean(np.log([found[phrase] for phrase in phrases]))) if phrases else -np.inf

    lengths = [len(caption.split()) for caption in several]
    usual = np.median(lengths) if lengths else 0
    usual_ones = [caption for caption, length in zip(several, lengths, strict=True) if abs(length - usual) <= 3]
    return sorted(usual_ones, key=score, reverse=True)[:most]


def _phrases(caption: str) -> list[tuple[str, ...]]:
    words = caption.split()
    return [tuple(words[at : at + n]) for n in range(1, LONGEST_PHRASE + 1) for at in range(len(words) - n + 1)]


def _plain(caption: str) -> str:
    """What capitals and spaces do not change."""
    return " ".join(caption.lower().split())
