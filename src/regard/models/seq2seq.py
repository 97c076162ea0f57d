"""The encoder–decoder over tokens: that of "Attention Is All You Need", and with other mixers its forerunners.

    memory = encoder(source)
    logits = decoder(target so far, memory) Eᵀ            E: the target embedding, when tied

Shapes: B rows · S source positions · T target positions · D model width · W words in the vocabulary
        X sources that enter
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.context import Context, Memory, same_segment
from regard.layers.embedding import Embedding
from regard.models.encoder_decoder import EncoderDecoder, segments_of
from regard.models.stack import through
from regard.settings import TranslationModel


class Seq2Seq(EncoderDecoder):
    source_embedding: Embedding

    def __init__(self, settings: TranslationModel, source_vocabulary: int, target_vocabulary: int):
        def source_embedding(target_table: nn.Embedding) -> Embedding:
            share_all = settings.tie_embeddings == "all"
            return Embedding(settings, target_table if share_all else nn.Embedding(source_vocabulary, settings.width))

        super().__init__(settings, target_vocabulary, source_embedding)

    def forward(
        self,
        source_BS: Tensor,
        source_segments_BS: Tensor,
        source_positions_BS: Tensor,
        target_BT: Tensor,
        target_segments_BT: Tensor,
        target_positions_BT: Tensor,
    ) -> Tensor:
        """Logits of the next token at every target position: [B, T, W]."""
        memory = self.memory(source_BS, source_segments_BS, source_positions_BS, target_segments_BT)
        x_BTD = self.decode(memory, target_BT, target_segments_BT, target_positions_BT)
        source = self.copy_source(memory.states_BSD, source_BS, memory.seen_B1TS[:, 0])
        return self.with_copies(self.to_logits(x_BTD), x_BTD, source)

    def hidden(
        self,
        source_BS: Tensor,
        source_segments_BS: Tensor,
        source_positions_BS: Tensor,
        target_BT: Tensor,
        target_segments_BT: Tensor,
        target_positions_BT: Tensor,
    ) -> Tensor:
        """What the logits are read from; all of them, where nothing is copied: [B, T, D]."""
        memory = self.memory(source_BS, source_segments_BS, source_positions_BS, target_segments_BT)
        return self.decode(memory, target_BT, target_segments_BT, target_positions_BT)

    def memory(
        self, source_BS: Tensor, segments_BS: Tensor, positions_BS: Tensor, target_segments_BT: Tensor
    ) -> Memory:
        """What a decoder knows of the source, each position of its own sentence."""
        memory_BSD = self.encode(source_BS, segments_BS, positions_BS)
        mask_B1TS = same_segment(target_segments_BT, segments_BS)
        return Memory(memory_BSD, mask_B1TS, self._summary(memory_BSD, segments_BS))

    def encode(self, source_BS: Tensor, segments_BS: Tensor, positions_BS: Tensor) -> Tensor:
        """What the encoder makes of the source: [B, S, D]."""
        context = Context.build(segments_BS, positions_BS, causal=False, masked=self.masked)
        x_BSD = self.source_embedding(source_BS, positions_BS)
        return through(self.encoder, self.encoder_norm, x_BSD, context)

    def read(self, source_XS: Tensor, lengths_X: Tensor) -> tuple[Tensor, Tensor]:
        """Sentences as ids, one in each row."""
        position_S = torch.arange(source_XS.shape[1], device=source_XS.device)
        segments_XS = segments_of(lengths_X, source_XS.shape[1])
        return self.encode(source_XS, segments_XS, position_S.expand_as(source_XS)), lengths_X
