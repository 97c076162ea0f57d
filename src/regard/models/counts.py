"""Counts of what follows what, as sorted numbers, so that only what was seen takes room.

Shapes: R rows, one for each context that was seen · F counts in them
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How often each word followed each context, sparse. Row r holds places starts[r] to starts[r + 1] of keys_F.

    A context is a number; so is a next word, below `size`; a key is context · size + next. All are sorted.
    """

    size: int
    keys_F: Ints
    times_F: Ints
    contexts_R: Ints
    starts: Ints  # R + 1

    @classmethod
    def of(cls, keys: Ints, size: int) -> Counts:
        keys, times = np.unique(keys, return_counts=True)
        seen, starts = np.unique(keys // size, return_index=True)
        return cls(size, keys, times, seen, np.append(starts, len(keys)))

    @cached_property
    def totals_R(self) -> Ints:
        return np.add.reduceat(self.times_F, self.starts[:-1]) if self.times_F.size else self.times_F

    @property
    def kinds_R(self) -> Ints:
        return np.diff(self.starts)

    @property
    def context_F(self) -> Ints:
        return self.keys_F // self.size

    def find(self, contexts: Ints) -> Ints:
        """The row of each context; −1 where it was never seen."""
        return _find(self.contexts_R, contexts)

    def times(self, contexts: Ints, following: Ints) -> Ints:
        places = _find(self.keys_F, contexts * self.size + following)
        return _where(self.times_F, places)

    def totals(self, contexts: Ints) -> Ints:
        return _where(self.totals_R, self.find(contexts))

    def shares(self, context: int) -> Floats:
        return self.shares_of_row(int(self.find(np.array([context]))[0]))

    def shares_of_row(self, row: int) -> Floats:
        """What followed, each as a share of the whole. [size]"""
        places = slice(self.starts[row], self.starts[row + 1])
        shares = np.zeros(self.size)
        shares[self.keys_F[places] % self.size] = self.times_F[places] / self.totals_R[row]
        return shares

    def smooth(self, contexts: Ints, following: Ints, lower: Floats) -> Floats:
        """(times + kinds · lower) / (total + kinds); lower itself after a context that was never seen."""
        rows = self.find(contexts)
        total, kinds = _where(self.totals_R, rows), _where(self.kinds_R, rows)
        smoothed = (self.times(contexts, following) + kinds * lower) / np.maximum(total + kinds, 1)
        return np.where(rows >= 0, smoothed, lower)


def _find(ordered: Ints, wanted: Ints) -> Ints:
    """Where each number stands among ordered ones; −1 where it does not."""
    if not ordered.size:
        return np.full(len(wanted), -1)
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[places] == wanted, places, -1)


def _where(values: Ints, places: Ints) -> Ints:
    """The values at these places; 0 at place −1."""
    return np.where(places >= 0, values[places], 0) if values.size else np.zeros_like(places)
