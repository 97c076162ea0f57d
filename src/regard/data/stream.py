"""The endless stream of training batches, in an order that is a pure function of (seed, epoch, position).

An epoch holds every sample once. It is cut into windows, each small enough for memory and opened by itself; a window's
rows have an order. A batch is the next R rows, which run on from window to window and from epoch to epoch. So the
whole state of the data is three integers, from which the stream continues exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from regard.data.batch import Batch, DataState
from regard.errors import RegardError

Window = TypeVar("Window", bound=Sized)
AnyBatch = TypeVar("AnyBatch", bound=Batch)


@dataclass(frozen=True)
class Part(Generic[Window]):
    """Rows of one window that go into a batch."""

    epoch: int
    window: Window
    rows: range

    @property
    def slice(self) -> slice:
        return slice(self.rows.start, self.rows.stop)


class Stream(ABC, Generic[Window, AnyBatch]):
    rows: int  # of a batch

    @property
    def windows(self) -> int:
        """How many windows an epoch has."""
        return 1

    @abstractmethod
    def open(self, epoch: int, window: int) -> Window:
        """The rows of a window, in their order; its length is their number."""

    @abstractmethod
    def collate(self, parts: list[Part[Window]]) -> AnyBatch:
        """One batch of the rows of these parts, in their order."""

    def batches(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        """Each batch with the state after it."""
        parts: list[Part[Window]] = []
        missing = self.rows
        epoch, number, row = state.epoch, state.window, state.row
        while True:
            # Entered in its middle, an epoch may have no rows left.
            empty = number == row == 0
            while number < self.windows:
                window = self.open(epoch, number)
                while row < len(window):
                    empty = False
                    rows = range(row, min(row + missing, len(window)))
                    parts.append(Part(epoch, window, rows))
                    missing, row = missing - len(rows), rows.stop
                    if not missing:
                        yield self.collate(parts), DataState(epoch, number, row)
                        parts, missing = [], self.rows
                number, row = number + 1, 0
            if empty:
                raise self.nothing_to_train_on()
            epoch, number = epoch + 1, 0

    def nothing_to_train_on(self) -> RegardError:
        """The error of an epoch without rows."""
        return RegardError(
            "There is nothing to train on.", "The training data has no samples.", "Check the files named in [data]."
        )
