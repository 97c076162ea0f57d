"""The trunk of a Feedback Transformer: positions are read one after the other, in training too.

    x_t^l = block_l(x_t^{l−1}; memories of t−S … t−1)          l = 1 … L
    m_t   = a mean of x_t^0 … x_t^L                             what later positions see, in every block

So the first block of a position knows what the last block has made of the position before. All of the past is in a
fixed number of memories: a step costs the same however long the text is.

Shapes: B rows · T positions · D model width · N rows at one position
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.layers.block import BlockState
from regard.layers.context import Context
from regard.layers.feedback import FeedbackMemory, Window
from regard.models.state import DecoderState, SlotState
from regard.models.trunk import Trunk
from regard.settings import CausalModel


class FeedbackTrunk(Trunk):
    reads_in_order = True

    def __init__(self, settings: CausalModel, embedding: nn.Module):
        super().__init__(settings, embedding, causal=True)
        self.memory = FeedbackMemory(settings)

    def read(self, x_BTD: Tensor, context: Context) -> Tensor:
        return self._in_order(x_BTD, self.start(len(x_BTD)), context.segments_BT)

    def start(self, rows: int, max_length: int = 0) -> DecoderState:
        """An empty state for this many texts, of any length."""
        windows = self.memory.start(rows, like=next(self.embedding.parameters()))
        each = windows if len(windows) == len(self.blocks) else windows * len(self.blocks)
        return FeedbackState([BlockState(window, None) for window in each], windows=windows)

    def prefill(self, tokens_NT: Tensor, state: DecoderState) -> Tensor:
        context = self._context(tokens_NT, None, None)
        y_NTD = self._in_order(self.embedding(tokens_NT, context.positions_BT), state)
        state.length = tokens_NT.shape[1]
        return y_NTD[:, -1]

    def further(self, x_ND: Tensor, state: DecoderState | SlotState) -> Tensor:
        """Through all blocks, and into memory."""
        assert isinstance(state, FeedbackState)
        layers_LND = [x_ND]
        for block, block_state in zip(self._blocks(), state.blocks, strict=True):
            layers_LND.append(block.step(layers_LND[-1], block_state))
        self.memory.remember(layers_LND, state.windows)
        return layers_LND[-1]

    def _in_order(self, x_BTD: Tensor, state: DecoderState, segments_BT: Tensor | None = None) -> Tensor:
        """[B, T, D]; where a row goes on with another segment, it has no memories."""
        assert isinstance(state, FeedbackState)
        last_BD = []
        for position, x_BD in enumerate(x_BTD.unbind(1)):
            if segments_BT is not None and position:
                state.keep(segments_BT[:, position] == segments_BT[:, position - 1])
            last_BD.append(self.further(x_BD, state))
        y_BTD: Tensor = self.norm(torch.stack(last_BD, dim=1))
        return y_BTD

    @property
    def layers(self) -> list[nn.Module]:
        raise UsageError(
            "The layers of a model with feedback cannot be read one by one.",
            "No layer reads a whole sequence: all layers read a position before the next one begins.",
            'Use a run with model.feedback = "none".',
        )


@dataclass
class FeedbackState(DecoderState):
    """The memories in sight; those that all blocks share are in every block's state, and here once."""

    windows: list[Window] = field(default_factory=list)

    def keep(self, stays_N: Tensor) -> None:
        for window in self.windows:
            window.keep(stays_N)

    def select(self, rows_N: Tensor) -> None:
        for window in self.windows:
            window.select(rows_N)
