"""IBM Model 1: which words of two languages stand for each other, from pairs of sentences alone (Brown et al., 1993).

    p(f | e) = Π_j  1 / (1 + |e|) · Σ_i t(f_j | e_i)             e_0: no word

Expectation: each target word is shared out among the source words of its sentence, in proportion to t. Maximisation: t
is what the shares sum to, for each source word. A word is aligned with the source word that it is likeliest from.

Shapes: C cells, one for each (source word, target word) of each sentence · X different cells · J target words
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from regard.evaluation.alignment import Links

ITERATIONS = 5
UNIT = re.compile(r"\w+|[^\w\s]")
NOBODY = ""  # e_0
Pair = tuple[str, str]


class Ibm1:
    def __init__(self, pairs: Iterable[Pair], iterations: int = ITERATIONS):
        self.source_ids: dict[str, int] = {NOBODY: 0}
        self.target_ids: dict[str, int] = {}
        sources, targets, shares = [], [], []
        self.pairs = 0
        for source, target in pairs:
            source_I = [0, *(self.source_ids.setdefault(unit, len(self.source_ids)) for unit in units(source))]
            target_J = [self.target_ids.setdefault(unit, len(self.target_ids)) for unit in units(target)]
            # The source words of a target word lie side by side, so that shares are summed by stretches.
            sources.append(np.tile(np.array(source_I, np.int64), len(target_J)))
            targets.append(np.repeat(np.array(target_J, np.int64), len(source_I)))
            shares.append(np.full(len(target_J), len(source_I)))
            self.pairs += 1
        source_C, target_C, share_J = (
            np.concatenate(parts or [[]]).astype(int) for parts in (sources, targets, shares)
        )
        self.words = max(1, len(self.target_ids))
        self.keys_X, cell_C = np.unique(source_C * self.words + target_C, return_inverse=True)
        self.t_X = np.full(len(self.keys_X), 1.0 / self.words)
        source_X = self.keys_X // self.words
        starts_J = np.cumsum(share_J) - share_J
        for _ in range(iterations if len(cell_C) else 0):
            t_C = self.t_X[cell_C]
            t_C /= np.repeat(np.add.reduceat(t_C, starts_J), share_J)
            count_X = np.bincount(cell_C, t_C, minlength=len(self.keys_X))
            self.t_X = count_X / np.bincount(source_X, count_X)[source_X]

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
        for place, word in enumerate(target):
            written = _main_units(word)
            score = [max((self.t(f, e) for f in written for e in units_), default=0.0) for units_ in of_source]
            best = int(np.argmax(score)) if score else -1
            if best >= 0 and score[best] > max((self.t(f, NOBODY) for f in written), default=0.0):
                links.add((best, place))
        return frozenset(links)


def units(text: str) -> list[str]:
    """Words and marks, in lower case: the same whether marks stand apart in the text or not."""
    return UNIT.findall(text.casefold())


def _main_units(word: str) -> list[str]:
    """The words in a word, or else its marks."""
    found = units(word)
    return [unit for unit in found if unit[0].isalnum()] or found
