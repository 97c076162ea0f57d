"""Batches of running text: rows cut from one long sequence of ids.

An epoch cuts the text into rows at a random offset and takes them in a random order; both follow from
(seed, epoch). The next token is the label of each.

Shapes: B rows · T positions
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch, DataState
from regard.data.tokenizers import END, PAD
from regard.errors import RegardError

AnyBatch = TypeVar("AnyBatch", bound=Batch)


@dataclass(frozen=True)
class TextBatch(Batch):
    """The label of each token is the one after it."""

    tokens_BT: Tensor


class TextStream(ABC, Generic[AnyBatch]):
    """The endless stream of training batches, from any state on."""

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

    @abstractmethod
    def batch(self, starts: list[int], epoch: int, place: int) -> AnyBatch:
        """The rows that start there; (epoch, place) is where in the stream the batch ends."""

    def batches(self, state: DataState) -> Iterator[tuple[AnyBatch, DataState]]:
        """Each batch with the state after it."""
        starts: list[int] = []
        epoch, row = state.epoch, state.row
        while True:
            order = self._starts(epoch)
            for place in range(row, len(order)):
                starts.append(int(order[place]))
                if len(starts) == self.rows:
                    yield self.batch(starts, epoch, place), DataState(epoch, 0, place + 1)
                    starts = []
            epoch, row = epoch + 1, 0

    def _starts(self, epoch: int) -> NDArray[np.int64]:
        generator = np.random.default_rng([self.seed, epoch])
        offset = int(generator.integers(self.length))
        return generator.permutation(self.rows_in_epoch) * self.length + offset


class NextTokenStream(TextStream[TextBatch]):
    def batch(self, starts: list[int], epoch: int, place: int) -> TextBatch:
        return next_tokens(self.ids, starts, self.length)


def in_order(ids: NDArray[Any], rows: int, length: int) -> Iterator[TextBatch]:
    """Every token but the first predicted once, each row on its own: for validation."""
    starts = list(range(0, len(ids) - 1, length))
    for first in range(0, len(starts), rows):
        yield next_tokens(ids, starts[first : first + rows], length)


def next_tokens(ids: NDArray[Any], starts: list[int], length: int) -> TextBatch:
    """Rows of tokens, and for each the token after it."""
    tokens = torch.from_numpy(rows_of(ids, starts, length + 1))
    return TextBatch(labels_BT=tokens[:, 1:].contiguous(), tokens_BT=tokens[:, :-1].contiguous())


def rows_of(ids: NDArray[Any], starts: list[int], length: int) -> NDArray[np.int64]:
    """The rows that begin at these places; what lies beyond the end of the text is padding."""
    places = np.array(starts)[:, None] + np.arange(length)
    inside = places < len(ids)
    return np.where(inside, ids[np.where(inside, places, 0)].astype(np.int64), PAD)


def documents(tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Segments and positions of rows in which <end> closes each document: both [B, T]."""
    after_end = torch.zeros_like(tokens_BT)
    after_end[:, 1:] = (tokens_BT[:, :-1] == END).long()
    segments_BT = (after_end.cumsum(1) + 1) * (tokens_BT != PAD)
    places_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
    starts_BT = torch.where(after_end.bool(), places_BT, 0).cummax(1).values
    return segments_BT, places_BT - starts_BT
