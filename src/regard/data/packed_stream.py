"""The endless stream of packed batches, in an order that is a pure function of (seed, epoch, position).

An epoch is one permutation of the samples, cut into windows; each window is packed into rows, and the rows
of all windows and epochs form one endless stream, of which an update takes the next R. The whole state of
the data is three integers, `DataState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import Batch, DataState
from regard.data.packing import Rows

WINDOW = 8_192  # samples packed together

Samples = TypeVar("Samples")
AnyBatch = TypeVar("AnyBatch", bound=Batch)
RowOf = tuple[Samples, list[int]]  # a window's samples, and those of them that lie in one row


class PackedStream(ABC, Generic[Samples, AnyBatch]):
    """`usable` are the samples to train on; `rows` make a batch."""

    def __init__(self, usable: NDArray[np.int32], rows: int, seed: int):
        self.usable, self.rows, self.seed = usable, rows, seed
        self._epoch_and_order: tuple[int, NDArray[np.int32]] | None = None

    @abstractmethod
    def pack(self, chosen: NDArray[np.int64], generator: np.random.Generator) -> tuple[Samples, Rows]:
        """These samples, and the rows they are laid into."""

    @abstractmethod
    def fill(self, rows: list[RowOf[Samples]]) -> AnyBatch:
        """Write the samples of each row into a rectangle."""

    def batches(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        """Each batch with the state after it."""
        rows: list[RowOf[Samples]] = []
        while True:
            samples, packed = self._window(state.epoch, state.window)
            for index in range(state.row, len(packed)):
                rows.append((samples, packed[index]))
                if len(rows) == self.rows:
                    yield self.fill(rows), replace(state, row=index + 1)
                    rows = []
            last = (state.window + 1) * WINDOW >= len(self.usable)
            state = DataState(state.epoch + 1) if last else DataState(state.epoch, state.window + 1)

    def _window(self, epoch: int, window: int) -> tuple[Samples, Rows]:
        chosen = self._order(epoch)[window * WINDOW : (window + 1) * WINDOW].astype(np.int64)
        generator = np.random.default_rng([self.seed, epoch, window])
        samples, packed = self.pack(chosen, generator)
        # The last rows packed are the emptiest; spread them over the window.
        return samples, [packed[index] for index in generator.permutation(len(packed))]

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
