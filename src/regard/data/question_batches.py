"""Batches of questions with a window of their context each, several to a row.

    <start> question <end> window <end>         an answer begins and ends in the window, or at <start>: not here

Shapes: B rows · T positions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data import packed
from regard.data.batch import Batch
from regard.data.packed import PackedShape, PackedStream, WindowRows, flat, placements
from regard.data.packing import Rows, pack, rows_of_length
from regard.data.ragged import spread
from regard.data.tokenised_questions import NOT_FOUND, Windows
from regard.data.tokenizers import END, START

NOWHERE = -1  # no answer begins at a position


@dataclass(frozen=True)
class QuestionBatch(Batch):
    """Labels [B, T] are 1 at the <start> of every window; segment 0 marks padding."""

    unit: ClassVar[str] = "questions"

    tokens_BT: Tensor
    segments_BT: Tensor
    positions_BT: Tensor
    readable_BT: Tensor  # where an answer may begin and end: the window, and <start>
    ends_BT: Tensor  # where an answer begins, the column at which it ends; NOWHERE elsewhere


@dataclass(frozen=True)
class QuestionRows(PackedShape[Windows, QuestionBatch]):
    """The constant shape of a batch."""

    rows: int
    length: int
    apart: bool = False  # one window per row, in shapes of several lengths

    @property
    def positions(self) -> int:
        return self.rows * self.length

    def of_length(self, length: int) -> QuestionRows:
        return replace(self, rows=rows_of_length(length, self.positions), length=length)

    def lengths(self, samples: Windows) -> NDArray[np.int64]:
        return samples.lengths

    def pack(self, samples: Windows) -> Rows:
        return pack(samples.lengths, samples.lengths, (self.length, self.length))

    def fill(self, rows: WindowRows[Windows]) -> QuestionBatch:
        labels, tokens, segments, positions = np.zeros((4, self.rows, self.length), np.int64)
        readable = np.zeros((self.rows, self.length), bool)
        ends = np.full((self.rows, self.length), NOWHERE, np.int64)
        for samples, where in placements(rows):
            starts = where.mark(samples.lengths, segments, positions)
            contexts = starts + samples.question_length + 2
            flat(tokens)[starts] = START
            flat(tokens)[spread(starts + 1, samples.question_length)] = samples.question_ids()
            flat(tokens)[contexts - 1] = END
            flat(tokens)[spread(contexts, samples.length)] = samples.context_ids()
            flat(tokens)[contexts + samples.length] = END
            flat(readable)[starts] = True
            flat(readable)[spread(contexts, samples.length)] = True
            flat(labels)[starts] = 1
            window, first, last = samples.spans()
            flat(ends)[contexts[window] + first] = (contexts[window] + last) % self.length
            without = np.setdiff1d(np.arange(len(samples)), window)
            without = without[samples.of.states[samples.question[without]] != NOT_FOUND]
            flat(ends)[starts[without]] = starts[without] % self.length
        return QuestionBatch(
            *(torch.from_numpy(array) for array in (labels, tokens, segments, positions, readable, ends))
        )


class QuestionStream(PackedStream[Windows, QuestionBatch]):
    def __init__(self, windows: Windows, shape: QuestionRows, seed: int):
        super().__init__(np.arange(len(windows), dtype=np.int32), shape, seed)
        self.samples = windows

    def take(self, numbers: NDArray[np.int64], generator: np.random.Generator) -> Windows:
        return self.samples.take(numbers)


def in_order(windows: Windows, shape: QuestionRows) -> Iterator[tuple[QuestionBatch, NDArray[np.int64]]]:
    """Every window once; with each batch the numbers of its windows, as their labels stand row by row."""
    return packed.in_order(windows, shape, lambda part: part)
