"""What every encoder–decoder has: blocks that read a source, whatever it is, and blocks that write about it.

    memory = encoder(source)
    logits = decoder(target so far, memory) Eᵀ            E: the target embedding, when tied

A subclass says how its source is read: tokens (`seq2seq`), or images (`captioner`). Words of the source may also be
copied: then `layers/copying.py` adds to the logits.

Shapes: B rows · S source positions · T target positions · D model width · W words in the vocabulary
        R numbers that a source is given as · X sources that enter · N hypotheses while decoding (N = B · K beams)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from regard.data.tokenizers import SPECIALS
from regard.layers.block import Block, make_blocks
from regard.layers.context import Context, Memory
from regard.layers.copying import Copying, CopySource
from regard.layers.embedding import Embedding
from regard.layers.head import Head
from regard.layers.norm import make_norm
from regard.layers.slots import MemorySlots, Places
from regard.models.initialise import initialise
from regard.models.stack import through
from regard.models.state import DecoderState, SlotState
from regard.settings import PairModel, TranslationModel


class EncoderDecoder(nn.Module):
    def __init__(
        self, settings: TranslationModel, target_vocabulary: int, source_embedding: Callable[[nn.Embedding], nn.Module]
    ):
        """`source_embedding` makes vectors of the source; it may share the table of the target, which it is given."""
        super().__init__()
        mixer = settings.part("mixer")
        self.masked, self.summarises = mixer.needs_mask, mixer.starts_from_memory
        target_table = nn.Embedding(target_vocabulary, settings.width)
        self.source_embedding = source_embedding(target_table)
        self.target_embedding = Embedding(settings, target_table)
        decoder_layers = settings.decoder_layers or settings.layers
        self.encoder = make_blocks(settings, settings.layers)
        self.decoder = make_blocks(settings, decoder_layers, causal=True, decoder=True)
        # Pre-norm blocks leave their output unnormalised.
        pre_norm = settings.norm == "pre"
        self.encoder_norm = make_norm(settings) if pre_norm else nn.Identity()
        self.decoder_norm = make_norm(settings) if pre_norm else nn.Identity()
        self.to_logits = Head(settings.width, target_vocabulary)
        copies = isinstance(settings, PairModel) and settings.copy
        self.copying = Copying(settings.width) if copies else None
        initialise(self, settings, depth=settings.layers + decoder_layers)
        if settings.tie_embeddings != "none":
            self.to_logits.weight = target_table.weight

    # ------------------------------------------------------------ the source

    @abstractmethod
    def read(self, source_XR: Tensor, lengths_X: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder makes of sources, as a request gives them, filled up to the same length.

        [X, S, D], and how many of these positions are of each source: [X].
        """

    def source_positions(self, length: int) -> int:
        """How many positions a source of so many numbers takes in the encoder."""
        return length

    # ------------------------------------------------------------ the target

    def decode(self, memory: Memory, target_BT: Tensor, segments_BT: Tensor | None, positions_BT: Tensor) -> Tensor:
        """What the logits of the next token are read from, at every target position: [B, T, D]."""
        context = Context.build(segments_BT, positions_BT, causal=True, memory=memory, masked=self.masked)
        x_BTD = self.target_embedding(target_BT, positions_BT)
        return through(self.decoder, self.decoder_norm, x_BTD, context)

    def copy_source(self, memory_BSD: Tensor, source_BS: Tensor, seen_BTS: Tensor) -> CopySource | None:
        """What can be copied, and from where; None in a model that does not copy.

        That is words alone: that a text ends is not in its source.
        """
        if self.copying is None:
            return None
        return self.copying.source(memory_BSD, source_BS, seen_BTS & (source_BS >= len(SPECIALS))[:, None])

    def with_copies(self, logits_BTW: Tensor, x_BTD: Tensor, source: CopySource | None) -> Tensor:
        """The logits, with those of what can be copied: [B, T, W]."""
        if self.copying is None or source is None:
            return logits_BTW
        copied_BTW: Tensor = self.copying(logits_BTW, x_BTD, source)
        return copied_BTW

    def start(self, source_BR: Tensor, segments_BR: Tensor, beams: int, max_length: int) -> DecoderState:
        """Read one source per row, ready to be decoded with `beams` hypotheses each. Segment 0 is filling."""
        memory_BSD, lengths_B = self.read(source_BR, (segments_BR != 0).sum(1))
        segments_BS = segments_of(lengths_B, memory_BSD.shape[1])
        mask_B11S = (segments_BS != 0)[:, None, None]
        memory = Memory(memory_BSD, mask_B11S, self._summary(memory_BSD, segments_BS))
        rows = len(source_BR) * beams
        blocks = [block.start(rows, max_length, memory_BSD, memory, segments_BS) for block in self._decoder_blocks()]
        return DecoderState(blocks, source=self.copy_source(memory_BSD, source_BR, mask_B11S[:, 0]))

    @property
    def has_slots(self) -> bool:
        return all(block.has_slots for block in self._decoder_blocks())

    def start_slots(self, slots: int, beams: int, length: int, source_length: int) -> SlotState:
        """An empty state for texts that enter and leave one by one, with `beams` hypotheses each."""
        like = self.to_logits.weight
        places = Places(slots, beams, length, like.device)
        source = CopySource.empty(slots, source_length, like) if self.copying is not None else None
        blocks = [block.start_slots(places, source_length, like) for block in self._decoder_blocks()]
        return SlotState(blocks, places, source)

    def enter(self, source_XR: Tensor, lengths_X: Tensor, slots_X: Tensor, state: SlotState) -> None:
        """Read sources, which are filled up to the same length, into some of the slots."""
        memory_XSD, lengths_X = self.read(source_XR, lengths_X)
        for block, block_state in zip(self._decoder_blocks(), state.blocks, strict=True):
            if isinstance(block_state.memory, MemorySlots):
                k_XHSK, v_XHSV = block.cross.keys_and_values(memory_XSD)
                block_state.memory.enter(slots_X, k_XHSK, v_XHSV, lengths_X)
        if state.source is not None:
            seen_X1S = (segments_of(lengths_X, memory_XSD.shape[1]) != 0)[:, None]
            source = self.copy_source(memory_XSD, source_XR, seen_X1S)
            assert source is not None
            state.source.enter(slots_X, source)

    def step(self, tokens_N: Tensor, state: DecoderState | SlotState) -> Tensor:
        """Feed one token per hypothesis; logits of the one after it: [N, W]."""
        x_ND = self.target_embedding(tokens_N[:, None], state.positions(tokens_N)[:, None])[:, 0]
        for block, block_state in zip(self._decoder_blocks(), state.blocks, strict=True):
            x_ND = block.step(x_ND, block_state)
        state.advance()
        x_ND = self.decoder_norm(x_ND)
        logits_NW: Tensor = self.to_logits(x_ND)
        if state.source is None:
            return logits_NW
        # The hypotheses of a source stand where a row has its positions.
        logits_BKW, x_BKD = (x.unflatten(0, (len(state.source.words_BS), -1)) for x in (logits_NW, x_ND))
        return self.with_copies(logits_BKW, x_BKD, state.source).flatten(0, 1)

    def _summary(self, memory_BSD: Tensor, segments_BS: Tensor | None) -> Tensor | None:
        """What a decoder may start from: the mean of both ends, where each direction has read everything."""
        if not self.summarises:
            return None
        if segments_BS is None:
            return (memory_BSD[:, 0] + memory_BSD[:, -1]) / 2
        last_B11 = ((segments_BS != 0).sum(1) - 1).clamp(min=0)[:, None, None]
        last_BD = torch.gather(memory_BSD, 1, last_B11.expand(-1, 1, memory_BSD.shape[-1]))[:, 0]
        return (memory_BSD[:, 0] + last_BD) / 2

    def _decoder_blocks(self) -> Iterator[Block]:
        return (block for block in self.decoder if isinstance(block, Block))


def segments_of(lengths_X: Tensor, length: int) -> Tensor:
    """1 where there is something of a source, 0 behind its end: [X, length]."""
    return (torch.arange(length, device=lengths_X.device) < lengths_X[:, None]).long()
