"""Counts of what follows what, as sorted numbers, so that only what was seen takes memory.

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
    """How often each word followed each context, sparse. Row r holds starts[r] to starts[r + 1] of keys_F.

    A context is a number; so is a next word, below `size`; a key is context · size + next. All are sorted.
    """

    size: int
    keys_F: Ints
    counts_F: Ints
    contexts_R: Ints
    starts: Ints  # R + 1

    @classmethod
    def from_keys(cls, keys: Ints, size: int) -> Counts:
        """Count how often each key occurs."""
        keys, counts = np.unique(keys, return_counts=True)
        contexts, starts = np.unique(keys // size, return_index=True)
        return cls(size, keys, counts, contexts, np.append(starts, len(keys)))

    @cached_property
    def totals_R(self) -> Ints:
        return np.add.reduceat(self.counts_F, self.starts[:-1]) if self.counts_F.size else self.counts_F

    @property
    def distinct_R(self) -> Ints:
        """How many different words followed each context."""
        return np.diff(self.starts)

    @property
    def context_F(self) -> Ints:
        return self.keys_F // self.size

    @property
    def shares_F(self) -> Floats:
        """Each count as a share of its row."""
        return self.counts_F / np.repeat(self.totals_R, self.distinct_R)

    def find(self, contexts: Ints) -> Ints:
        """The row of each context; −1 where it was never seen."""
        return _find(self.contexts_R, contexts)

    def count(self, contexts: Ints, following: Ints) -> Ints:
        """How often each word followed its context."""
        return _take(self.counts_F, _find(self.keys_F, contexts * self.size + following))

    def total(self, contexts: Ints) -> Ints:
        """How often anything followed each context."""
        return _take(self.totals_R, self.find(contexts))

    def row_shares(self, row: int) -> Floats:
        """What followed the context of a row, each word as a share of the whole. [size]"""
        entries = slice(self.starts[row], self.starts[row + 1])
        shares = np.zeros(self.size)
        shares[self.keys_F[entries] % self.size] = self.counts_F[entries] / self.totals_R[row]
        return shares

    def smooth(self, contexts: Ints, following: Ints, lower: Floats) -> Floats:
        """(count + distinct · lower) / (total + distinct); lower itself after a context that was never seen."""
        rows = self.find(contexts)
        total, distinct = _take(self.totals_R, rows), _take(self.distinct_R, rows)
        smoothed = (self.count(contexts, following) + distinct * lower) / np.maximum(total + distinct, 1)
        return np.where(rows >= 0, smoothed, lower)


def _find(ordered: Ints, wanted: Ints) -> Ints:
    """The index of each number among ordered ones; −1 where it is missing."""
    if not ordered.size:
        return np.full(len(wanted), -1)
    indices = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[indices] == wanted, indices, -1)


def _take(values: Ints, indices: Ints) -> Ints:
    """The values at these indices; 0 at index −1."""
    return np.where(indices >= 0, values[indices], 0) if values.size else np.zeros_like(indices)
