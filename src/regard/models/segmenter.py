"""A class for every pixel, read from patches.

    linear         pixels of a patch = x W + b                                  K logits for each of its p · q pixels
    class-tokens   [patches; classes] ← blocks([x; learned])                    one token for each class
                   mask_k = ⟨patch, class_k⟩, both of length 1, normalised over the classes, in between the patches
                   (Segmenter: Strudel et al., 2021)

What is read is the last block of a ViT. Of a Swin it is every stage, since the first ones see finely and the last ones
far:

    x = Σ_i upsampled(stage_i W_i)                                              on the grid of the first

Shapes: B images · C channels · H × W pixels · R × S grid of patches · T = R·S patches · p × q pixels of a patch ·
        D model width · K classes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.block import make_blocks
from regard.layers.context import Context
from regard.layers.norm import make_norm
from regard.models.initialise import initialise
from regard.models.stack import through
from regard.models.swin import SwinBody, at_stage
from regard.models.vision import PatchReader
from regard.settings import SegmentationModel

Grid = tuple[int, int]


class SegmentingViT(PatchReader):
    def __init__(self, settings: SegmentationModel, height: int, width: int, channels: int, classes: int):
        super().__init__(settings, height, width, channels)
        self.to_classes = make_head(settings, self.patches.grid, classes)
        initialise(self, settings, depth=settings.layers)
        self.to_classes.start()

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Logits of the classes of every pixel: [B, H, W, K]."""
        x_BTD = self.tokens(images_BCHW)[:, self.patches.before :]
        return self.to_classes(self.dropout(x_BTD))


class SegmentingSwin(SwinBody):
    def __init__(self, settings: SegmentationModel, height: int, width: int, channels: int, classes: int):
        super().__init__(settings, height, width, channels)
        head = make_head(settings, self.grid, classes)
        # Both by the name of a head: what reads from the body is learned again in a run that starts from another.
        self.to_classes = nn.ModuleDict({"added": AddedStages(settings, self.grid), "head": head})
        self.initialise(settings)
        head.start()

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Logits of the classes of every pixel: [B, H, W, K]."""
        x_BTD = self.to_classes["added"](self.of_stages(images_BCHW))
        logits_BHWK: Tensor = self.to_classes["head"](self.dropout(x_BTD))
        return logits_BHWK


class AddedStages(nn.Module):
    """Every stage brought to the width and the grid of the first, and added."""

    def __init__(self, settings: SegmentationModel, grid: Grid):
        super().__init__()
        self.grid = grid
        widths = [at_stage(settings, number).width for number in range(len(settings.stages))]
        self.norms = nn.ModuleList(make_norm(settings, width) for width in widths)
        self.project = nn.ModuleList(nn.Linear(width, settings.width) for width in widths)

    def forward(self, stages: list[Tensor]) -> Tensor:
        """[B, T / 4ⁱ, 2ⁱ D] of every stage i → [B, T, D]."""
        rows, columns = self.grid
        added_BDRS: Tensor | None = None
        for number, (norm, project, x_BTD) in enumerate(zip(self.norms, self.project, stages, strict=True)):
            x_BDRS = project(norm(x_BTD)).transpose(1, 2).unflatten(2, (rows >> number, columns >> number))
            if number:
                x_BDRS = F.interpolate(x_BDRS, self.grid, mode="bilinear", align_corners=False)
            added_BDRS = x_BDRS if added_BDRS is None else added_BDRS + x_BDRS
        assert added_BDRS is not None
        return added_BDRS.flatten(2).transpose(1, 2)


class LinearHead(nn.Module):
    """From each patch to its own pixels."""

    def __init__(self, settings: SegmentationModel, grid: Grid, classes: int):
        super().__init__()
        self.grid, self.patch, self.classes = grid, (settings.patch_height, settings.patch_width), classes
        self.project = nn.Linear(settings.width, self.patch[0] * self.patch[1] * classes)

    def start(self) -> None:
        nn.init.zeros_(self.project.weight)  # all classes alike at first

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, H, W, K]."""
        pixels_BRSpqK = self.project(x_BTD).view(len(x_BTD), *self.grid, *self.patch, self.classes)
        # Row r of the grid and row p of the patch are row r · p of the image; columns likewise.
        return pixels_BRSpqK.transpose(2, 3).flatten(3, 4).flatten(1, 2)


class ClassTokenHead(nn.Module):
    """A token for each class attends with the patches; a mask is how alike it and every patch have become."""

    def __init__(self, settings: SegmentationModel, grid: Grid, classes: int):
        super().__init__()
        self.grid, self.patch = grid, (settings.patch_height, settings.patch_width)
        self.classes_KD = nn.Parameter(torch.empty(classes, settings.width).normal_(std=0.02))
        self.blocks = make_blocks(settings, settings.head_layers)
        self.norm = make_norm(settings) if settings.norm == "pre" else nn.Identity()
        self.of_patches = nn.Linear(settings.width, settings.width, bias=False)
        self.of_classes = nn.Linear(settings.width, settings.width, bias=False)
        self.over_classes = nn.LayerNorm(classes, eps=settings.norm_epsilon)

    def start(self) -> None:
        """As `initialise` has set it: with all alike, classes could not be told apart."""

    def no_decay(self) -> list[nn.Parameter]:
        return [self.classes_KD]

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] → [B, H, W, K]."""
        patches, classes = x_BTD.shape[1], len(self.classes_KD)
        learned_BKD = self.classes_KD.to(x_BTD.dtype).expand(len(x_BTD), -1, -1)
        positions_1T = torch.arange(patches + classes, device=x_BTD.device)[None]
        context = Context.build(None, positions_1T, causal=False)
        both_BTD = through(self.blocks, self.norm, torch.cat([x_BTD, learned_BKD], dim=1), context)
        patch_BTD = F.normalize(self.of_patches(both_BTD[:, :patches]), dim=-1)
        class_BKD = F.normalize(self.of_classes(both_BTD[:, patches:]), dim=-1)
        mask_BTK = self.over_classes(patch_BTD @ class_BKD.transpose(1, 2))
        mask_BKRS = mask_BTK.transpose(1, 2).unflatten(2, self.grid)
        size = self.grid[0] * self.patch[0], self.grid[1] * self.patch[1]
        return F.interpolate(mask_BKRS, size, mode="bilinear", align_corners=False).permute(0, 2, 3, 1)


def make_head(settings: SegmentationModel, grid: Grid, classes: int) -> LinearHead | ClassTokenHead:
    kind = ClassTokenHead if settings.head == "class-tokens" else LinearHead
    return kind(settings, grid, classes)
