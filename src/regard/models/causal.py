"""The causal language model: a decoder alone (GPT).

    logits_t = trunk(tokens up to t) Eᵀ              E: the embedding, when tied

Shapes: B rows · T positions · D model width · W words in the vocabulary · N rows while generating
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.layers.embedding import token_embedding
from regard.layers.head import Head
from regard.models.feedback import FeedbackTrunk
from regard.models.initialise import initialise
from regard.models.state import DecoderState, SlotState
from regard.models.trunk import Trunk
from regard.settings import CausalModel


class Causal(nn.Module):
    def __init__(self, settings: CausalModel, vocabulary: int):
        super().__init__()
        embedding = token_embedding(settings, vocabulary)
        self.trunk = (
            Trunk(settings, embedding, causal=True)
            if settings.feedback == "none"
            else FeedbackTrunk(settings, embedding)
        )
        self.to_logits = Head(settings.width, vocabulary, cap=settings.logit_cap)
        initialise(self, settings, depth=settings.layers)
        if settings.tie_embeddings != "none":
            self.to_logits.weight = embedding.table.weight

    def forward(
        self, tokens_BT: Tensor, segments_BT: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> Tensor:
        """Logits of the next token at every position: [B, T, W]. Without segments, each row is one text."""
        return self.to_logits(self.hidden(tokens_BT, segments_BT, positions_BT))

    def hidden(
        self, tokens_BT: Tensor, segments_BT: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> Tensor:
        """What the logits are read from: [B, T, D]."""
        return self.trunk(tokens_BT, segments_BT, positions_BT)

    def start(self, rows: int, max_length: int) -> DecoderState:
        """An empty state for this many texts of at most `max_length` tokens."""
        return self.trunk.start(rows, max_length)

    def prefill(self, tokens_NT: Tensor, state: DecoderState) -> Tensor:
        """Feed the first tokens of every text at once; logits of the one after them: [N, W]."""
        return self.to_logits(self.trunk.prefill(tokens_NT, state))

    def step(self, tokens_N: Tensor, state: DecoderState | SlotState) -> Tensor:
        """Feed one token per text; logits of the one after it: [N, W]."""
        return self.to_logits(self.trunk.step(tokens_N, state))
