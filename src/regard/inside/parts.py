"""Activations recorded during one forward pass: of each part (mixer, cross-attention, feed-forward), layer and stack.

Shapes: H heads · T positions · L layers · D model width · V value width of a head · X all heads together
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.inside.embedded import Embedded
from regard.inside.sites import PARTS
from regard.inside.subject import Stack
from regard.layers.attention_trace import AttentionTrace
from regard.layers.block import Block
from regard.layers.context import Context


@dataclass(frozen=True, repr=False)
class PartTrace:
    """One part of a block: a mixer, a cross-attention or a feed-forward."""

    name: str  # its site: "decoder.0.cross"
    module: Any
    read_TD: Tensor  # its input; with pre-norm, after the norm
    wrote_TD: Tensor  # its output, which is added to the residual stream
    context: Context | None  # which positions may attend to which; None: it mixes no positions
    joined_TX: Tensor | None  # the concatenated outputs of its heads, before W_out
    scale_D: Tensor | None  # layer scale, already applied to `wrote_TD`

    def __repr__(self) -> str:
        heads = f", {self.heads} heads" if self.heads else ""
        return f"PartTrace({self.name}: {type(self.module).__name__}{heads})"

    @property
    def title(self) -> str:
        """Its name for people: "self-attention", "cross-attention", "feed-forward", "Hyena"."""
        part = self.name.rpartition(".")[2]
        titles = {"cross": "cross-attention", "feedforward": "feed-forward"}
        return titles.get(part) or getattr(self.module, "title", "") or type(self.module).__name__

    @property
    def attends(self) -> bool:
        """Whether it is attention of any kind."""
        return hasattr(self.module, "trace")

    @property
    def cross(self) -> bool:
        """Whether it attends to the previous stack. In a Bahdanau decoder, the mixer itself does."""
        return self.attends and bool(getattr(self.module, "cross", hasattr(self.module, "alignment")) or self._additive)

    @property
    def _additive(self) -> bool:
        return self.name.endswith(".cross")

    @torch.no_grad()
    def attention(self) -> AttentionTrace:
        """Scores and weights, recomputed from the formula at each call: they are too large to store for all layers."""
        if not self.attends or self.context is None:
            raise UsageError(
                f"'{self.name}' has no attention weights.",
                f"It is a {type(self.module).__name__}.",
                "Choose a part whose `attends` is true.",
            )
        attention: AttentionTrace = self.module.trace(self.read_TD[None], self.context)
        return attention

    @property
    def heads(self) -> int:
        """The number of heads; 0 for a part without heads."""
        return int(getattr(self.module, "heads", 0))

    @torch.no_grad()
    def heads_HTD(self) -> Tensor:
        """What each head adds to the residual stream: [H, T, D]. These and `bias_D` sum to `wrote_TD`."""
        assert self.joined_TX is not None
        heads_HTV = self.joined_TX.unflatten(-1, (self.heads, -1)).transpose(0, 1)
        weight_HVD = self.module.to_out.weight.T.unflatten(0, (self.heads, -1))
        wrote_HTD = heads_HTV @ weight_HVD
        return wrote_HTD if self.scale_D is None else wrote_HTD * self.scale_D

    @property
    def bias_D(self) -> Tensor | None:
        """The bias of W_out, which does not depend on the heads."""
        bias = self.module.to_out.bias
        return bias if bias is None or self.scale_D is None else bias * self.scale_D


@dataclass(frozen=True, repr=False)
class LayerTrace:
    """A block: its input, its parts, and its output."""

    name: str  # its site: "decoder.0"
    block: Block
    before_TD: Tensor
    parts: list[PartTrace]
    after_TD: Tensor

    def __repr__(self) -> str:
        return f"LayerTrace({self.name}: {', '.join(part.name.rpartition('.')[2] for part in self.parts)})"

    def part(self, name: str) -> PartTrace | None:
        """ "mixer", "cross" or "feedforward"; None if this layer lacks it."""
        if name not in PARTS:
            raise UsageError(
                f"There is no part '{name}'.", f"A layer has {', '.join(PARTS)}.", did_you_mean(name, PARTS)
            )
        return next((part for part in self.parts if part.name.endswith(f".{name}")), None)

    def norm_of(self, part: PartTrace) -> nn.Module:
        norm: nn.Module = getattr(self.block, f"{part.name.rpartition('.')[2]}_norm")
        return norm


@dataclass(frozen=True, repr=False)
class StackTrace:
    stack: Stack
    embedding: Embedded
    layers: list[LayerTrace]

    def __repr__(self) -> str:
        return f"StackTrace({self})"

    def __str__(self) -> str:
        return f"{self.name}: {len(self.layers)} layers, {len(self.stack.pieces)} positions"

    @property
    def name(self) -> str:
        return self.stack.name

    @property
    def baseline_TD(self) -> Tensor:
        """The input of the first block without content; positions that hold no input stay as they are."""
        fixed_T1 = torch.zeros(len(self.stack.pieces), 1, dtype=torch.bool)
        fixed_T1[sorted(self.stack.fixed)] = True
        x_TD = self.layers[0].before_TD
        return torch.where(fixed_T1.to(x_TD.device), x_TD, self.embedding.without_content_TD)

    @property
    def causal(self) -> bool:
        """Whether each position sees only itself and earlier ones."""
        return any(part.context is not None and part.context.causal for part in self.layers[0].parts)

    @property
    def residual_LTD(self) -> Tensor:
        """The residual stream before the first block, and after each: [L + 1, T, D]."""
        return torch.stack([self.layers[0].before_TD, *(layer.after_TD for layer in self.layers)])
