"""The explicit memory of decoding one position at a time."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.layers.block import BlockState


@dataclass
class DecoderState:
    """One state per block, and how many positions they hold."""

    blocks: list[BlockState]
    length: int = 0

    def select(self, rows_N: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep these hypotheses; and, where sentences are finished, only these sentences."""
        for block in self.blocks:
            block.mixer.select(rows_N)
            if block.memory is not None and sentences_B is not None:
                block.memory.select(sentences_B)
