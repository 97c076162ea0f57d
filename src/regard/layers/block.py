"""Block: mixer, then (in a decoder) cross-attention, then feed-forward; each with residual and norm.

    pre-norm                x ← x + part(norm(x))
    post-norm (the paper)   x ← norm(x + part(x))

What a part adds may be scaled by a learned vector (layer scale), and in training be left out for some rows, the more
often the deeper the block (stochastic depth).

Shapes: B rows · T positions · D model width · N rows while decoding
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.additive import AdditiveAttention, AdditiveMemory
from regard.layers.attention import Attention, MemoryKeys
from regard.layers.bahdanau import RecurrentSearch, SearchState
from regard.layers.context import Context, Memory
from regard.layers.feedback import FeedbackAttention
from regard.layers.feedforward import FeedForward
from regard.layers.mixer import Mixer, MixerState
from regard.layers.norm import make_norm
from regard.layers.slots import Entering, KeySlots, MemorySlots, Places, slot_kernel
from regard.settings import CausalModel, ModelSettings, TranslationModel


@dataclass
class BlockState:
    """What a block remembers while decoding one position at a time."""

    mixer: MixerState | KeySlots | Entering
    memory: MemoryKeys | AdditiveMemory | MemorySlots | None


class Block(nn.Module):
    def __init__(
        self,
        settings: ModelSettings,
        causal: bool = False,
        decoder: bool = False,
        skipped: float = 0.0,
        mixer: Mixer | None = None,
    ):
        """`decoder`: it has a source to look at. `skipped`: chance of a row to skip a part. `mixer`: another one."""
        super().__init__()
        self.pre_norm = settings.norm == "pre"
        self.mixer: Any = mixer or make_mixer(settings, causal, decoder)
        self.mixer_norm = make_norm(settings)
        self.cross: Any = _make_cross(settings) if decoder else None
        self.cross_norm: Any = make_norm(settings) if self.cross is not None else None
        self.feedforward: Any = FeedForward(settings) if settings.feedforward else None
        self.feedforward_norm: Any = make_norm(settings) if settings.feedforward else None
        self.dropout = nn.Dropout(settings.dropout)
        parts = [part for part in ("mixer", "cross", "feedforward") if getattr(self, part) is not None]
        start = settings.layer_scale
        self.scales = nn.ParameterDict(
            {part: nn.Parameter(torch.full((settings.width,), start)) for part in parts if start}
        )
        self.skips = skipped > 0
        self.survival: Tensor  # a tensor, not a number: so that all blocks are compiled as one
        self.register_buffer("survival", torch.tensor(1 - skipped), persistent=False)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """[B, T, D]."""
        if self.pre_norm:
            x = x + self.drop("mixer", self.mixer(self.mixer_norm(x), context))
            x = x + self.drop("cross", self.cross(self.cross_norm(x), context)) if self.cross else x
            return x + self.drop("feedforward", self.feedforward(self.feedforward_norm(x))) if self.feedforward else x
        x = self.mixer_norm(x + self.drop("mixer", self.mixer(x, context)))
        x = self.cross_norm(x + self.drop("cross", self.cross(x, context))) if self.cross else x
        return self.feedforward_norm(x + self.drop("feedforward", self.feedforward(x))) if self.feedforward else x

    def step(self, x: Tensor, state: BlockState) -> Tensor:
        """One position further, [N, D]. Same numbers as `forward` on the whole prefix."""
        if quick := self._quick_step(x, state):
            return quick(self, x, state)
        if self.pre_norm:
            x = x + self.drop("mixer", self.mixer.step(self.mixer_norm(x), state.mixer))
            x = x + self.drop("cross", self.cross.step(self.cross_norm(x), state.memory)) if self.cross else x
            return x + self.drop("feedforward", self.feedforward(self.feedforward_norm(x))) if self.feedforward else x
        x = self.mixer_norm(x + self.drop("mixer", self.mixer.step(x, state.mixer)))
        x = self.cross_norm(x + self.drop("cross", self.cross.step(x, state.memory))) if self.cross else x
        return self.feedforward_norm(x + self.drop("feedforward", self.feedforward(x))) if self.feedforward else x

    def prefill(self, x: Tensor, context: Context, state: BlockState) -> Tensor:
        """`forward` over the first positions of a text, remembered in the state for the steps that follow."""
        if self.pre_norm:
            x = x + self.drop("mixer", self.mixer.prefill(self.mixer_norm(x), context, state.mixer))
            x = x + self.drop("cross", self.cross(self.cross_norm(x), context)) if self.cross else x
            return x + self.drop("feedforward", self.feedforward(self.feedforward_norm(x))) if self.feedforward else x
        x = self.mixer_norm(x + self.drop("mixer", self.mixer.prefill(x, context, state.mixer)))
        x = self.cross_norm(x + self.drop("cross", self.cross(x, context))) if self.cross else x
        return self.feedforward_norm(x + self.drop("feedforward", self.feedforward(x))) if self.feedforward else x

    def start(
        self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None, segments_BS: Tensor | None = None
    ) -> BlockState:
        """The state before the first position, for `rows` hypotheses over the sentences in memory."""
        mixer = self.mixer.start(rows, max_length, like, memory)
        if isinstance(mixer, SearchState):
            return BlockState(mixer, mixer.memory)
        across = None
        if self.cross is not None:
            assert memory is not None and segments_BS is not None
            across = self.cross.start_across(memory.states_BSD, segments_BS)
        return BlockState(mixer, across)

    def _quick_step(self, x: Tensor, state: BlockState) -> Any:
        """On a GPU in half precision, in slots: a step of few kernels; else None."""
        if not x.is_cuda or x.dtype != torch.bfloat16 or self.training or len(self.scales):
            return None
        if not isinstance(state.mixer, KeySlots) or slot_kernel(x) is None:
            return None
        from regard.layers import quick_step

        return quick_step.step

    @property
    def has_slots(self) -> bool:
        return self.mixer.has_slots and (self.cross is None or isinstance(self.cross, Attention))

    def start_slots(self, places: Places, source_length: int, like: Tensor) -> BlockState:
        """The state of texts that enter and leave one by one, with sources of up to this length."""
        across = MemorySlots(self.cross, places, source_length, like) if self.cross is not None else None
        return BlockState(self.mixer.start_slots(places, like), across)

    def drop(self, part: str, y: Tensor) -> Tensor:
        """What a part adds: with dropout, scaled, and in training only for the rows that do not skip it."""
        if not self.training and not self.scales:
            return y
        y = self.dropout(y)
        if part in self.scales:
            y = y * self.scales[part].to(y.dtype)
        if self.training and self.skips:
            stays_B = torch.rand(len(y), device=y.device) < self.survival
            y = y * (stays_B / self.survival).to(y.dtype).view(-1, *(1 for _ in y.shape[1:]))  # keeps the mean
        return y


def make_blocks(settings: ModelSettings, layers: int, causal: bool = False, decoder: bool = False) -> nn.ModuleList:
    """This many blocks; the chance to be skipped grows from 0 to that of the settings."""
    chances = [settings.stochastic_depth * depth / max(1, layers - 1) for depth in range(layers)]
    return nn.ModuleList(Block(settings, causal, decoder, skipped) for skipped in chances)


def make_mixer(settings: ModelSettings, causal: bool, decoder: bool = False) -> Mixer:
    if decoder and isinstance(settings, TranslationModel) and settings.cross == "bahdanau":
        return RecurrentSearch(settings)
    if isinstance(settings, CausalModel) and settings.feedback != "none":
        return FeedbackAttention(settings)
    mixer: Mixer = settings.part("mixer")(settings, causal, decoder)
    return mixer


def _make_cross(settings: ModelSettings) -> Attention | AdditiveAttention | None:
    assert isinstance(settings, TranslationModel)
    if settings.cross in ("none", "bahdanau"):  # nothing to look at, or a mixer that looks itself
        return None
    return AdditiveAttention(settings) if settings.cross == "additive" else Attention(settings, cross=True)
