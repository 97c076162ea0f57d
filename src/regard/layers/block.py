"""Block: mixer, then (in a decoder) cross-attention, then feed-forward; each with residual and norm.

    post-norm (the paper)   x ← norm(x + part(x))
    pre-norm                x ← x + part(norm(x))

What a part adds may be scaled by a learned vector (layer scale), and in training be left out for some rows, the more
often the deeper the block (stochastic depth).

Which mixer is one word in the settings. All keep the same contract: `forward` over whole sequences, `step` one
position at a time with an explicit state, and both give the same numbers.

Shapes: B rows · T positions · D model width · N rows while decoding
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.settings import RECURRENT, ModelSettings
from regard.layers.additive import AdditiveAttention, AdditiveMemory
from regard.layers.attention import Attention, MemoryKeys
from regard.layers.context import Context, Memory
from regard.layers.feedforward import FeedForward
from regard.layers.hyena import Hyena
from regard.layers.local import LocalAttention
from regard.layers.norm import make_norm
from regard.layers.recurrent import Recurrent

MIXERS: dict[str, Callable[[ModelSettings, bool], nn.Module]] = {
    "attention": Attention,
    "local": LocalAttention,
    "hyena": Hyena,
    "rnn": Recurrent,
    "lstm": Recurrent,
    "gru": Recurrent,
}


class MixerState(Protocol):
    """What a mixer remembers from one position to the next."""

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""


@dataclass
class BlockState:
    """What a block remembers while decoding one position at a time."""

    mixer: MixerState
    memory: MemoryKeys | AdditiveMemory | None


class Block(nn.Module):
    def __init__(
        self,
        settings: ModelSettings,
        causal: bool = False,
        decoder: bool = False,
        skipped: float = 0.0,
        mixer: nn.Module | None = None,
    ):
        """`decoder`: it has a source to look at. `skipped`: chance of a row to skip a part. `mixer`: another one."""
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.mixer: Any = mixer or make_mixer(settings, causal, decoder)
        self.mixer_norm = make_norm(settings)
        self.cross = _make_cross(settings) if decoder else None
        self.cross_norm = make_norm(settings) if self.cross is not None else None
        self.feedforward = FeedForward(settings) if settings.feedforward else None
        self.feedforward_norm = make_norm(settings) if settings.feedforward else None
        self.dropout = nn.Dropout(settings.dropout)
        parts = [part for part in ("mixer", "cross", "feedforward") if getattr(self, part) is not None]
        start = settings.layer_scale
        self.scales = nn.ParameterDict(
            {part: nn.Parameter(torch.full((settings.width,), start)) for part in parts if start}
        )
        self.skips = skipped > 0
        self.kept: Tensor  # a tensor, not a number: so that all blocks are compiled as one
        self.register_buffer("kept", torch.tensor(1 - skipped), persistent=False)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        x_BTD = self._residual(x_BTD, "mixer", self.mixer_norm, lambda x: self.mixer(x, context))
        return self._rest(x_BTD, lambda cross, x: cross(x, context))

    def step(self, x_ND: Tensor, state: BlockState) -> Tensor:
        """One position further. Same numbers as `forward` on the whole prefix."""
        x_ND = self._residual(x_ND, "mixer", self.mixer_norm, lambda x: self.mixer.step(x, state.mixer))
        return self._rest(x_ND, lambda cross, x: cross.step(x, state.memory))

    def prefill(self, x_BTD: Tensor, context: Context, state: BlockState) -> Tensor:
        """`forward` over the first positions, kept in the state for the steps to come."""
        x_BTD = self._residual(x_BTD, "mixer", self.mixer_norm, lambda x: self.mixer.prefill(x, context, state.mixer))
        return self._rest(x_BTD, lambda cross, x: cross(x, context))

    def start(
        self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None, segments_BS: Tensor | None = None
    ) -> BlockState:
        """The state before the first position, for `rows` hypotheses over the sentences in memory."""
        across = None
        if self.cross is not None:
            assert memory is not None and segments_BS is not None
            across = self.cross.start_across(memory.states_BSD, segments_BS)
        return BlockState(self.mixer.start(rows, max_length, like, memory), across)

    def _rest(self, x: Tensor, look_across: Callable[[Any, Tensor], Tensor]) -> Tensor:
        """What follows the mixer."""
        if self.cross is not None and self.cross_norm is not None:
            cross = self.cross
            x = self._residual(x, "cross", self.cross_norm, lambda x: look_across(cross, x))
        if self.feedforward is not None and self.feedforward_norm is not None:
            x = self._residual(x, "feedforward", self.feedforward_norm, self.feedforward)
        return x

    def _residual(self, x: Tensor, name: str, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self._added(name, part(norm(x)))
        return norm(x + self._added(name, part(x)))

    def _added(self, name: str, y: Tensor) -> Tensor:
        """What a part adds: with dropout, scaled, and in training only for the rows that do not skip it."""
        y = self.dropout(y)
        if name in self.scales:
            y = y * self.scales[name].to(y.dtype)
        if self.training and self.skips:
            stays_B = torch.rand(len(y), device=y.device) < self.kept
            y = y * (stays_B / self.kept).to(y.dtype).view(-1, *(1 for _ in y.shape[1:]))  # the mean stays the same
        return y


def make_blocks(settings: ModelSettings, layers: int, causal: bool = False, decoder: bool = False) -> nn.ModuleList:
    """So many blocks; the chance to be skipped grows from 0 to that of the settings."""
    chances = [settings.stochastic_depth * depth / max(1, layers - 1) for depth in range(layers)]
    return nn.ModuleList(Block(settings, causal, decoder, skipped) for skipped in chances)


def make_mixer(settings: ModelSettings, causal: bool, decoder: bool = False) -> Any:
    if settings.mixer in RECURRENT:
        return Recurrent(settings, causal, after_memory=decoder)
    return MIXERS[settings.mixer](settings, causal)


def _make_cross(settings: ModelSettings) -> Attention | AdditiveAttention | None:
    if settings.cross == "none":
        return None
    return AdditiveAttention(settings) if settings.cross == "additive" else Attention(settings, cross=True)
