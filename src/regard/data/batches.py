"""Batches: fixed rectangles of tokens, in an order that is a pure function of (seed, epoch, position).

An epoch is one permutation of the pairs, cut into windows; each window is packed into rows, and the rows
of all windows and epochs form one endless stream, of which an update takes the next R. The whole state of
the data is three integers, `DataState`.

Shapes: B rows · S source positions · T target positions
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.bpe_dropout import BpeDropout
from regard.data.packing import Rows, pack
from regard.data.shards import PairShards, Ragged, spread
from regard.data.tokenizers import END, PAD, START
from regard.errors import RegardError

WINDOW = 8_192  # pairs packed together


@dataclass(frozen=True)
class PairBatch:
    """Rows of packed pairs. Segment 0 and label <pad> mark positions that hold nothing."""

    source_BS: Tensor
    source_segments_BS: Tensor
    source_positions_BS: Tensor
    target_BT: Tensor  # <start> and the sentence
    labels_BT: Tensor  # the sentence and <end>: what each target position is to predict
    target_segments_BT: Tensor
    target_positions_BT: Tensor

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(*(tensor.to(device, non_blocking=True) for tensor in self.tensors()))

    def pin_memory(self) -> PairBatch:
        return PairBatch(*(tensor.pin_memory() for tensor in self.tensors()))

    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def split(self, pieces: int) -> list[PairBatch]:
        """The same rows as several smaller batches."""
        return [PairBatch(*parts) for parts in zip(*(t.tensor_split(pieces) for t in self.tensors()), strict=True)]

    @property
    def targets(self) -> int:
        """How many real tokens are to be predicted."""
        return int((self.labels_BT != PAD).sum())

    @property
    def padding(self) -> float:
        """Share of positions, of both sides, that hold nothing."""
        segments = (self.source_segments_BS, self.target_segments_BT)
        return sum(int((s == 0).sum()) for s in segments) / sum(s.numel() for s in segments)


@dataclass(frozen=True)
class DataState:
    """How far the stream has been read."""

    epoch: int = 0
    window: int = 0
    row: int = 0


@dataclass(frozen=True)
class Rectangle:
    """The constant shape of a batch."""

    rows: int
    source_length: int
    target_length: int

    @classmethod
    def fitting(cls, shards: PairShards, tokens_per_batch: int, row_length: int, max_length: int) -> Rectangle:
        """Target rows of `row_length`; source rows longer or shorter as the corpus is, so both fill alike."""
        # + 1: every sentence ends with <end>.
        source, target = (side.offsets[-1] + len(side) for side in (shards.source, shards.target))
        source_length = int(-(-row_length * int(source) // int(target)))
        source_length = min(max(-(-source_length // 8) * 8, max_length), 4 * row_length)
        return cls(tokens_per_batch // row_length, source_length, row_length)


class PairStream:
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
        self.seed, self.max_length, self.dropout = seed, max_length, dropout
        self._epoch_and_order: tuple[int, NDArray[np.int32]] | None = None
        try:
            fill([], rectangle)  # now, and not after an hour of gathering rows
        except MemoryError:
            raise RegardError(
                f"A batch of {rectangle.rows:,} rows of {rectangle.target_length} tokens does not fit into memory.",
                "training.tokens_per_batch is far too large for this machine.",
                "Lower training.tokens_per_batch; training.micro_batches helps only with smaller excess.",
            ) from None
        fits = (shards.source.lengths < max_length) & (shards.target.lengths < max_length)
        self.usable = np.flatnonzero(fits).astype(np.int32)
        self.too_long = len(shards) - len(self.usable)
        if not len(self.usable):
            raise RegardError(
                "There is nothing to train on.",
                f"Of {len(shards):,} pairs with text on both sides, none is shorter than {max_length} tokens.",
                "Check the training files, or raise data.max_length and training.row_length.",
            )

    def batches(self, state: DataState) -> Iterator[tuple[PairBatch, DataState]]:
        """Each batch with the state after it."""
        rows: list[tuple[PairShards, list[int]]] = []
        while True:
            pairs, packed = self._window(state.epoch, state.window)
            for index in range(state.row, len(packed)):
                rows.append((pairs, packed[index]))
                if len(rows) == self.rectangle.rows:
                    yield fill(rows, self.rectangle), replace(state, row=index + 1)
                    rows = []
            last = (state.window + 1) * WINDOW >= len(self.usable)
            state = DataState(state.epoch + 1) if last else DataState(state.epoch, state.window + 1)

    def _window(self, epoch: int, window: int) -> tuple[PairShards, Rows]:
        """The pairs of one window, and the rows they are laid into."""
        chosen = self._order(epoch)[window * WINDOW : (window + 1) * WINDOW].astype(np.int64)
        pairs = PairShards(self.shards.source.take(chosen), self.shards.target.take(chosen))
        generator = np.random.default_rng([self.seed, epoch, window])
        if self.dropout:
            source, target = (
                drop.apply(side, generator)
                for drop, side in zip(self.dropout, (pairs.source, pairs.target), strict=True)
            )
            cut = PairShards(source, target)
            # A pair that grew too long for a row stays as it was.
            pairs = _where((source.lengths < self.max_length) & (target.lengths < self.max_length), cut, pairs)
        packed = _pack(pairs, self.rectangle)
        # The last rows packed are the emptiest; spread them over the window.
        return pairs, [packed[index] for index in generator.permutation(len(packed))]

    def _order(self, epoch: int) -> NDArray[np.int32]:
        """The permutation of an epoch; the last one is kept, since its windows are asked for in turn."""
        if self._epoch_and_order is None or self._epoch_and_order[0] != epoch:
            self._epoch_and_order = (epoch, np.random.default_rng([self.seed, epoch]).permutation(self.usable))
        return self._epoch_and_order[1]


def in_order(shards: PairShards, rectangle: Rectangle) -> Iterator[PairBatch]:
    """Every pair once, packed: for validation. Pairs longer than a row are cut to it."""
    limit = (rectangle.source_length - 1, rectangle.target_length - 1)
    for start in range(0, len(shards), WINDOW):
        chosen = np.arange(start, min(start + WINDOW, len(shards)))
        pairs = PairShards(
            *(_cut(side.take(chosen), most) for side, most in zip((shards.source, shards.target), limit, strict=True))
        )
        packed = _pack(pairs, rectangle)
        for first in range(0, len(packed), rectangle.rows):
            yield fill([(pairs, row) for row in packed[first : first + rectangle.rows]], rectangle)


def fill(rows: list[tuple[PairShards, list[int]]], rectangle: Rectangle) -> PairBatch:
    """Write the sentences of each row into a rectangle. Rows that are missing stay empty."""
    source = _Side(rectangle.rows, rectangle.source_length)
    target = _Side(rectangle.rows, rectangle.target_length)
    for pairs, chosen in _by_window(rows):
        sentences = np.array([pair for _, row in chosen for pair in row], np.int64)
        row_of = np.array([place for place, row in chosen for _ in row], np.int64)
        segment_of = np.array([number for _, row in chosen for number in range(1, len(row) + 1)], np.int64)
        source.write(pairs.source.take(sentences), row_of, segment_of)
        target.write(pairs.target.take(sentences), row_of, segment_of)
    to_tensor = torch.from_numpy
    return PairBatch(
        to_tensor(source.with_end),
        to_tensor(source.segments),
        to_tensor(source.positions),
        to_tensor(target.with_start),
        to_tensor(target.with_end),
        to_tensor(target.segments),
        to_tensor(target.positions),
    )


class _Side:
    """One side of a batch, as flat arrays seen as [rows, length]."""

    def __init__(self, rows: int, length: int):
        self.with_start, self.with_end, self.segments, self.positions = np.zeros((4, rows, length), np.int64)

    def write(self, sentences: Ragged, row_of: NDArray[np.int64], segment_of: NDArray[np.int64]) -> None:
        """Each sentence takes its length + 1 positions, for <start> before it or <end> after it."""
        takes = sentences.lengths + 1
        # Where in its row each sentence starts: the sum of those before it in the same row.
        ends = np.cumsum(takes)
        first_of_row = np.flatnonzero(segment_of == 1)
        row_starts = np.repeat(ends[first_of_row] - takes[first_of_row], np.diff(np.append(first_of_row, len(takes))))
        starts = row_of * self.segments.shape[1] + ends - takes - row_starts
        places = spread(starts, takes)
        self.segments.reshape(-1)[places] = np.repeat(segment_of, takes)
        self.positions.reshape(-1)[places] = spread(np.zeros_like(takes), takes)
        words = spread(starts, sentences.lengths)
        self.with_end.reshape(-1)[words] = sentences.ids
        self.with_end.reshape(-1)[starts + takes - 1] = END
        self.with_start.reshape(-1)[words + 1] = sentences.ids
        self.with_start.reshape(-1)[starts] = START


def _by_window(
    rows: list[tuple[PairShards, list[int]]],
) -> Iterator[tuple[PairShards, list[tuple[int, list[int]]]]]:
    """Rows of a batch grouped by the window they come from (a batch may straddle two)."""
    groups: dict[int, tuple[PairShards, list[tuple[int, list[int]]]]] = {}
    for place, (pairs, row) in enumerate(rows):
        groups.setdefault(id(pairs), (pairs, []))[1].append((place, row))
    yield from groups.values()


def _pack(pairs: PairShards, rectangle: Rectangle) -> Rows:
    room = (rectangle.source_length, rectangle.target_length)
    return pack(pairs.source.lengths + 1, pairs.target.lengths + 1, room)


def _cut(sentences: Ragged, most: int) -> Ragged:
    lengths = np.minimum(sentences.lengths, most)
    return Ragged(sentences.ids[spread(sentences.offsets[:-1], lengths)], np.concatenate([[0], np.cumsum(lengths)]))


def _where(condition: NDArray[np.bool_], yes: PairShards, no: PairShards) -> PairShards:
    """For each pair, the one of two versions."""
    count = len(yes)
    rows = np.where(condition, np.arange(count), count + np.arange(count))

    def choose(left: Ragged, right: Ragged) -> Ragged:
        both = np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]])
        return Ragged(np.concatenate([left.ids, right.ids]), both).take(rows)

    return PairShards(choose(yes.source, no.source), choose(yes.target, no.target))
