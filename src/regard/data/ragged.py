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
    """Sequence i is ids[offsets[i] : offsets[i + 1]]; with `starts`, as many ids from there on."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    cut_off: NDArray[np.bool_] | None = None  # whether the end of each is missing; None: of none
    starts: NDArray[np.int64] | None = None  # where each is in `ids`, if they do not follow one another there

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
        return cls(np.fromiter(itertools.chain.from_iterable(sequences), np.int64, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        start = self._starts[index]
        return self.ids[start : start + self.offsets[index + 1] - self.offsets[index]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Whether each sequence is there to its end."""
        return np.ones(len(self), bool) if self.cut_off is None else ~self.cut_off

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """These sequences, in this order, copied."""
        cut_off = None if self.cut_off is None else self.cut_off[rows]
        return self._copied(self._starts[rows], self.offsets[rows + 1] - self.offsets[rows], cut_off)

    def cut(self, most: int) -> Ragged:
        """At most this many ids of the beginning of each sequence."""
        return self._copied(self._starts, np.minimum(self.lengths, most))

    def beginnings(self, most: int) -> Ragged:
        """The same, not copied: of a corpus that is mapped, nothing is read before it is taken."""
        offsets = np.concatenate([[0], np.cumsum(np.minimum(self.lengths, most))])
        return Ragged(self.ids, offsets, starts=self._starts)

    def fitted(self, places: int) -> Ragged:
        """Each sequence whole, if it and an <end> have room in this many places; else as much of it as fills them."""
        return self._copied(self._starts, np.minimum(self.lengths, places), self.lengths >= places)

    @property
    def _starts(self) -> NDArray[np.int64]:
        return self.offsets[:-1] if self.starts is None else self.starts

    def _copied(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], cut_off: NDArray[np.bool_] | None = None
    ) -> Ragged:
        return Ragged(self.ids[spread(starts, lengths)], np.concatenate([[0], np.cumsum(lengths)]), cut_off)


def spread(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1 … for each start and length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
