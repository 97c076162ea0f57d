"""Embedding: a token becomes a vector, scaled by √d, plus its position.

    x = √d · E[token] + PE(position)          and, as in BERT, normalised

Shapes: B rows · T positions · D model width
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.layers.norm import make_norm
from regard.settings import SequenceModel


class Embedding(nn.Module):
    """`table` may be shared with another embedding or with the output layer."""

    stream: torch.dtype | None = None  # what blocks add to; None: the type of the table

    def __init__(self, settings: SequenceModel, table: nn.Embedding):
        super().__init__()
        self.table = table
        self.positions = settings.part("positions")(settings)
        self.norm = make_norm(settings) if settings.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(settings.dropout)
        self.scale = math.sqrt(settings.width) if settings.scale_embeddings else 1.0

    def forward(self, tokens_BT: Tensor, positions_BT: Tensor) -> Tensor:
        x_BTD = self.table(tokens_BT)
        if self.scale != 1:
            x_BTD = x_BTD * self.scale
        x_BTD = self.dropout(self.norm(self.positions(x_BTD, positions_BT)))
        return x_BTD.to(self.stream) if self.stream is not None else x_BTD


def token_embedding(settings: SequenceModel, vocabulary: int) -> Embedding:
    """An embedding with a table of its own."""
    return Embedding(settings, nn.Embedding(vocabulary, settings.width))
