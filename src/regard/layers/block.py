"""Block: mixer, then (in a decoder) cross-attention, then feed-forward; each with residual and norm.

    post-norm (the paper)   x ← norm(x + part(x))
    pre-norm                x ← x + part(norm(x))

Shapes: B rows · T positions · D model width · N rows while decoding
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from regard.config import ModelSettings
from regard.layers.attention import Attention, KeyValueCache, MemoryKeys
from regard.layers.context import Context
from regard.layers.feedforward import FeedForward
from regard.layers.norm import make_norm

MIXERS = {"attention": Attention}


@dataclass
class BlockState:
    """What a block remembers while decoding one position at a time."""

    mixer: KeyValueCache
    memory: MemoryKeys | None


class Block(nn.Module):
    def __init__(self, settings: ModelSettings, cross: bool = False):
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.mixer = MIXERS[settings.mixer](settings)
        self.mixer_norm = make_norm(settings)
        self.cross = Attention(settings, cross=True) if cross else None
        self.cross_norm = make_norm(settings) if cross else None
        self.feedforward = FeedForward(settings)
        self.feedforward_norm = make_norm(settings)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        x_BTD = self._residual(x_BTD, self.mixer_norm, lambda x: self.mixer(x, context))
        if self.cross is not None and self.cross_norm is not None:
            cross = self.cross
            x_BTD = self._residual(x_BTD, self.cross_norm, lambda x: cross(x, context))
        return self._residual(x_BTD, self.feedforward_norm, self.feedforward)

    def step(self, x_ND: Tensor, state: BlockState) -> Tensor:
        """One position further. Same numbers as `forward` on the whole prefix."""
        x_ND = self._residual(x_ND, self.mixer_norm, lambda x: self.mixer.step(x, state.mixer))
        if self.cross is not None and self.cross_norm is not None and state.memory is not None:
            cross, memory = self.cross, state.memory
            x_ND = self._residual(x_ND, self.cross_norm, lambda x: cross.step(x, memory))
        return self._residual(x_ND, self.feedforward_norm, self.feedforward)

    def prefill(self, x_BTD: Tensor, context: Context, state: BlockState) -> Tensor:
        """`forward` over the first positions, kept in the state for the steps to come."""
        x_BTD = self._residual(x_BTD, self.mixer_norm, lambda x: self.mixer.prefill(x, context, state.mixer))
        return self._residual(x_BTD, self.feedforward_norm, self.feedforward)

    def start(self, rows: int, max_length: int, memory_BSD: Tensor, segments_BS: Tensor) -> BlockState:
        """The state before the first position, for `rows` hypotheses over the sentences in memory."""
        memory = MemoryKeys(self.cross, memory_BSD, segments_BS) if self.cross is not None else None
        return BlockState(KeyValueCache(self.mixer, rows, max_length, like=memory_BSD), memory)

    def _residual(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))
