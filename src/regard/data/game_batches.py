"""Batches of games: one game to a row, filled up at its end.

    tokens   <result>  m₁  m₂ …  m_n
    labels      m₁     m₂  m₃ …  <end>

A position sees only those before it, so what a row is filled up with is never seen, and no mask is needed.

Shapes: B games · T positions of a row · N games of an epoch
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.ragged import Ragged, spread
from regard.data.stream import Part, Stream
from regard.data.text_batches import TextBatch
from regard.data.tokenizers import PAD


@dataclass(frozen=True)
class GameBatch(TextBatch):
    """The label of each move is the one after it: [B, T]."""

    unit: ClassVar[str] = "moves"


class GameStream(Stream[NDArray[np.int64], GameBatch]):
    """An epoch is one window: all games, in an order that follows from (seed, epoch)."""

    def __init__(self, games: Ragged, rows: int, length: int, seed: int):
        self.games, self.rows, self.length, self.seed = games, rows, length, seed

    def open(self, epoch: int, window: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.games))

    def collate(self, parts: list[Part[NDArray[np.int64]]]) -> GameBatch:
        return game_batch(self.games.take(np.concatenate([part.window[part.slice] for part in parts])), self.length)


def game_batch(games: Ragged, length: int) -> GameBatch:
    """These games in rows of this many positions; of longer ones the beginning."""
    cut = games.cut(length + 1)
    words_BT = np.full((len(cut), length + 1), PAD, np.int64)
    words_BT.reshape(-1)[spread(np.arange(len(cut)) * (length + 1), cut.lengths)] = cut.ids
    return GameBatch(
        labels=torch.from_numpy(words_BT[:, 1:].copy()), tokens_BT=torch.from_numpy(words_BT[:, :-1].copy())
    )


def in_order(games: Ragged, rows: int, length: int) -> Iterator[GameBatch]:
    """Every game once."""
    for start in range(0, len(games), rows):
        yield game_batch(games.take(np.arange(start, min(start + rows, len(games)))), length)
