"""Batches of sentence pairs: fixed rectangles of tokens, several pairs to a row.

Shapes: B rows · S source positions · T target positions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data import packed
from regard.data.batch import Batch
from regard.data.bpe_dropout import BpeDropout
from regard.data.packed import PackedShape, PackedStream, WindowRows, placements
from regard.data.packing import Rows, pack, rows_of_length
from regard.data.ragged import Ragged
from regard.data.side import Side, places
from regard.data.tokenised import TokenisedPairs
from regard.data.tokenizers import END
from regard.errors import RegardError

ENDLESS = 1 << 30  # positions


@dataclass(frozen=True)
class PairBatch(Batch):
    """Rows of packed pairs. The labels [B, T] are the sentence and <end>; segment 0 marks padding."""

    target_BT: Tensor  # <start> and the sentence
    target_segments_BT: Tensor
    target_positions_BT: Tensor
    source_BS: Tensor
    source_segments_BS: Tensor
    source_positions_BS: Tensor

    @property
    def padding(self) -> float:
        """Share of positions, of both sides, that hold nothing."""
        segments = (self.source_segments_BS, self.target_segments_BT)
        return sum(int((s == 0).sum()) for s in segments) / sum(s.numel() for s in segments)


@dataclass(frozen=True)
class Rectangle(PackedShape[TokenisedPairs, PairBatch]):
    """The constant shape of a batch; or, with one pair per row, the largest of its shapes."""

    rows: int
    source_length: int
    target_length: int
    apart: bool = False

    @classmethod
    def fitting(
        cls, pairs: TokenisedPairs, tokens_per_batch: int, row_length: int, max_length: int, apart: bool = False
    ) -> Rectangle:
        """Target rows of `row_length`; source rows longer or shorter as the corpus is, so both fill alike."""
        if apart:
            row_length = max(row_length, max_length)
            return cls(max(1, tokens_per_batch // row_length), row_length, row_length, apart)
        # + 1: every sentence ends with <end>.
        source, target = (side.offsets[-1] + len(side) for side in (pairs.source, pairs.target))
        source_length = int(-(-row_length * int(source) // int(target)))
        source_length = min(max(-(-source_length // 8) * 8, max_length), max(4 * row_length, max_length))
        return cls(tokens_per_batch // row_length, source_length, row_length)

    @property
    def positions(self) -> int:
        return self.rows * self.target_length

    def of_length(self, length: int) -> Rectangle:
        return Rectangle(rows_of_length(length, self.positions), length, length, self.apart)

    def lengths(self, samples: TokenisedPairs) -> NDArray[np.int64]:
        """Of the longer side of each pair, with <start> or <end>."""
        return np.maximum(places(samples.source), places(samples.target))

    def pack(self, samples: TokenisedPairs) -> Rows:
        room = (self.source_length, self.target_length)
        return pack(places(samples.source), places(samples.target), room)

    def fill(self, rows: WindowRows[TokenisedPairs]) -> PairBatch:
        source, target = Side(self.rows, self.source_length), Side(self.rows, self.target_length)
        for pairs, where in placements(rows):
            source.write(pairs.source, where)
            target.write(pairs.target, where)
        arrays = (
            target.with_end,
            target.with_start,
            target.segments,
            target.positions,
            source.with_end,
            source.segments,
            source.positions,
        )
        return PairBatch(*(torch.from_numpy(array) for array in arrays))


class PairStream(PackedStream[TokenisedPairs, PairBatch]):
    """Pairs with `max_length` tokens or more on a side are left out. `max_target`: of the target, where it differs."""

    def __init__(
        self,
        pairs: TokenisedPairs,
        rectangle: Rectangle,
        seed: int,
        max_length: int,
        dropout: tuple[BpeDropout, BpeDropout] | None = None,
        max_target: int = 0,
    ):
        self.pairs, self.max_length, self.dropout = pairs, max_length, dropout
        self.max_target = max_target or max_length
        try:
            rectangle.fill([])  # now, and not after an hour of gathering rows
        except MemoryError:
            raise RegardError(
                f"A batch of {rectangle.rows:,} rows of {rectangle.target_length} tokens does not fit into memory.",
                "training.tokens_per_batch is far too large for this machine.",
                "Lower training.tokens_per_batch; training.micro_batches helps only with smaller excess.",
            ) from None
        super().__init__(np.flatnonzero(self._fits(pairs)).astype(np.int32), rectangle, seed)
        self.too_long = len(pairs) - len(self.usable)
        if not len(self.usable):
            raise RegardError(
                "There is nothing to train on.",
                f"Of {len(pairs):,} pairs with text on both sides, none is shorter than {max_length} tokens.",
                "Check the training files, or raise data.max_length and training.row_length.",
            )

    def take(self, numbers: NDArray[np.int64], generator: np.random.Generator) -> TokenisedPairs:
        pairs = self.pairs.take(numbers)
        if self.dropout is None:
            return pairs
        on_source, on_target = self.dropout
        dropped = TokenisedPairs(on_source.apply(pairs.source, generator), on_target.apply(pairs.target, generator))
        # A pair that grew too long for a row stays as it was.
        return _where(self._fits(dropped), dropped, pairs)

    def _fits(self, pairs: TokenisedPairs) -> NDArray[np.bool_]:
        return (pairs.source.lengths < self.max_length) & (pairs.target.lengths < self.max_target)


def in_order(pairs: TokenisedPairs, rectangle: Rectangle, most: int = ENDLESS) -> Iterator[PairBatch]:
    """Every pair once: for validation. `most`: the positions that the model has.

    A sentence longer than a row, or than the model's positions, fills them and has no <end> there: it goes on.
    """

    source, target = _room(rectangle, most)

    def shorten(part: TokenisedPairs) -> TokenisedPairs:
        return TokenisedPairs(part.source.fitted(source), part.target.fitted(target))

    return (batch for batch, _ in packed.in_order(pairs, rectangle, shorten))


def cut_off(pairs: TokenisedPairs, rectangle: Rectangle, most: int = ENDLESS) -> int:
    """How many pairs `in_order` cannot hold to their end."""
    source, target = _room(rectangle, most)
    return int(((pairs.source.lengths >= source) | (pairs.target.lengths >= target)).sum())


def made_up_pairs(rows: int, length: int) -> PairBatch:
    """Rows of this length, on both sides, each of two sentences of the same token."""
    positions_BT = torch.arange(length).expand(rows, length).contiguous()
    tokens_BT, segments_BT = torch.full_like(positions_BT, END), 1 + 2 * positions_BT // length
    side = (tokens_BT, segments_BT, positions_BT)
    return PairBatch(tokens_BT, *side, *side)


def _room(rectangle: Rectangle, most: int) -> tuple[int, int]:
    return min(rectangle.source_length, most), min(rectangle.target_length, most)


def _where(condition: NDArray[np.bool_], yes: TokenisedPairs, no: TokenisedPairs) -> TokenisedPairs:
    """For each pair, one of two versions."""
    count = len(yes)
    rows = np.where(condition, np.arange(count), count + np.arange(count))

    def choose(left: Ragged, right: Ragged) -> Ragged:
        both = np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]])
        return Ragged(np.concatenate([left.ids, right.ids]), both).take(rows)

    return TokenisedPairs(choose(yes.source, no.source), choose(yes.target, no.target))
