"""The reader: where in a text the answer to a question begins, and where it ends.

    [start, end] = trunk(question, text) W + b               two numbers for each position
    p(span i … j) = softmax(start)_i · softmax(end)_j        over the readable positions of a sample

Readable is the text, and the first position: there begins and ends the answer that is not in the text. Several samples
share a row, and each has a softmax of its own.

Shapes: B rows · T positions · D model width · 2 start and end
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.embedding import token_embedding
from regard.models.initialise import initialise
from regard.models.trunk import Trunk
from regard.settings import SequenceModel

NEVER = -1e9  # as a logarithm of a probability; finite, so that no gradient is nan


class Reader(nn.Module):
    def __init__(self, settings: SequenceModel, vocabulary: int):
        super().__init__()
        self.trunk = Trunk(settings, token_embedding(settings, vocabulary), causal=False)
        self.dropout = nn.Dropout(settings.dropout)
        self.to_span = nn.Linear(settings.width, 2)
        initialise(self, settings, depth=settings.layers)

    def forward(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor, readable_BT: Tensor) -> Tensor:
        """How likely the answer begins and ends at each position, as logarithms: [2, B, T]."""
        logits_2BT = self.scores(tokens_BT, segments_BT, positions_BT)
        all_2BT = over_samples(logits_2BT, segments_BT, readable_BT)
        return torch.where(readable_BT, logits_2BT - all_2BT, NEVER)

    def scores(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """Of each position, as where the answer begins and as where it ends: [2, B, T]."""
        x_BTD = self.trunk(tokens_BT, segments_BT, positions_BT)
        logits_2BT: Tensor = self.to_span(self.dropout(x_BTD)).float().movedim(-1, 0)
        return logits_2BT


def over_samples(values_BT: Tensor, segments_BT: Tensor, which_BT: Tensor) -> Tensor:
    """log Σ exp over those positions of a sample that are asked for, at each of its positions: […, B, T]."""
    together_BTT = (segments_BT[:, :, None] == segments_BT[:, None, :]) & which_BT[:, None, :]
    return torch.where(together_BTT, values_BT[..., None, :], NEVER).logsumexp(-1)
