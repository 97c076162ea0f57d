"""IBM Model 2 near the diagonal: which words of two languages stand for each other, from pairs of sentences alone.

    p(f | e) = Π_j  Σ_i p(i | j) · t(f_j | e_i)                 e_0: no word
    p(i | j) ∝ exp(−λ |i / |e| − j / |f||)  for i > 0;  p(0 | j) = p_0

Expectation: each target word is shared out among the source words of its sentence, in proportion to p · t.
Maximisation: t is what the shares sum to, for each source word, and λ is where they are likeliest: large where words
keep their order, 0 where they do not. A word is aligned with the source word that it is likeliest from. The model is
that of Dyer, Chahuneau and Smith (2013), without their prior over t, with which links were a little worse.

Shapes: C cells, one for each (source word, target word) of each sentence · X different cells · Z places, one for each
        (i, j) of each pair of lengths · I source words, with e_0 · J target words
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from regard.evaluation.alignment import Gold, Links

ITERATIONS = 5
SHARPNESS = 4.0  # λ to begin with
SHARPEST = 14.0
NO_WORD = 0.08  # p_0
MOST_UNITS = 200  # of a text: what is longer is cut
UNIT = re.compile(r"\w+|[^\w\s]")
NOBODY = ""  # e_0
Pair = tuple[str, str]


class Ibm2:
    """`align(source, target)` after counting in pairs of (source, target)."""

    def __init__(self, pairs: Iterable[Pair], iterations: int = ITERATIONS):
        self.source_ids: dict[str, int] = {NOBODY: 0}
        self.target_ids: dict[str, int] = {}
        self.sharpness = SHARPNESS
        places = _Places()
        sources, targets, places_, shares = [], [], [], []
        for source, target in pairs:
            source_I = [0, *(self.source_ids.setdefault(u, len(self.source_ids)) for u in units(source)[:MOST_UNITS])]
            target_J = [self.target_ids.setdefault(u, len(self.target_ids)) for u in units(target)[:MOST_UNITS]]
            # The source words of a target word lie side by side, so that shares are summed by stretches.
            sources.append(np.tile(np.array(source_I, np.int64), len(target_J)))
            targets.append(np.repeat(np.array(target_J, np.int64), len(source_I)))
            places_.append(places.of(len(source_I) - 1, len(target_J)))
            shares.append(np.full(len(target_J), len(source_I)))
        source_C, target_C, place_C, share_J = (
            np.concatenate(parts or [[]]).astype(int) for parts in (sources, targets, places_, shares)
        )
        self.words = max(1, len(self.target_ids))
        self.keys_X, cell_C = np.unique(source_C * self.words + target_C, return_inverse=True)
        self.t_X = np.full(len(self.keys_X), 1.0 / self.words)
        source_X = self.keys_X // self.words
        starts_J = np.cumsum(share_J) - share_J
        for _ in range(iterations if len(cell_C) else 0):
            share_C = self.t_X[cell_C] * places.prior(self.sharpness)[place_C]
            share_C /= np.repeat(np.add.reduceat(share_C, starts_J), share_J)
            count_X = np.bincount(cell_C, share_C, minlength=len(self.keys_X))
            self.t_X = count_X / np.maximum(np.bincount(source_X, count_X), 1e-300)[source_X]
            share_Z = np.bincount(place_C, share_C, minlength=places.count).astype(float)
            self.sharpness = places.likeliest_sharpness(share_Z)

    def t(self, target: str, source: str) -> float:
        """How likely a unit of the target is, given one of the source; 0 where they never met."""
        left, right = self.source_ids.get(source), self.target_ids.get(target)
        if left is None or right is None or not len(self.keys_X):
            return 0.0
        key = left * self.words + right
        place = int(np.searchsorted(self.keys_X, key))
        return float(self.t_X[place]) if place < len(self.keys_X) and self.keys_X[place] == key else 0.0

    def align(self, source: Sequence[str], target: Sequence[str]) -> Links:
        """For each target word the source word that it is likeliest from, unless it is likelier from none."""
        links = set()
        of_source = [_main_units(word) for word in source]
        prior_JI = _prior(len(source), len(target), self.sharpness)
        for place, word in enumerate(target if source else []):
            written = _main_units(word)
            t_I = [max((self.t(f, e) for f in written for e in of_word), default=0.0) for of_word in of_source]
            score_I = prior_JI[place, 1:] * np.array(t_I)
            best = int(score_I.argmax())
            if score_I[best] > prior_JI[place, 0] * max((self.t(f, NOBODY) for f in written), default=0.0):
                links.add((best, place))
        return frozenset(links)


class BothWays:
    """Links counted in both directions: sure where they agree, possible where one of them says so."""

    def __init__(self, pairs: Iterable[Pair]):
        kept = list(pairs)
        self.pairs = len(kept)
        self.forth, self.back = Ibm2(kept), Ibm2((target, source) for source, target in kept)

    def align(self, source: Sequence[str], target: Sequence[str]) -> Gold:
        forth = self.forth.align(source, target)
        back = frozenset((i, j) for j, i in self.back.align(target, source))
        return Gold(forth & back, forth | back)


def units(text: str) -> list[str]:
    """Words and marks, in lower case: the same whether marks stand apart in the text or not."""
    return UNIT.findall(text.casefold())


def _main_units(word: str) -> list[str]:
    """The words in a word, or else its marks."""
    found = units(word)
    return [unit for unit in found if unit[0].isalnum()] or found


class _Places:
    """(i, j) of all pairs of lengths. Sentences of equal lengths share theirs."""

    def __init__(self) -> None:
        self.first: dict[tuple[int, int], int] = {}
        self.count = 0

    def of(self, sources: int, targets: int) -> NDArray[np.int64]:
        """The places of a pair of so many words each, target word by target word, e_0 first."""
        size = (sources + 1) * targets
        if (sources, targets) not in self.first:
            self.first[sources, targets] = self.count
            self.count += size
        return self.first[sources, targets] + np.arange(size)

    def prior(self, sharpness: float) -> NDArray[np.float64]:
        return np.concatenate([_prior(*lengths, sharpness).ravel() for lengths in self.first])

    def likeliest_sharpness(self, share_Z: NDArray[np.float64]) -> float:
        """λ, where what words that come from a word share is as far from the diagonal as the prior says."""

        def slope(sharpness: float) -> float:
            total = 0.0
            for (sources, targets), first in self.first.items():
                share_JI = share_Z[first : first + (sources + 1) * targets].reshape(targets, sources + 1)[:, 1:]
                near_JI = _prior(sources, targets, sharpness)[:, 1:] / (1 - NO_WORD)
                expected_JI = near_JI * share_JI.sum(1, keepdims=True)
                total += float(((expected_JI - share_JI) * _distance(sources, targets)).sum())
            return total

        if slope(0.0) <= 0:
            return 0.0
        return SHARPEST if slope(SHARPEST) >= 0 else float(brentq(slope, 0.0, SHARPEST, xtol=1e-3))


def _prior(sources: int, targets: int, sharpness: float) -> NDArray[np.float64]:
    """p(i | j), with e_0 first: [J, I]."""
    near_JI = np.exp(-sharpness * _distance(sources, targets))
    near_JI *= (1 - NO_WORD) / np.maximum(near_JI.sum(1, keepdims=True), 1e-300)
    return np.concatenate([np.full((targets, 1), NO_WORD), near_JI], 1)


def _distance(sources: int, targets: int) -> NDArray[np.float64]:
    """From the diagonal: [J, I − 1]."""
    i_I, j_J = (np.arange(1, count + 1) / max(1, count) for count in (sources, targets))
    distance_JI: NDArray[np.float64] = np.abs(i_I[None] - j_J[:, None])
    return distance_JI
