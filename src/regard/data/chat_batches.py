"""Batches of conversations: several to a row, of which only some turns are to be predicted.

    <start> <them> Hello! <end> <us> Hi. <end> <them> …        with labels:   –  –  –  –  Hi . <end>  –  –  …

<us> and <them> are the two entries after the vocabulary. A conversation longer than the context is cut between turns
into several pieces, each with a <start> of its own; of a turn that is longer alone, the beginning is kept.

Shapes: B rows · T positions
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data import packed
from regard.data.batch import Batch
from regard.data.conversations import Conversation
from regard.data.packed import PackedShape, PackedStream, WindowRows, flat, placements
from regard.data.packing import Rows, pack, rows_of_length
from regard.data.ragged import Ragged, spread
from regard.data.tokenizers import END, PAD, START, TextTokenizer

TURN_TOKENS = 2  # <us> and <them>
ENCODED_TOGETHER = 2_000  # conversations


@dataclass(frozen=True)
class Talk:
    """Pieces of conversations: their ids, from <start> on, and which of them are to be predicted (0 or 1)."""

    ids: Ragged
    learned: Ragged

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Talk:
        return Talk(self.ids.take(rows), self.learned.take(rows))


def us_and_them(tokenizer: TextTokenizer) -> tuple[int, int]:
    return tokenizer.size, tokenizer.size + 1


def turn_ids(text_ids: Sequence[int], ours: bool, tokenizer: TextTokenizer) -> list[int]:
    """A turn with its marks."""
    us, them = us_and_them(tokenizer)
    return [us if ours else them, *text_ids, END]


@dataclass
class Cut:
    """How many conversations and turns were too long."""

    conversations: int = 0
    turns: int = 0


def encoded(conversations: Iterable[Conversation], tokenizer: TextTokenizer, context: int, cut: Cut) -> Talk:
    """Every conversation in pieces of at most `context` tokens, cut between turns."""
    pieces: list[list[int]] = []
    marks: list[list[int]] = []
    waiting = iter(conversations)
    while some := list(itertools.islice(waiting, ENCODED_TOGETHER)):
        texts = iter(tokenizer.encode([turn.text for conversation in some for turn in conversation]))
        for conversation in some:
            piece, mark, first = [START], [0], len(pieces)
            for turn in conversation:
                ids = turn_ids(next(texts), turn.ours, tokenizer)
                if len(ids) >= context:
                    ids = ids[: context - 1]
                    cut.turns += 1
                if len(piece) + len(ids) > context:
                    pieces.append(piece)
                    marks.append(mark)
                    piece, mark = [START], [0]
                piece += ids
                mark += [0, *[int(turn.learned)] * (len(ids) - 1)]  # who speaks is not predicted
            pieces.append(piece)
            marks.append(mark)
            cut.conversations += len(pieces) - first > 1
    # A piece in which there is nothing to learn takes room for nothing.
    useful = [number for number, mark in enumerate(marks) if any(mark)]
    return Talk(*(Ragged.from_lists([rows[number] for number in useful]) for rows in (pieces, marks)))


@dataclass(frozen=True)
class ChatBatch(Batch):
    """Labels [B, T] are the next tokens of the turns that are learned; segment 0 marks padding."""

    tokens_BT: Tensor
    segments_BT: Tensor
    positions_BT: Tensor


@dataclass(frozen=True)
class ChatRows(PackedShape[Talk, ChatBatch]):
    """The constant shape of a batch."""

    rows: int
    length: int
    apart: bool = False  # one piece per row, in shapes of several lengths

    @property
    def positions(self) -> int:
        return self.rows * self.length

    def of_length(self, length: int) -> ChatRows:
        return replace(self, rows=rows_of_length(length, self.positions), length=length)

    def lengths(self, samples: Talk) -> NDArray[np.int64]:
        return samples.ids.lengths

    def pack(self, samples: Talk) -> Rows:
        lengths = self.lengths(samples)
        return pack(lengths, lengths, (self.length, self.length))

    def fill(self, rows: WindowRows[Talk]) -> ChatBatch:
        tokens, segments, positions, labels = np.zeros((4, self.rows, self.length), np.int64)
        for samples, where in placements(rows):
            lengths = self.lengths(samples)
            starts = where.mark(lengths, segments, positions)
            flat(tokens)[spread(starts, lengths)] = samples.ids.ids
            # The label of each token is the one after it; the last has none.
            after = spread(samples.ids.offsets[:-1] + 1, lengths - 1)
            next_ids = np.where(samples.learned.ids[after] > 0, samples.ids.ids[after], PAD)
            flat(labels)[spread(starts, lengths - 1)] = next_ids
        return ChatBatch(*(torch.from_numpy(array) for array in (labels, tokens, segments, positions)))


class ChatStream(PackedStream[Talk, ChatBatch]):
    def __init__(self, talk: Talk, shape: ChatRows, seed: int):
        super().__init__(np.arange(len(talk), dtype=np.int32), shape, seed)
        self.talk = talk

    def take(self, numbers: NDArray[np.int64], generator: np.random.Generator) -> Talk:
        return self.talk.take(numbers)


def in_order(talk: Talk, shape: ChatRows) -> Iterator[ChatBatch]:
    """Every piece once: for validation."""
    return (batch for batch, _ in packed.in_order(talk, shape, lambda part: part))
