"""The Swin Transformer: attention in windows that shift, on grids of patches that merge.

    x ← norm(patches(image))                                        one vector for every p × p pixels
    in each stage, in turn:
        x ← x + windows(norm(x))            x ← x + FFN(norm(x))    W-MSA
        x ← x + shifted-windows(norm(x))    x ← x + FFN(norm(x))    SW-MSA
        x ← norm([x₀₀ x₁₀ x₀₁ x₁₁]) W                               between stages: 2 × 2 patches become one
    logits = mean(norm(x)) W + b

    stage        0              1                  2                   i
    grid      R × C         R/2 × C/2          R/4 × C/4         R/2ⁱ × C/2ⁱ          R = height / p, C = width / p
    width        D             2D                 4D                 2ⁱ D             heads and feed-forward likewise

(Liu et al., 2021.) The cost grows with the number of patches, not with its square; and as the grid shrinks, a window
covers ever more of the image.

Shapes: B images · C channels, or columns of a grid · H height · W width · R rows of a grid · T = R·C patches ·
        D width of the stage
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.layers.block import Block
from regard.layers.context import Context
from regard.layers.norm import make_norm
from regard.layers.windows import WindowAttention
from regard.models.initialise import initialise
from regard.settings import ImageModel, PatchModel

AnyPatches = TypeVar("AnyPatches", bound=PatchModel)


class SwinBody(nn.Module):
    """Patches, and the stages on their grids. What is read from it is up to a subclass."""

    def __init__(self, settings: PatchModel, height: int, width: int, channels: int):
        """For images of one size, which the patches, the windows and the merging must divide."""
        super().__init__()
        patch = (settings.patch_height, settings.patch_width)
        self.grid = height // patch[0], width // patch[1]
        self.patches = nn.Conv2d(channels, settings.width, kernel_size=patch, stride=patch)
        self.patches_norm = make_norm(settings)
        self.dropout = nn.Dropout(settings.dropout)
        self.stages = _make_stages(settings, self.grid)
        # Pre-norm blocks leave their output unnormalised.
        last = at_stage(settings, len(settings.stages) - 1)
        self.norm = make_norm(last) if settings.norm == "pre" else nn.Identity()

    def initialise(self, settings: PatchModel) -> None:
        """Every weight, those that a subclass has added too."""
        initialise(self, settings, depth=sum(settings.stages))
        nn.init.trunc_normal_(self.patches.weight, std=0.02)
        if self.patches.bias is not None:
            nn.init.zeros_(self.patches.bias)

    @property
    def layers(self) -> list[nn.Module]:
        """What makes the patches, and every block: each gives [B, T, D] of its stage."""
        return [self.patches_norm, *(module for module in self.stages.modules() if isinstance(module, Block))]

    def of_stages(self, images_BCHW: Tensor) -> list[Tensor]:
        """What every stage makes of its patches: [B, T, D] of each, on grids that halve."""
        x_BTD = self.patches(images_BCHW).flatten(2).transpose(1, 2)
        x_BTD = self.dropout(self.patches_norm(x_BTD))
        made = []
        for stage in self.stages:
            assert isinstance(stage, Stage)
            made.append(x_BTD := stage.through(x_BTD))
            x_BTD = stage.merge(x_BTD)
        return [*made[:-1], self.norm(made[-1])]


class Swin(SwinBody):
    def __init__(self, settings: ImageModel, height: int, width: int, channels: int, classes: int):
        super().__init__(settings, height, width, channels)
        self.to_classes = nn.Linear(at_stage(settings, len(settings.stages) - 1).width, classes)
        self.initialise(settings)
        nn.init.zeros_(self.to_classes.weight)
        nn.init.zeros_(self.to_classes.bias)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Logits of the classes: [B, classes]."""
        return self.to_classes(self.dropout(self.features(images_BCHW)))

    def features(self, images_BCHW: Tensor) -> Tensor:
        """What the classes are read from, one vector per image: [B, D]."""
        return self.of_stages(images_BCHW)[-1].mean(dim=1)


class Stage(nn.Module):
    """Blocks on one grid, the windows of every second one shifted; and, unless it is the last, merging."""

    def __init__(self, settings: PatchModel, grid: tuple[int, int], skipped: list[float], merges: bool):
        """`settings`: those of this stage. `skipped`: for each block, the chance of an image to skip a part of it."""
        super().__init__()
        mixers = [
            WindowAttention(settings, grid, settings.window, shifted=n % 2 == 1, narrow=settings.narrow)
            for n in range(len(skipped))
        ]
        self.blocks = nn.ModuleList(
            Block(settings, skipped=chance, mixer=mixer) for chance, mixer in zip(skipped, mixers, strict=True)
        )
        self.merge = PatchMerging(settings, grid) if merges else nn.Identity()

    def through(self, x_BTD: Tensor) -> Tensor:
        """Before merging: [B, T, D]."""
        positions_1T = torch.arange(x_BTD.shape[1], device=x_BTD.device)[None]
        context = Context.build(None, positions_1T, causal=False)
        for block in self.blocks:
            x_BTD = block(x_BTD, context)
        return x_BTD

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T / 4, 2D], or as it was in the last stage."""
        return self.merge(self.through(x_BTD))


class PatchMerging(nn.Module):
    """2 × 2 neighbours become one patch, twice as wide."""

    def __init__(self, settings: PatchModel, grid: tuple[int, int]):
        super().__init__()
        self.grid = grid
        self.norm = make_norm(settings, 4 * settings.width)
        self.reduce = nn.Linear(4 * settings.width, 2 * settings.width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, T / 4, 2D]."""
        return self.reduce(self.norm(self.gather(x_BTD)))

    def gather(self, x_BTD: Tensor) -> Tensor:
        """Four neighbours side by side: [B, T / 4, 4D]."""
        x_BRCD = x_BTD.unflatten(1, self.grid)
        four = [x_BRCD[:, row::2, column::2] for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))]
        return torch.cat(four, dim=-1).flatten(1, 2)


def _make_stages(settings: PatchModel, grid: tuple[int, int]) -> nn.ModuleList:
    """The chance to be skipped grows from 0 to that of the settings, over the blocks of all stages."""
    depth, before = sum(settings.stages), 0
    stages = nn.ModuleList()
    for number, blocks in enumerate(settings.stages):
        skipped = [settings.stochastic_depth * n / max(1, depth - 1) for n in range(before, before + blocks)]
        merges = number + 1 < len(settings.stages)
        stages.append(Stage(at_stage(settings, number), grid, skipped, merges))
        before, grid = before + blocks, (grid[0] // 2, grid[1] // 2)
    return stages


def at_stage(settings: AnyPatches, number: int) -> AnyPatches:
    """Every merging doubles what is as wide as the model."""
    return settings.model_copy(
        update={name: getattr(settings, name) * 2**number for name in ("width", "heads", "feedforward")}
    )
