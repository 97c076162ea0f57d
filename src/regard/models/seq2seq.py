"""The encoder–decoder: the Transformer of "Attention Is All You Need", and with other mixers its forerunners.

    memory = encoder(source)
    logits = decoder(target so far, memory) Eᵀ            E: the target embedding, when tied

Shapes: B rows · S source positions · T target positions · D model width · W words in the vocabulary
        N hypotheses while decoding (N = B · beams)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.layers.block import Block, make_blocks
from regard.layers.context import Context, Memory, same_segment
from regard.layers.embedding import Embedding
from regard.layers.head import Head
from regard.layers.norm import make_norm
from regard.layers.slots import MemorySlots, Places
from regard.models.initialise import initialise
from regard.models.stack import through
from regard.models.state import DecoderState, SlotState
from regard.settings import TranslationModel


class Seq2Seq(nn.Module):
    def __init__(self, settings: TranslationModel, source_vocabulary: int, target_vocabulary: int):
        super().__init__()
        mixer = settings.part("mixer")
        self.masked, self.summarises = mixer.needs_mask, mixer.starts_from_memory
        target_table = nn.Embedding(target_vocabulary, settings.width)
        share_all = settings.tie_embeddings == "all"
        source_table = target_table if share_all else nn.Embedding(source_vocabulary, settings.width)
        self.source_embedding = Embedding(settings, source_table)
        self.target_embedding = Embedding(settings, target_table)
        decoder_layers = settings.decoder_layers or settings.layers
        self.encoder = make_blocks(settings, settings.layers)
        self.decoder = make_blocks(settings, decoder_layers, causal=True, decoder=True)
        # Pre-norm blocks leave their output unnormalised.
        pre_norm = settings.norm == "pre"
        self.encoder_norm = make_norm(settings) if pre_norm else nn.Identity()
        self.decoder_norm = make_norm(settings) if pre_norm else nn.Identity()
        self.to_logits = Head(settings.width, target_vocabulary)
        initialise(self, settings, depth=settings.layers + decoder_layers)
        if settings.tie_embeddings != "none":
            self.to_logits.weight = target_table.weight

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
        source = (source_BS, source_segments_BS, source_positions_BS)
        return self.to_logits(self.hidden(*source, target_BT, target_segments_BT, target_positions_BT))

    def hidden(
        self,
        source_BS: Tensor,
        source_segments_BS: Tensor,
        source_positions_BS: Tensor,
        target_BT: Tensor,
        target_segments_BT: Tensor,
        target_positions_BT: Tensor,
    ) -> Tensor:
        """What the logits are read from: [B, T, D]."""
        memory_BSD = self.encode(source_BS, source_segments_BS, source_positions_BS)
        mask_B1TS = same_segment(target_segments_BT, source_segments_BS)
        memory = Memory(memory_BSD, mask_B1TS, self._summary(memory_BSD, source_segments_BS))
        context = Context.build(target_segments_BT, target_positions_BT, causal=True, memory=memory, masked=self.masked)
        x_BTD = self.target_embedding(target_BT, target_positions_BT)
        return through(self.decoder, self.decoder_norm, x_BTD, context)

    def encode(self, source_BS: Tensor, segments_BS: Tensor, positions_BS: Tensor) -> Tensor:
        """What the encoder makes of the source: [B, S, D]."""
        context = Context.build(segments_BS, positions_BS, causal=False, masked=self.masked)
        x_BSD = self.source_embedding(source_BS, positions_BS)
        return through(self.encoder, self.encoder_norm, x_BSD, context)

    def start(self, source_BS: Tensor, segments_BS: Tensor, beams: int, max_length: int) -> DecoderState:
        """Encode one sentence per row, ready to be decoded with `beams` hypotheses each."""
        positions_BS = torch.arange(source_BS.shape[1], device=source_BS.device).expand_as(source_BS)
        memory_BSD = self.encode(source_BS, segments_BS, positions_BS)
        mask_B11S = (segments_BS != 0)[:, None, None]
        memory = Memory(memory_BSD, mask_B11S, self._summary(memory_BSD, segments_BS))
        rows = len(source_BS) * beams
        blocks = [block.start(rows, max_length, memory_BSD, memory, segments_BS) for block in self._decoder_blocks()]
        return DecoderState(blocks)

    @property
    def has_slots(self) -> bool:
        return all(block.has_slots for block in self._decoder_blocks())

    def start_slots(self, slots: int, beams: int, length: int, source_length: int) -> SlotState:
        """An empty state for sentences that enter and leave one by one, with `beams` hypotheses each."""
        like = self.to_logits.weight
        places = Places(slots, beams, length, like.device)
        return SlotState([block.start_slots(places, source_length, like) for block in self._decoder_blocks()], places)

    def enter(self, source_XS: Tensor, lengths_X: Tensor, slots_X: Tensor, state: SlotState) -> None:
        """Encode sentences, which are filled up to the same length, into some of the slots."""
        position_S = torch.arange(source_XS.shape[1], device=source_XS.device)
        segments_XS = (position_S < lengths_X[:, None]).long()
        memory_XSD = self.encode(source_XS, segments_XS, position_S.expand_as(source_XS))
        for block, block_state in zip(self._decoder_blocks(), state.blocks, strict=True):
            if isinstance(block_state.memory, MemorySlots):
                k_XHSK, v_XHSV = block.cross.keys_and_values(memory_XSD)
                block_state.memory.enter(slots_X, k_XHSK, v_XHSV, lengths_X)

    def step(self, tokens_N: Tensor, state: DecoderState | SlotState) -> Tensor:
        """Feed one token per hypothesis; logits of the one after it: [N, W]."""
        x_ND = self.target_embedding(tokens_N[:, None], state.positions(tokens_N)[:, None])[:, 0]
        for block, block_state in zip(self._decoder_blocks(), state.blocks, strict=True):
            x_ND = block.step(x_ND, block_state)
        state.advance()
        return self.to_logits(self.decoder_norm(x_ND))

    def _summary(self, memory_BSD: Tensor, segments_BS: Tensor) -> Tensor | None:
        """What a decoder may start from: the mean of both ends, where each direction has read everything."""
        if not self.summarises:
            return None
        last_B11 = ((segments_BS != 0).sum(1) - 1).clamp(min=0)[:, None, None]
        last_BD = torch.gather(memory_BSD, 1, last_B11.expand(-1, 1, memory_BSD.shape[-1]))[:, 0]
        return (memory_BSD[:, 0] + last_BD) / 2

    def _decoder_blocks(self) -> Iterator[Block]:
        return (block for block in self.decoder if isinstance(block, Block))
