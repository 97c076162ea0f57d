"""A model of n-grams with interpolated Kneser-Ney smoothing: what a Transformer on the same tokens has to beat.

    p_n(w | c) = max(a(c w) − D, 0) / a(c ·) + D · t(c) / a(c ·) · p_{n−1}(w | c without its first token)

a(c w) is how often the n-gram occurs; for all but the longest, before how many different tokens it occurs. t(c) is how
many different tokens follow c. Where c never occurs, p_n = p_{n−1}. Below p_1 every token of the vocabulary is equally
likely. D = n₁ / (n₁ + 2 n₂) for each length, from how many n-grams have a = 1 and a = 2.

An n-gram is a number: that of the n-gram without its last token, and the last token. All are found in sorted arrays.

Shapes: P positions of all texts · G different n-grams · C different contexts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Length:
    """The n-grams of one length."""

    keys_G: Ints  # sorted: context · vocabulary + last token
    discounted_G: Floats  # max(a − D, 0) / a(c ·)
    rest_C: Floats  # D · t(c) / a(c ·); 1 for a context that never occurs


class KneserNey:
    """Learned from texts; the first token of each is only read."""

    def __init__(self, texts: Ragged, vocabulary: int, order: int = 5, discount: float | None = None):
        """`discount`: D for every length, instead of that from the counts."""
        self.vocabulary, self.order = vocabulary, order
        self.contexts: list[Ints] = []  # of each length from 1 on, the sorted keys of all runs of that many tokens
        tokens_P, predicted_P = _padded(texts, order)
        grams = []  # of each length the keys at all positions, and the number of each run
        run_P = np.zeros(len(tokens_P), np.int64)  # the run of n − 1 tokens that ends before each position
        for _ in range(order):
            key_P = run_P * vocabulary + tokens_P
            keys_C, number_P = np.unique(key_P, return_inverse=True)
            self.contexts.append(keys_C)
            grams.append((key_P, run_P))
            run_P = np.concatenate([[0], number_P[:-1]])
        self.lengths: list[_Length] = []
        for length, (key_P, run_P) in enumerate(grams, start=1):
            keys_G, first_G, counts_G = np.unique(key_P[predicted_P], return_index=True, return_counts=True)
            if length < order:  # each different longer n-gram counts once for the one it ends in
                longer_P = grams[length][0][predicted_P]
                _, first_P = np.unique(longer_P, return_index=True)
                counts_G = np.bincount(np.searchsorted(keys_G, key_P[predicted_P][first_P]), minlength=len(keys_G))
            context_G = run_P[predicted_P][first_G]
            self.lengths.append(_smoothed(keys_G, counts_G, context_G, discount))

    def log_probabilities(self, texts: Ragged) -> Floats:
        """Of every token but the first of each text, in order, in nats."""
        tokens_P, predicted_P = _padded(texts, self.order)
        p_P = np.full(len(tokens_P), 1 / self.vocabulary)
        run_P = np.zeros(len(tokens_P), np.int64)
        for length, keys_C in zip(self.lengths, self.contexts, strict=True):
            key_P = np.where(run_P >= 0, run_P * self.vocabulary + tokens_P, -1)
            gram_P, number_P = _found(length.keys_G, key_P), _found(keys_C, key_P)
            known_P = (run_P >= 0) & (run_P < len(length.rest_C))
            rest_P = np.where(known_P, length.rest_C[np.where(known_P, run_P, 0)], 1.0)
            seen_P = np.where(gram_P >= 0, length.discounted_G[np.maximum(gram_P, 0)], 0.0)
            p_P = seen_P + rest_P * p_P
            run_P = np.concatenate([[0], number_P[:-1]])
        return np.log(p_P[predicted_P])


def _padded(texts: Ragged, order: int) -> tuple[Ints, NDArray[np.bool_]]:
    """All texts one after the other, each with its first token repeated, so that no n-gram reaches back too far."""
    before = max(order - 1, 1)
    lengths = texts.lengths + before - 1
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    place = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    source = np.repeat(texts.offsets[:-1], lengths) + np.maximum(place - (before - 1), 0)
    return texts.ids[source].astype(np.int64), place >= before


def _smoothed(keys_G: Ints, counts_G: Ints, context_G: Ints, discount: float | None) -> _Length:
    once, twice = (int((counts_G == times).sum()) for times in (1, 2))
    if discount is None:
        discount = once / (once + 2 * twice) if once else 0.5
    total_C = np.bincount(context_G, weights=counts_G)
    kinds_C = np.bincount(context_G)
    occurs_C = total_C > 0
    total_C = np.where(occurs_C, total_C, 1.0)
    rest_C = np.where(occurs_C, discount * kinds_C / total_C, 1.0)
    return _Length(keys_G, np.maximum(counts_G - discount, 0.0) / total_C[context_G], rest_C)


def _found(sorted_G: Ints, keys_P: Ints) -> Ints:
    """Where each key is; −1 for one that is not there."""
    at_P = np.minimum(np.searchsorted(sorted_G, keys_P), len(sorted_G) - 1)
    return np.where(sorted_G[at_P] == keys_P, at_P, -1)


def perplexity(log_probabilities: Floats, counted: NDArray[np.bool_] | Sequence[bool]) -> float:
    """Of those that count."""
    return float(np.exp(-log_probabilities[np.asarray(counted, bool)].mean()))
