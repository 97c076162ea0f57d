"""The explicit memory of decoding one position at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.layers.block import BlockState
from regard.layers.copying import CopySource
from regard.layers.slots import KeySlots, Places


@dataclass
class DecoderState:
    """One state per block, and how many positions they hold: all rows are at the same one."""

    blocks: list[BlockState]
    length: int = 0
    source: CopySource | None = None  # where words are copied

    def positions(self, tokens_N: Tensor) -> Tensor:
        """Of the tokens that are fed now: [N]."""
        return torch.full((len(tokens_N),), self.length, device=tokens_N.device)

    def advance(self) -> None:
        self.length += 1

    def select(self, rows_N: Tensor) -> None:
        """Keep these hypotheses; a sentence keeps its place and its number of them."""
        for block in self.blocks:
            mixer: Any = block.mixer
            mixer.select(rows_N)


@dataclass
class SlotState:
    """One state per block; every text is at its own position. Whoever feeds the texts says who goes on."""

    blocks: list[BlockState]
    places: Places
    source: CopySource | None = None  # where words are copied

    def positions(self, tokens_N: Tensor) -> Tensor:
        places = self.places
        if places.at_once == 1:
            return places.positions_N
        return places.positions_N.clamp(max=places.length - 1)  # a table of positions ends where the longest text does

    def advance(self) -> None:
        """Left to `places.advance`."""

    def entering(self, slots_X: Tensor, lengths_X: Tensor) -> list[BlockState]:
        """The states that the first positions of texts are read into."""
        states = []
        for block in self.blocks:
            assert isinstance(block.mixer, KeySlots)
            states.append(BlockState(block.mixer.entering(slots_X, lengths_X), None))
        return states
