"""Batches of samples of different length, written into rectangles in one of two ways:

together   several samples share a row; a batch is a number of such rows
apart      one sample per row, for mixers that would run from one into the next; samples of similar length make a
           batch, in one of a few shapes with the same number of positions
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data.packing import Rows, group_by_length
from regard.data.stream import AnyBatch, Part, Stream

WINDOW = 8_192  # samples packed together


class Takeable(Protocol):
    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> Self:
        """These samples, in this order."""


Samples = TypeVar("Samples", bound=Takeable)
WindowRows = list[tuple[Samples, Rows]]  # the rows of a batch, as numbers of samples, by the window they come from


class Block(NamedTuple):
    """Rows that go into the same batch: one row of several samples, or, apart, all rows of a batch."""

    rows: Rows
    length: int = 0  # of the rows, where it is not that of the shape


@dataclass(frozen=True)
class PackedWindow(Generic[Samples]):
    samples: Samples
    blocks: list[Block]

    def __len__(self) -> int:
        return len(self.blocks)


class PackedShape(ABC, Generic[Samples, AnyBatch]):
    """The constant shape of a batch; or, with one sample per row, the number of positions of its shapes."""

    rows: int
    apart: bool

    @property
    @abstractmethod
    def positions(self) -> int: ...

    @abstractmethod
    def of_length(self, length: int) -> Self:
        """As many positions in rows of another length."""

    @abstractmethod
    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """How many positions of a row each sample takes, on the longer side where there are two."""

    @abstractmethod
    def pack(self, samples: Samples) -> Rows:
        """The rows that samples are packed into."""

    @abstractmethod
    def fill(self, rows: WindowRows[Samples]) -> AnyBatch:
        """Write the samples of each row into a rectangle. Rows that are missing stay empty."""

    @property
    def blocks_per_batch(self) -> int:
        return 1 if self.apart else self.rows

    def blocks(self, samples: Samples) -> list[Block]:
        """All samples, each once."""
        if self.apart:
            groups = group_by_length(self.lengths(samples), self.positions)
            return [Block([[sample] for sample in group], length) for length, group in groups]
        return [Block([row]) for row in self.pack(samples)]

    def batch(self, parts: list[tuple[Samples, list[Block]]]) -> AnyBatch:
        """One batch of these blocks."""
        length = parts[0][1][0].length
        rows = [(samples, [row for block in blocks for row in block.rows]) for samples, blocks in parts]
        return (self.of_length(length) if length else self).fill(rows)


class PackedStream(Stream[PackedWindow[Samples], AnyBatch]):
    """A window is the next few thousand samples of the epoch's permutation of those that are `usable`."""

    def __init__(self, usable: NDArray[np.int32], shape: PackedShape[Samples, AnyBatch], seed: int):
        self.usable, self.shape, self.seed = usable, shape, seed
        self.rows = shape.blocks_per_batch
        self._epoch_and_order: tuple[int, NDArray[np.int32]] | None = None

    @abstractmethod
    def take(self, numbers: NDArray[np.int64], generator: np.random.Generator) -> Samples:
        """These samples, as they are trained on."""

    @property
    def windows(self) -> int:
        return -(-len(self.usable) // WINDOW)

    def open(self, epoch: int, window: int) -> PackedWindow[Samples]:
        numbers = self._order(epoch)[window * WINDOW : (window + 1) * WINDOW].astype(np.int64)
        generator = np.random.default_rng([self.seed, epoch, window])
        samples = self.take(numbers, generator)
        blocks = self.shape.blocks(samples)
        # The last rows packed are the emptiest; spread them over the window.
        return PackedWindow(samples, [blocks[block] for block in generator.permutation(len(blocks)).tolist()])

    def collate(self, parts: list[Part[PackedWindow[Samples]]]) -> AnyBatch:
        return self.shape.batch([(part.window.samples, part.window.blocks[part.slice]) for part in parts])

    def _order(self, epoch: int) -> NDArray[np.int32]:
        """The permutation of an epoch; the last one is remembered, since its windows are opened in turn."""
        if self._epoch_and_order is None or self._epoch_and_order[0] != epoch:
            self._epoch_and_order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.usable))
        return self._epoch_and_order[1]


def in_order(
    samples: Samples, shape: PackedShape[Samples, AnyBatch], shorten: Callable[[Samples], Samples]
) -> Iterator[tuple[AnyBatch, NDArray[np.int64]]]:
    """Every sample once, shortened so that it fits; with each batch the numbers of its samples, row by row."""
    for start in range(0, len(samples), WINDOW):
        part = shorten(samples.take(np.arange(start, min(start + WINDOW, len(samples)))))
        blocks = shape.blocks(part)
        for first in range(0, len(blocks), shape.blocks_per_batch):
            of_batch = blocks[first : first + shape.blocks_per_batch]
            numbers = [start + sample for block in of_batch for row in block.rows for sample in row]
            yield shape.batch([(part, of_batch)]), np.array(numbers, np.int64)


@dataclass(frozen=True)
class Placement:
    """Which samples go where: the row of each, and its segment within the row, from 1 on."""

    samples: NDArray[np.int64]
    row: NDArray[np.int64]
    segment: NDArray[np.int64]

    def starts(self, lengths: NDArray[np.int64], row_length: int) -> NDArray[np.int64]:
        """Where in the flat rectangle each sample begins, if samples of these lengths follow one another in a row."""
        ends = np.cumsum(lengths)
        first_of_row = np.flatnonzero(self.segment == 1)
        row_starts = ends[first_of_row] - lengths[first_of_row]
        in_row = np.diff(np.append(first_of_row, len(lengths)))
        return self.row * row_length + ends - lengths - np.repeat(row_starts, in_row)


def placements(rows: WindowRows[Samples]) -> Iterator[tuple[Samples, Placement]]:
    """For each window, where its samples go."""
    first = 0
    for samples, numbers in rows:
        lengths = np.array([len(row) for row in numbers], np.int64)
        yield (
            samples,
            Placement(
                np.array([sample for row in numbers for sample in row], np.int64),
                np.repeat(np.arange(first, first + len(numbers)), lengths),
                np.array([segment for row in numbers for segment in range(1, len(row) + 1)], np.int64),
            ),
        )
        first += len(numbers)


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """A rectangle seen as one long row."""
    return array.reshape(-1)
