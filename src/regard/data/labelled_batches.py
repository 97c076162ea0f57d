"""Batches of labelled texts: several texts to a row, each with its class at one position.

    <start> text <end>          the class stands at <start>, or, for a model that reads only backwards, at <end>

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

from regard.data import packed_stream
from regard.data.batch import Batch
from regard.data.packed_stream import PackedStream, RowOf, by_window, laid_out, places_in_rows
from regard.data.packing import Rows, of_like_length, pack, rows_of_length
from regard.data.shards import LabelledShards, cut, spread
from regard.data.tokenizers import END, START

FRAME = 2  # <start> and <end>


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """Labels are classes from 0 on; segment 0 marks padding."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "texts"

    tokens_BT: Tensor
    segments_BT: Tensor
    positions_BT: Tensor


@dataclass(frozen=True)
class LabelledRows:
    """The constant shape of a batch, and which end of a text its class stands at."""

    rows: int
    length: int
    at_end: bool
    apart: bool = False  # one text a row, in shapes of several lengths

    @property
    def positions(self) -> int:
        return self.rows * self.length

    def of_length(self, length: int) -> LabelledRows:
        """As many positions in rows of another length."""
        return replace(self, rows=rows_of_length(length, self.positions), length=length)

    def pack(self, texts: LabelledShards) -> Rows:
        takes = _lengths(texts)
        return pack(takes, takes, (self.length, self.length))

    def fill(self, rows: list[RowOf[LabelledShards]]) -> LabelledBatch:
        """Write the texts of each row into a rectangle. Rows that are missing stay empty."""
        tokens, segments, positions = np.zeros((3, self.rows, self.length), np.int64)
        labels = np.full((self.rows, self.length), LabelledBatch.nothing, np.int64)
        for texts, chosen in by_window(rows):
            samples, row_of, segment_of = laid_out(chosen)
            taken = texts.take(samples)
            takes = taken.texts.lengths + FRAME
            starts = places_in_rows(takes, row_of, segment_of, self.length)
            ends = starts + takes - 1
            places = spread(starts, takes)
            segments.reshape(-1)[places] = np.repeat(segment_of, takes)
            positions.reshape(-1)[places] = spread(np.zeros_like(takes), takes)
            tokens.reshape(-1)[spread(starts + 1, taken.texts.lengths)] = taken.texts.ids
            tokens.reshape(-1)[starts] = START
            tokens.reshape(-1)[ends] = END
            labels.reshape(-1)[ends if self.at_end else starts] = taken.classes
        return LabelledBatch(*(torch.from_numpy(array) for array in (labels, tokens, segments, positions)))


class LabelledStream(PackedStream[LabelledShards, LabelledBatch]):
    """The endless stream of training batches. Texts longer than `max_length` tokens keep their beginning."""

    def __init__(self, texts: LabelledShards, shape: LabelledRows, seed: int, max_length: int):
        apart = shape.positions if shape.apart else 0
        super().__init__(np.arange(len(texts), dtype=np.int32), shape.rows, seed, apart)
        self.texts, self.shape, self.max_length = texts, shape, max_length

    def take(self, chosen: NDArray[np.int64], generator: np.random.Generator) -> LabelledShards:
        return shortened(self.texts.take(chosen), self.max_length)

    def lengths(self, samples: LabelledShards) -> NDArray[np.int64]:
        return _lengths(samples)

    def pack(self, samples: LabelledShards) -> Rows:
        return self.shape.pack(samples)

    def fill(self, rows: list[RowOf[LabelledShards]], length: int = 0) -> LabelledBatch:
        return (self.shape.of_length(length) if length else self.shape).fill(rows)


def in_order(
    texts: LabelledShards, shape: LabelledRows, max_length: int
) -> Iterator[tuple[LabelledBatch, NDArray[np.int64]]]:
    """Every text once; with each batch the numbers of its texts, as their labels stand row by row."""
    for start in range(0, len(texts), packed_stream.WINDOW):
        chosen = np.arange(start, min(start + packed_stream.WINDOW, len(texts)))
        taken = shortened(texts.take(chosen), max_length)
        if shape.apart:
            for length, samples in of_like_length(_lengths(taken), shape.positions):
                batch = shape.of_length(length).fill([(taken, [sample]) for sample in samples])
                yield batch, start + np.array(samples, np.int64)
            continue
        packed = shape.pack(taken)
        for first in range(0, len(packed), shape.rows):
            rows = packed[first : first + shape.rows]
            numbers = np.array([start + sample for row in rows for sample in row], np.int64)
            yield shape.fill([(taken, row) for row in rows]), numbers


def shortened(texts: LabelledShards, max_length: int) -> LabelledShards:
    """Each text cut so that it takes at most `max_length` positions with <start> and <end>."""
    return LabelledShards(cut(texts.texts, max_length - FRAME), texts.classes)


def _lengths(texts: LabelledShards) -> NDArray[np.int64]:
    return texts.texts.lengths + FRAME
