"""The masked language model: an encoder alone (BERT, RoBERTa).

    logits = norm(gelu(trunk(tokens) W + b)) Eᵀ + c           E: the embedding, when tied

Some tokens are hidden, and each is guessed from all the others, before and after it. Logits are computed
only where something is to be guessed.

Shapes: B rows · T positions · M masked positions of a row · D model width · W words in the vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embedding import token_embedding
from regard.layers.head import Head
from regard.layers.norm import make_norm
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import TokenModel


class Masked(nn.Module):
    """`vocabulary` counts the mask too: it is the last entry."""

    def __init__(self, settings: TokenModel, vocabulary: int):
        super().__init__()
        embedding = token_embedding(settings, vocabulary)
        self.trunk = Trunk(settings, embedding, causal=False)
        self.transform = nn.Linear(settings.width, settings.width)
        self.transform_norm = make_norm(settings)
        self.to_logits = Head(settings.width, vocabulary, bias=True)
        initialise(self, settings, depth=settings.layers)
        if settings.tie_embeddings != "none":
            self.to_logits.weight = embedding.table.weight

    def forward(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        masked_BM: Tensor | None = None,
    ) -> Tensor:
        """Logits of the token at each of these places, or at every one: [B, M or T, W]."""
        return self.to_logits(self.hidden(tokens_BT, segments_BT, positions_BT, masked_BM))

    def hidden(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        masked_BM: Tensor | None = None,
    ) -> Tensor:
        """What the logits are read from: [B, M or T, D]."""
        x_BTD = self.trunk(tokens_BT, segments_BT, positions_BT)
        if masked_BM is not None:
            x_BTD = torch.gather(x_BTD, 1, masked_BM[:, :, None].expand(-1, -1, x_BTD.shape[-1]))
        return self.transform_norm(F.gelu(self.transform(x_BTD)))
