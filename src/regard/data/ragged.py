"""Sequences of different length in one flat array."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """Sequence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
        return cls(np.fromiter(itertools.chain.from_iterable(sequences), np.int64, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """These sequences, in this order, copied."""
        return self._copied(self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows])

    def cut(self, most: int) -> Ragged:
        """At most this many ids of the beginning of each sequence."""
        return self._copied(self.offsets[:-1], np.minimum(self.lengths, most))

    def _copied(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ragged:
        return Ragged(self.ids[spread(starts, lengths)], np.concatenate([[0], np.cumsum(lengths)]))


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1 … for each start and length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
