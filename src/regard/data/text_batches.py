"""Batches of running text: rows cut from one long sequence of ids.

An epoch cuts the text into rows at a random offset and takes them in a random order; both follow from
(seed, epoch). The next token is the label of each. Where documents begin with <start>, their first token is predicted
from that alone.

Shapes: B rows · T positions
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.stream import AnyBatch, Part, Stream
from regard.data.tokenizers import END, PAD, SPECIALS, START
from regard.errors import RegardError

Starts = NDArray[np.int64]  # where rows begin in the text

COUNTED_AT_ONCE = 1 << 24  # tokens


@dataclass(frozen=True)
class TextBatch(Batch):
    """The label of each token is the one after it: [B, T]."""

    tokens_BT: Tensor


class TextStream(Stream[Starts, AnyBatch]):
    """Rows of one long text."""

    def __init__(self, ids: NDArray[Any], rows: int, length: int, seed: int):
        self.ids, self.rows, self.length, self.seed = ids, rows, length, seed
        # The offset may take up to a row away, and the last token has none after it.
        self.rows_in_epoch = (len(ids) - 1) // length - 1
        if self.rows_in_epoch < 1:
            raise RegardError(
                "There is too little text to train on.",
                f"{len(ids):,} tokens do not fill two rows of {length}.",
                "Add text, or lower training.row_length.",
            )

    def open(self, epoch: int, window: int) -> Starts:
        generator = np.random.default_rng([self.seed, epoch])
        offset = int(generator.integers(self.length))
        return generator.permutation(self.rows_in_epoch) * self.length + offset

    def collate(self, parts: list[Part[Starts]]) -> AnyBatch:
        starts = np.concatenate([part.window[part.slice] for part in parts])
        return self.batch(starts, parts[-1].epoch, parts[-1].rows[-1])

    @abstractmethod
    def batch(self, starts: Starts, epoch: int, last: int) -> AnyBatch:
        """The rows that begin there; the last of them is the row `last` of its epoch."""


class NextTokenStream(TextStream[TextBatch]):
    def batch(self, starts: Starts, epoch: int, last: int) -> TextBatch:
        return next_tokens(self.ids, starts, self.length)


def in_order(ids: NDArray[Any], rows: int, length: int) -> Iterator[TextBatch]:
    """Every token but the first predicted once, each row on its own: for validation."""
    starts = np.arange(0, len(ids) - 1, length)
    for first in range(0, len(starts), rows):
        yield next_tokens(ids, starts[first : first + rows], length)


def next_tokens(ids: NDArray[Any], starts: Starts, length: int) -> TextBatch:
    """Rows of tokens, and for each the token after it; but that a document begins is nothing to predict."""
    tokens = torch.from_numpy(cut_rows(ids, starts, length + 1))
    labels_BT = tokens[:, 1:].masked_fill(tokens[:, 1:] == START, PAD)
    return TextBatch(labels=labels_BT, tokens_BT=tokens[:, :-1].contiguous())


def cut_rows(ids: NDArray[Any], starts: Starts, length: int) -> NDArray[np.int64]:
    """Rows of the text, [B, T]; what lies beyond its end is padding."""
    at_BT = starts[:, None] + np.arange(length)
    inside_BT = at_BT < len(ids)
    return np.where(inside_BT, ids[np.where(inside_BT, at_BT, 0)].astype(np.int64), PAD)


def documents(tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Segments and positions of rows in which <end> closes each document: both [B, T]."""
    after_end = torch.zeros_like(tokens_BT)
    after_end[:, 1:] = (tokens_BT[:, :-1] == END).long()
    segments_BT = (after_end.cumsum(1) + 1) * (tokens_BT != PAD)
    columns_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
    starts_BT = torch.where(after_end.bool(), columns_BT, 0).cummax(1).values
    return segments_BT, columns_BT - starts_BT


def unseen_tokens(ids: NDArray[Any], vocabulary: int) -> list[int]:
    """The ordinary tokens that do not occur, such as bytes that no character needed."""
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, len(ids), COUNTED_AT_ONCE):
        counts += np.bincount(ids[start : start + COUNTED_AT_ONCE], minlength=vocabulary)
    return [int(token) for token in np.flatnonzero(counts == 0) if token >= len(SPECIALS)]
