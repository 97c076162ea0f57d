"""The Vision Transformer: a classifier over the patches of an image (ViT).

    logits = pool(trunk(patches)) W + b          pool: the class token, the mean of the patches, or both

Its blocks are those of every other model; only the embedding differs.

Shapes: B images · C channels · H × W pixels · T tokens · E tokens before the patches · D model width · K classes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.context import Context
from regard.layers.patches import PatchEmbedding
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import ImageModel, PatchModel


class PatchReader(nn.Module):
    """The body of a ViT: what is made of every patch. What is read from it is up to a subclass."""

    def __init__(self, settings: PatchModel, height: int, width: int, channels: int):
        super().__init__()
        self.trunk = Trunk(settings, PatchEmbedding(settings, height, width, channels), causal=False)
        self.dropout = nn.Dropout(settings.dropout)

    def tokens(self, images_BCHW: Tensor) -> Tensor:
        """What the last block makes of every token: [B, T, D]."""
        x_BTD = self.patches(images_BCHW)
        positions_1T = torch.arange(x_BTD.shape[1], device=x_BTD.device)[None]
        return self.trunk.read(x_BTD, Context.build(None, positions_1T, causal=False))

    @property
    def layers(self) -> list[nn.Module]:
        """What makes the tokens, and every block: each gives [B, T, D]."""
        return self.trunk.layers

    @property
    def patches(self) -> PatchEmbedding:
        assert isinstance(self.trunk.embedding, PatchEmbedding)
        return self.trunk.embedding


class VisionTransformer(PatchReader):
    def __init__(self, settings: ImageModel, height: int, width: int, channels: int, classes: int):
        super().__init__(settings, height, width, channels)
        self.pooling = settings.pooling
        self.to_classes = nn.Linear(settings.width * (2 if self.pooling == "both" else 1), classes)
        initialise(self, settings, depth=settings.layers)
        nn.init.zeros_(self.to_classes.weight)  # all classes alike at first

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Logits of the classes: [B, K]."""
        return self.to_classes(self.dropout(self.features(images_BCHW)))

    def features(self, images_BCHW: Tensor) -> Tensor:
        """What a class is read from: [B, D], or [B, 2D] of both."""
        return self.pool(self.tokens(images_BCHW))

    def pool(self, x_BTD: Tensor) -> Tensor:
        if self.pooling == "first":
            return x_BTD[:, 0]
        mean_BD = x_BTD[:, self.patches.before :].mean(1)
        return mean_BD if self.pooling == "mean" else torch.cat([x_BTD[:, 0], mean_BD], dim=-1)
