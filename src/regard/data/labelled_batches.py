"""Batches of labelled texts: several texts to a row, each with its class at one position.

    <start> text <end>          the class is at <start>, or, for a model that reads only backwards, at <end>

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
from regard.data.tokenised import TokenisedTexts
from regard.data.tokenizers import END, START

FRAME = 2  # <start> and <end>


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """Labels [B, T] are classes from 0 on; segment 0 marks padding."""

    nothing: ClassVar[int] = -1
    unit: ClassVar[str] = "texts"

    tokens_BT: Tensor
    segments_BT: Tensor
    positions_BT: Tensor


@dataclass(frozen=True)
class LabelledRows(PackedShape[TokenisedTexts, LabelledBatch]):
    """The constant shape of a batch, and which end of a text its class is at."""

    rows: int
    length: int
    at_end: bool
    apart: bool = False  # one text per row, in shapes of several lengths

    @property
    def positions(self) -> int:
        return self.rows * self.length

    def of_length(self, length: int) -> LabelledRows:
        return replace(self, rows=rows_of_length(length, self.positions), length=length)

    def lengths(self, samples: TokenisedTexts) -> NDArray[np.int64]:
        return samples.texts.lengths + FRAME

    def pack(self, samples: TokenisedTexts) -> Rows:
        lengths = self.lengths(samples)
        return pack(lengths, lengths, (self.length, self.length))

    def fill(self, rows: WindowRows[TokenisedTexts]) -> LabelledBatch:
        tokens, segments, positions = np.zeros((3, self.rows, self.length), np.int64)
        labels = np.full((self.rows, self.length), LabelledBatch.nothing, np.int64)
        for samples, where in placements(rows):
            lengths = self.lengths(samples)
            starts = where.mark(lengths, segments, positions)
            ends = starts + lengths - 1
            flat(tokens)[spread(starts + 1, samples.texts.lengths)] = samples.texts.ids
            flat(tokens)[starts] = START
            flat(tokens)[ends] = END
            flat(labels)[ends if self.at_end else starts] = samples.classes
        return LabelledBatch(*(torch.from_numpy(array) for array in (labels, tokens, segments, positions)))


class LabelledStream(PackedStream[TokenisedTexts, LabelledBatch]):
    """Texts longer than `max_length` tokens keep their beginning."""

    def __init__(self, texts: TokenisedTexts, shape: LabelledRows, seed: int, max_length: int):
        super().__init__(np.arange(len(texts), dtype=np.int32), shape, seed)
        self.texts, self.max_length = texts, max_length

    def take(self, numbers: NDArray[np.int64], generator: np.random.Generator) -> TokenisedTexts:
        return shortened(self.texts.take(numbers), self.max_length)


def in_order(
    texts: TokenisedTexts, shape: LabelledRows, max_length: int
) -> Iterator[tuple[LabelledBatch, NDArray[np.int64]]]:
    """Every text once; with each batch the numbers of its texts, as their labels stand row by row."""
    return packed.in_order(texts, shape, lambda part: shortened(part, max_length))


def shortened(texts: TokenisedTexts, max_length: int) -> TokenisedTexts:
    """Each text cut so that it takes at most `max_length` positions with <start> and <end>."""
    return TokenisedTexts(texts.texts.cut(max_length - FRAME), texts.classes)
