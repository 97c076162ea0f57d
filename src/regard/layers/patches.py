"""Patches: an image becomes a row of tokens.

    x = [class; registers; patch_1 W + PE(1, 1); patch_2 W + PE(1, 2); …]

A patch of P × P pixels is mapped to one vector: a convolution whose stride is its size. The class token and the
registers are learned vectors that stand before the patches and have no place in the image.

    learned          a table of the grid; at another resolution it is resampled, as one resamples an image
    sinusoidal-2d    half of the channels tell the row, half the column
    any other        as in a text, along the patches in reading order

Shapes: B images · C channels · H × W pixels · R × S grid of patches · E tokens before them · T = E + R·S · D width
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings
from regard.layers.norm import make_norm
from regard.layers.positions import Positions, sinusoidal


class PatchEmbedding(nn.Module):
    def __init__(self, settings: ModelSettings, height: int, width: int, channels: int):
        super().__init__()
        patch = settings.patch_height, settings.patch_width
        self.grid = height // patch[0], width // patch[1]
        self.width = settings.width
        self.project = nn.Conv2d(channels, settings.width, kernel_size=patch, stride=patch)
        self.class_token_1D: nn.Parameter | None = None
        self.registers_ED: nn.Parameter | None = None
        self.positions_RSD: nn.Parameter | None = None
        if settings.pooling in ("first", "both"):
            self.class_token_1D = nn.Parameter(torch.zeros(1, settings.width))
        if settings.registers:
            self.registers_ED = nn.Parameter(torch.empty(settings.registers, settings.width).normal_(std=0.02))
        self.kind = settings.positions
        if self.kind == "learned":
            # As large as the patches: a hundredth of that, as in a text, is found by attention only after long.
            self.positions_RSD = nn.Parameter(torch.randn(*self.grid, settings.width))
        self.along = Positions(settings) if self.kind not in ("learned", "sinusoidal-2d") else None
        self.norm = make_norm(settings) if settings.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(settings.dropout)
        inputs = channels * patch[0] * patch[1]
        nn.init.trunc_normal_(self.project.weight, std=math.sqrt(1 / inputs))
        if self.project.bias is not None:
            nn.init.zeros_(self.project.bias)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """[B, T, D], the class token first."""
        patches_BTD = self.project(images_BCHW).flatten(2).transpose(1, 2)
        patches_BTD = self._placed(patches_BTD)
        rows = [tokens.to(patches_BTD.dtype).expand(len(patches_BTD), -1, -1) for tokens in self._before()]
        return self.dropout(self.norm(torch.cat([*rows, patches_BTD], dim=1)))

    @property
    def before(self) -> int:
        """How many tokens stand before the patches (E)."""
        return sum(len(tokens) for tokens in self._before())

    def _before(self) -> list[nn.Parameter]:
        return [tokens for tokens in (self.class_token_1D, self.registers_ED) if tokens is not None]

    def _placed(self, patches_BTD: Tensor) -> Tensor:
        """The patches, told where they are."""
        if self.along is not None:
            return self.along(patches_BTD, torch.arange(patches_BTD.shape[1], device=patches_BTD.device)[None])
        code_RSD: Tensor | None = self.positions_RSD
        if code_RSD is None:
            code_RSD = sinusoidal_2d(*self.grid, self.width, patches_BTD.device)
        return patches_BTD + code_RSD.flatten(0, 1).to(patches_BTD.dtype)


def sinusoidal_2d(rows: int, columns: int, width: int, device: torch.device | None = None) -> Tensor:
    """The code of the row in the first half of the channels, that of the column in the second: [R, S, D]."""
    row_RH = sinusoidal(torch.arange(rows, device=device), width // 2)
    column_SH = sinusoidal(torch.arange(columns, device=device), width // 2)
    return torch.cat([row_RH[:, None].expand(-1, columns, -1), column_SH[None].expand(rows, -1, -1)], dim=-1)


def resample(table_RSD: Tensor, grid: tuple[int, int]) -> Tensor:
    """A table of positions for another grid, bicubic; the same grid gives the same table."""
    if table_RSD.shape[:2] == grid:
        return table_RSD
    image_1DRS = table_RSD.permute(2, 0, 1)[None].float()
    found_1DRS = F.interpolate(image_1DRS, grid, mode="bicubic", align_corners=False, antialias=True)
    return found_1DRS[0].permute(1, 2, 0).to(table_RSD.dtype)
