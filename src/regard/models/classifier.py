"""The classifier: one label for each text.

    logits = pool(trunk(tokens)) W + b          pool: the first position, the last, or the mean of all

Several texts share a row; each is read at one position of its own, and what the others compute is not used.

Shapes: B rows · T positions · D model width · C classes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.context import same_segment
from regard.layers.embedding import token_embedding
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import TextClassifierModel


class Classifier(nn.Module):
    def __init__(self, settings: TextClassifierModel, vocabulary: int, classes: int):
        super().__init__()
        self.mean = settings.pooling == "mean"
        self.trunk = Trunk(settings, token_embedding(settings, vocabulary), causal=settings.causal)
        self.dropout = nn.Dropout(settings.dropout)
        self.to_classes = nn.Linear(settings.width, classes)
        initialise(self, settings, depth=settings.layers)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Logits of the classes at every position: [B, T, C]. Read them where the batch has a label."""
        x_BTD = self.trunk(tokens_BT, segments_BT, positions_BT)
        if self.mean:
            together_BTT = same_segment(segments_BT, segments_BT)[:, 0].to(x_BTD.dtype)
            x_BTD = torch.bmm(together_BTT, x_BTD) / together_BTT.sum(-1, keepdim=True)
        return self.to_classes(self.dropout(x_BTD))
