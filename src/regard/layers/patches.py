"""Patches: an image becomes a row of tokens.

    x = [class; registers; patch_1 W + PE(1, 1); patch_2 W + PE(1, 2); …]

A patch of P × P pixels is mapped to one vector: a convolution whose stride is its size. The class token and the
registers are learned vectors that stand before the patches and have no position in the image.

Shapes: B images · C channels · H × W pixels · R × S grid of patches · E tokens before them · T = E + R·S · D width
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.norm import make_norm
from regard.settings import PatchSettings


class PatchEmbedding(nn.Module):
    def __init__(self, settings: PatchSettings, height: int, width: int, channels: int):
        super().__init__()
        patch = settings.patch_height, settings.patch_width
        self.grid = height // patch[0], width // patch[1]
        self.project = nn.Conv2d(channels, settings.width, kernel_size=patch, stride=patch)
        self.class_token_1D: nn.Parameter | None = None
        self.registers_ED: nn.Parameter | None = None
        if settings.class_token:
            self.class_token_1D = nn.Parameter(torch.zeros(1, settings.width))
        if settings.registers:
            self.registers_ED = nn.Parameter(torch.empty(settings.registers, settings.width).normal_(std=0.02))
        positions = settings.part("positions")
        self.positions_RSD: nn.Parameter | None = positions.table_over_grid(settings, self.grid)
        self.along: Any = positions(settings) if self.positions_RSD is None else None
        self.norm = make_norm(settings) if settings.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(settings.dropout)
        inputs = channels * patch[0] * patch[1]
        nn.init.trunc_normal_(self.project.weight, std=math.sqrt(1 / inputs))
        if self.project.bias is not None:
            nn.init.zeros_(self.project.bias)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """[B, T, D], the class token first."""
        patches_BTD = self.project(images_BCHW).flatten(2).transpose(1, 2)
        patches_BTD = self.positioned(patches_BTD)
        rows = [tokens.to(patches_BTD.dtype).expand(len(patches_BTD), -1, -1) for tokens in self._before()]
        return self.dropout(self.norm(torch.cat([*rows, patches_BTD], dim=1)))

    @property
    def before(self) -> int:
        """How many tokens stand before the patches (E)."""
        return sum(len(tokens) for tokens in self._before())

    def _before(self) -> list[nn.Parameter]:
        return [tokens for tokens in (self.class_token_1D, self.registers_ED) if tokens is not None]

    def no_decay(self) -> Iterable[nn.Parameter]:
        """Learned tokens, and where patches are in an image."""
        return [*self._before(), *([] if self.positions_RSD is None else [self.positions_RSD])]

    def positioned(self, patches_BTD: Tensor) -> Tensor:
        """The patches, told where they are."""
        if self.positions_RSD is not None:
            return patches_BTD + self.positions_RSD.flatten(0, 1).to(patches_BTD.dtype)
        return self.along.over_grid(patches_BTD, self.grid)
