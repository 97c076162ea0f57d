"""The trunk that one-stack models share: embedding, blocks, norm.

    x = norm(block_n(… block_1(embed(tokens))))

With a causal order it is the body of GPT, without it that of BERT; over patches of images, of ViT. What is read
from it is up to the head.

Shapes: B rows · T positions · D model width · N rows while generating
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.layers.block import Block, make_blocks
from regard.layers.context import Context
from regard.layers.norm import make_norm
from regard.layers.slots import Places
from regard.models.stack import through
from regard.models.state import DecoderState, SlotState
from regard.settings import ModelSettings


class Trunk(nn.Module):
    reads_in_order = False  # whether each position passes all blocks before the next one does

    def __init__(self, settings: ModelSettings, embedding: nn.Module, causal: bool):
        super().__init__()
        self.causal = causal
        self.masked = settings.part("mixer").needs_mask
        self.embedding = embedding
        self.blocks = make_blocks(settings, settings.layers, causal)
        # Pre-norm blocks leave their output unnormalised.
        self.norm = make_norm(settings) if settings.norm == "pre" else nn.Identity()

    def forward(
        self, tokens_BT: Tensor, segments_BT: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> Tensor:
        """What the last block makes of every position: [B, T, D]. Without segments, each row is one text."""
        context = self._context(tokens_BT, segments_BT, positions_BT)
        return self.read(self.embedding(tokens_BT, context.positions_BT), context)

    def read(self, x_BTD: Tensor, context: Context) -> Tensor:
        """What the last block makes of vectors that stand for anything: [B, T, D]."""
        return through(self.blocks, self.norm, x_BTD, context)

    @property
    def layers(self) -> list[nn.Module]:
        """The embedding, and every block: each gives [B, T, D]."""
        return [self.embedding, *self.blocks]

    def start(self, rows: int, max_length: int) -> DecoderState:
        """An empty state for this many texts of at most `max_length` tokens."""
        like = next(self.embedding.parameters())
        return DecoderState([block.start(rows, max_length, like) for block in self._blocks()])

    def prefill(self, tokens_NT: Tensor, state: DecoderState) -> Tensor:
        """Feed the first tokens of every text at once; the last position's vector: [N, D]."""
        context = self._context(tokens_NT, None, None)
        x_NTD = self.embedding(tokens_NT, context.positions_BT)
        for block, block_state in zip(self._blocks(), state.blocks, strict=True):
            x_NTD = block.prefill(x_NTD, context, block_state)
        state.length = tokens_NT.shape[1]
        return self.norm(x_NTD[:, -1])

    def step(self, tokens_N: Tensor, state: DecoderState | SlotState) -> Tensor:
        """Feed one token per text; that position's vector: [N, D]. Same numbers as `forward`, if causal."""
        x_ND = self.embedding(tokens_N[:, None], state.positions(tokens_N)[:, None])[:, 0]
        x_ND = self.further(x_ND, state)
        state.advance()
        return self.norm(x_ND)

    def further(self, x_ND: Tensor, state: DecoderState | SlotState) -> Tensor:
        """One position through all blocks: [N, D]."""
        for block, block_state in zip(self._blocks(), state.blocks, strict=True):
            x_ND = block.step(x_ND, block_state)
        return x_ND

    @property
    def has_slots(self) -> bool:
        return all(block.has_slots for block in self._blocks())

    def start_slots(self, slots: int, length: int, at_once: int = 1) -> SlotState:
        """An empty state for texts of at most `length` tokens that enter and leave one by one.

        `at_once`: how many successive tokens of each text a step feeds, as rows: those of the first text, of the next …
        """
        like = next(self.embedding.parameters())
        places = Places(slots, 1, length, like.device, at_once)
        return SlotState([block.start_slots(places, 0, like) for block in self._blocks()], places)

    def enter(self, tokens_XT: Tensor, lengths_X: Tensor, slots_X: Tensor, state: SlotState) -> None:
        """Read the first tokens of texts, which are filled up to the same length, into some of the slots."""
        context = self._context(tokens_XT, None, None)
        x_XTD = self.embedding(tokens_XT, context.positions_BT)
        for block, block_state in zip(self._blocks(), state.entering(slots_X, lengths_X), strict=True):
            x_XTD = block.prefill(x_XTD, context, block_state)

    def _context(self, tokens_BT: Tensor, segments_BT: Tensor | None, positions_BT: Tensor | None) -> Context:
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]  # the same for all rows
        return Context.build(segments_BT, positions_BT, causal=self.causal, masked=self.masked)

    def _blocks(self) -> Iterator[Block]:
        return (block for block in self.blocks if isinstance(block, Block))
