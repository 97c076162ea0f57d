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

from regard.data import packed_stream
from regard.data.batch import Batch
from regard.data.bpe_dropout import BpeDropout
from regard.data.packed_stream import PackedStream, RowOf, by_window, laid_out, places_in_rows
from regard.data.packing import Rows, of_like_length, pack, rows_of_length
from regard.data.shards import PairShards, Ragged, cut, spread
from regard.data.tokenizers import END, START
from regard.errors import RegardError


@dataclass(frozen=True)
class PairBatch(Batch):
    """Rows of packed pairs. The labels are the sentence and <end>; segment 0 marks padding."""

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
class Rectangle:
    """The constant shape of a batch; or, with one pair a row, the largest of its shapes."""

    rows: int
    source_length: int
    target_length: int
    apart: bool = False

    @classmethod
    def fitting(
        cls, shards: PairShards, tokens_per_batch: int, row_length: int, max_length: int, apart: bool = False
    ) -> Rectangle:
        """Target rows of `row_length`; source rows longer or shorter as the corpus is, so both fill alike."""
        if apart:
            return cls(tokens_per_batch // row_length, row_length, row_length, apart)
        # + 1: every sentence ends with <end>.
        source, target = (side.offsets[-1] + len(side) for side in (shards.source, shards.target))
        source_length = int(-(-row_length * int(source) // int(target)))
        source_length = min(max(-(-source_length // 8) * 8, max_length), 4 * row_length)
        return cls(tokens_per_batch // row_length, source_length, row_length)

    @property
    def positions(self) -> int:
        return self.rows * self.target_length

    def of_length(self, length: int) -> Rectangle:
        """As many positions in rows of another length."""
        return Rectangle(rows_of_length(length, self.positions), length, length, self.apart)


class PairStream(PackedStream[PairShards, PairBatch]):
    """The endless stream of training batches, from any state on."""

    def __init__(
        self,
        shards: PairShards,
        rectangle: Rectangle,
        seed: int,
        max_length: int,
        dropout: tuple[BpeDropout, BpeDropout] | None = None,
    ):
        self.shards, self.rectangle = shards, rectangle
        self.max_length, self.dropout = max_length, dropout
        try:
            fill([], rectangle)  # now, and not after an hour of gathering rows
        except MemoryError:
            raise RegardError(
                f"A batch of {rectangle.rows:,} rows of {rectangle.target_length} tokens does not fit into memory.",
                "training.tokens_per_batch is far too large for this machine.",
                "Lower training.tokens_per_batch; training.micro_batches helps only with smaller excess.",
            ) from None
        fits = (shards.source.lengths < max_length) & (shards.target.lengths < max_length)
        apart = rectangle.positions if rectangle.apart else 0
        super().__init__(np.flatnonzero(fits).astype(np.int32), rectangle.rows, seed, apart)
        self.too_long = len(shards) - len(self.usable)
        if not len(self.usable):
            raise RegardError(
                "There is nothing to train on.",
                f"Of {len(shards):,} pairs with text on both sides, none is shorter than {max_length} tokens.",
                "Check the training files, or raise data.max_length and training.row_length.",
            )

    def take(self, chosen: NDArray[np.int64], generator: np.random.Generator) -> PairShards:
        pairs = PairShards(self.shards.source.take(chosen), self.shards.target.take(chosen))
        if self.dropout:
            source, target = (
                drop.apply(side, generator)
                for drop, side in zip(self.dropout, (pairs.source, pairs.target), strict=True)
            )
            cut = PairShards(source, target)
            # A pair that grew too long for a row stays as it was.
            pairs = _where((source.lengths < self.max_length) & (target.lengths < self.max_length), cut, pairs)
        return pairs

    def lengths(self, samples: PairShards) -> NDArray[np.int64]:
        return _lengths(samples)

    def pack(self, samples: PairShards) -> Rows:
        return _pack(samples, self.rectangle)

    def fill(self, rows: list[RowOf[PairShards]], length: int = 0) -> PairBatch:
        return fill(rows, self.rectangle.of_length(length) if length else self.rectangle)


def in_order(shards: PairShards, rectangle: Rectangle) -> Iterator[PairBatch]:
    """Every pair once: for validation. Pairs longer than a row are cut to it."""
    limit = (rectangle.source_length - 1, rectangle.target_length - 1)
    for start in range(0, len(shards), packed_stream.WINDOW):
        chosen = np.arange(start, min(start + packed_stream.WINDOW, len(shards)))
        pairs = PairShards(
            *(cut(side.take(chosen), most) for side, most in zip((shards.source, shards.target), limit, strict=True))
        )
        if rectangle.apart:
            for length, chosen_here in of_like_length(_lengths(pairs), rectangle.positions):
                yield fill([(pairs, [pair]) for pair in chosen_here], rectangle.of_length(length))
            continue
        packed = _pack(pairs, rectangle)
        for first in range(0, len(packed), rectangle.rows):
            yield fill([(pairs, row) for row in packed[first : first + rectangle.rows]], rectangle)


def fill(rows: list[RowOf[PairShards]], rectangle: Rectangle) -> PairBatch:
    """Write the sentences of each row into a rectangle. Rows that are missing stay empty."""
    source = _Side(rectangle.rows, rectangle.source_length)
    target = _Side(rectangle.rows, rectangle.target_length)
    for pairs, chosen in by_window(rows):
        sentences, row_of, segment_of = laid_out(chosen)
        source.write(pairs.source.take(sentences), row_of, segment_of)
        target.write(pairs.target.take(sentences), row_of, segment_of)
    to_tensor = torch.from_numpy
    return PairBatch(
        labels_BT=to_tensor(target.with_end),
        target_BT=to_tensor(target.with_start),
        target_segments_BT=to_tensor(target.segments),
        target_positions_BT=to_tensor(target.positions),
        source_BS=to_tensor(source.with_end),
        source_segments_BS=to_tensor(source.segments),
        source_positions_BS=to_tensor(source.positions),
    )


class _Side:
    """One side of a batch, as flat arrays seen as [rows, length]."""

    def __init__(self, rows: int, length: int):
        self.with_start, self.with_end, self.segments, self.positions = np.zeros((4, rows, length), np.int64)

    def write(self, sentences: Ragged, row_of: NDArray[np.int64], segment_of: NDArray[np.int64]) -> None:
        """Each sentence takes its length + 1 positions, for <start> before it or <end> after it."""
        takes = sentences.lengths + 1
        starts = places_in_rows(takes, row_of, segment_of, self.segments.shape[1])
        places = spread(starts, takes)
        self.segments.reshape(-1)[places] = np.repeat(segment_of, takes)
        self.positions.reshape(-1)[places] = spread(np.zeros_like(takes), takes)
        words = spread(starts, sentences.lengths)
        self.with_end.reshape(-1)[words] = sentences.ids
        self.with_end.reshape(-1)[starts + takes - 1] = END
        self.with_start.reshape(-1)[words + 1] = sentences.ids
        self.with_start.reshape(-1)[starts] = START


def _lengths(pairs: PairShards) -> NDArray[np.int64]:
    """Of the longer side of each pair, with <start> or <end>."""
    return np.maximum(pairs.source.lengths, pairs.target.lengths) + 1


def _pack(pairs: PairShards, rectangle: Rectangle) -> Rows:
    room = (rectangle.source_length, rectangle.target_length)
    return pack(pairs.source.lengths + 1, pairs.target.lengths + 1, room)


def _where(condition: NDArray[np.bool_], yes: PairShards, no: PairShards) -> PairShards:
    """For each pair, the one of two versions."""
    count = len(yes)
    rows = np.where(condition, np.arange(count), count + np.arange(count))

    def choose(left: Ragged, right: Ragged) -> Ragged:
        both = np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]])
        return Ragged(np.concatenate([left.ids, right.ids]), both).take(rows)

    return PairShards(choose(yes.source, no.source), choose(yes.target, no.target))
