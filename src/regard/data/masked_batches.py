"""Batches for masked language models: rows of text in which some tokens are hidden.

    of the tokens chosen, most become <mask>, some another token, some stay as they are     (Devlin et al., 2019)

Which tokens are hidden follows from (seed, epoch, position), so every pass over the text hides others
(RoBERTa's dynamic masking). Every row has the same number of them: shapes never change.

Shapes: B rows · T positions · M chosen positions of a row
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import Batch
from regard.data.text_batches import Starts, TextStream, cut_rows
from regard.data.tokenizers import PAD, SPECIALS
from regard.settings import MaskingSettings


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """The labels [B, M] are the tokens that stood at `positions`."""

    tokens_BT: Tensor
    positions_BM: Tensor


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden. The mask is the id after the last of the vocabulary."""

    settings: MaskingSettings
    vocabulary: int

    def hide(self, tokens_BT: NDArray[np.int64], generator: np.random.Generator) -> MaskedBatch:
        rows, length = tokens_BT.shape
        count = max(1, round(self.settings.share * length))
        order_BT = generator.random((rows, length))
        order_BT[tokens_BT < len(SPECIALS)] = 2.0  # never hidden
        positions_BM = np.sort(np.argpartition(order_BT, count - 1, axis=1)[:, :count], axis=1)
        labels_BM = np.take_along_axis(tokens_BT, positions_BM, axis=1)
        ordinary_BM = labels_BM >= len(SPECIALS)
        fate_BM = generator.random((rows, count))
        others_BM = generator.integers(len(SPECIALS), self.vocabulary, (rows, count))
        hidden_BM = np.where(fate_BM < self.settings.random, others_BM, self.vocabulary)
        same_BM = (fate_BM >= 1 - self.settings.same) | ~ordinary_BM
        hidden_BT = tokens_BT.copy()
        np.put_along_axis(hidden_BT, positions_BM, np.where(same_BM, labels_BM, hidden_BM), axis=1)
        labels_BM = np.where(ordinary_BM, labels_BM, PAD)
        return MaskedBatch(*(torch.from_numpy(array) for array in (labels_BM, hidden_BT, positions_BM)))


class MaskedStream(TextStream[MaskedBatch]):
    def __init__(self, ids: NDArray[Any], rows: int, length: int, seed: int, masking: Masking):
        super().__init__(ids, rows, length, seed)
        self.masking = masking

    def batch(self, starts: Starts, epoch: int, last: int) -> MaskedBatch:
        generator = np.random.default_rng([self.seed, epoch, last])
        return self.masking.hide(cut_rows(self.ids, starts, self.length), generator)


def in_order(ids: NDArray[Any], rows: int, length: int, masking: Masking) -> Iterator[MaskedBatch]:
    """The text row by row, hidden always in the same way: for validation. An unfilled last row is left out."""
    length = min(length, len(ids))
    starts = np.arange(0, len(ids) - length + 1, max(length, 1))
    for first in range(0, len(starts), rows):
        yield masking.hide(cut_rows(ids, starts[first : first + rows], length), np.random.default_rng([0, first]))
