"""The endless stream of batches, in an order that is a pure function of (seed, epoch, position).

An epoch is one permutation of the samples, cut into windows. The whole state of the data is three integers,
`DataState`. There are two ways to make batches of a window:

together   several samples share a row; the rows of all windows and epochs form one endless stream, of which an
           update takes the next R
apart      one sample a row, for mixers that would run from one into the next; samples of like length make a batch,
           in one of a few shapes with the same number of positions
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import Batch, DataState
from regard.data.packing import Rows, of_like_length

WINDOW = 8_192  # samples packed together

Samples = TypeVar("Samples")
AnyBatch = TypeVar("AnyBatch", bound=Batch)
RowOf = tuple[Samples, list[int]]  # a window's samples, and those of them that lie in one row


class PackedStream(ABC, Generic[Samples, AnyBatch]):
    """`usable` are the samples to train on; `rows` make a batch, or `apart` is the number of positions in one."""

    def __init__(self, usable: NDArray[np.int32], rows: int, seed: int, apart: int = 0):
        self.usable, self.rows, self.seed, self.apart = usable, rows, seed, apart
        self._epoch_and_order: tuple[int, NDArray[np.int32]] | None = None

    @abstractmethod
    def take(self, chosen: NDArray[np.int64], generator: np.random.Generator) -> Samples:
        """These samples."""

    @abstractmethod
    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """How many positions of a row each takes, on the longer side where there are two."""

    @abstractmethod
    def pack(self, samples: Samples) -> Rows:
        """The rows they are laid into."""

    @abstractmethod
    def fill(self, rows: list[RowOf[Samples]], length: int = 0) -> AnyBatch:
        """Write the samples of each row into a rectangle; with `length`, into one of that length."""

    def batches(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        """Each batch with the state after it."""
        return self._apart(state) if self.apart else self._together(state)

    def _together(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        rows: list[RowOf[Samples]] = []
        while True:
            samples, generator = self._window(state)
            packed = self.pack(samples)
            # The last rows packed are the emptiest; spread them over the window.
            order = generator.permutation(len(packed))
            for index in range(state.row, len(packed)):
                rows.append((samples, packed[order[index]]))
                if len(rows) == self.rows:
                    yield self.fill(rows), replace(state, row=index + 1)
                    rows = []
            state = self._after(state)

    def _apart(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        while True:
            samples, generator = self._window(state)
            groups = of_like_length(self.lengths(samples), self.apart)
            order = generator.permutation(len(groups))
            for index in range(state.row, len(groups)):
                length, chosen = groups[order[index]]
                yield self.fill([(samples, [sample]) for sample in chosen], length), replace(state, row=index + 1)
            state = self._after(state)

    def _window(self, state: DataState) -> tuple[Samples, np.random.Generator]:
        first = state.window * WINDOW
        chosen = self._order(state.epoch)[first : first + WINDOW].astype(np.int64)
        generator = np.random.default_rng([self.seed, state.epoch, state.window])
        return self.take(chosen, generator), generator

    def _after(self, state: DataState) -> DataState:
        """Where the next window begins."""
        last = (state.window + 1) * WINDOW >= len(self.usable)
        return DataState(state.epoch + 1) if last else DataState(state.epoch, state.window + 1)

    def _order(self, epoch: int) -> NDArray[np.int32]:
        """The permutation of an epoch; the last one is kept, since its windows are asked for in turn."""
        if self._epoch_and_order is None or self._epoch_and_order[0] != epoch:
            self._epoch_and_order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.usable))
        return self._epoch_and_order[1]


def by_window(rows: list[RowOf[Samples]]) -> Iterator[tuple[Samples, list[tuple[int, list[int]]]]]:
    """Rows of a batch, numbered, grouped by the window they come from (a batch may straddle two)."""
    groups: dict[int, tuple[Samples, list[tuple[int, list[int]]]]] = {}
    for place, (samples, row) in enumerate(rows):
        groups.setdefault(id(samples), (samples, []))[1].append((place, row))
    yield from groups.values()


def laid_out(chosen: list[tuple[int, list[int]]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The samples of numbered rows, one after the other; the row of each; and its number within the row."""
    samples = np.array([sample for _, row in chosen for sample in row], np.int64)
    row_of = np.array([place for place, row in chosen for _ in row], np.int64)
    segment_of = np.array([number for _, row in chosen for number in range(1, len(row) + 1)], np.int64)
    return samples, row_of, segment_of


def places_in_rows(
    takes: NDArray[np.int64], row_of: NDArray[np.int64], segment_of: NDArray[np.int64], row_length: int
) -> NDArray[np.int64]:
    """Where in a flat rectangle each sample starts, if they take so many positions and stand close together."""
    # The sum of those before it in the same row.
    ends = np.cumsum(takes)
    first_of_row = np.flatnonzero(segment_of == 1)
    row_starts = np.repeat(ends[first_of_row] - takes[first_of_row], np.diff(np.append(first_of_row, len(takes))))
    return row_of * row_length + ends - takes - row_starts
