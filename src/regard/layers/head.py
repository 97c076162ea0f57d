"""The head: from a vector to a logit for every word of the vocabulary.

    logits = x Wᵀ + b            and, where they are capped, c · tanh(logits / c)

Shapes: D model width · W words in the vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Head(nn.Linear):
    """`cap`: logits are bent to stay within plus or minus this; 0: they are free."""

    def __init__(self, width: int, vocabulary: int, bias: bool = False, cap: float = 0.0):
        super().__init__(width, vocabulary, bias=bias)
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        """[..., W]."""
        logits = super().forward(x)
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits
