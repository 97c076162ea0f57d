"""Recurrence: one position after the other, all of the past in one vector (RNN, LSTM, GRU).

    rnn    h_t = tanh(W x_t + U h_{t−1})
    lstm   (h_t, c_t) = LSTM(x_t, h_{t−1}, c_{t−1})            Hochreiter and Schmidhuber, 1997
    gru     h_t = GRU(x_t, h_{t−1})                             Cho et al., 2014

    y_t = [h_t from the left ; h_t from the right] W_out         in encoders; in decoders from the left only

In a decoder the first state is made from the encoder's output at both ends of the sentence: with nothing looked at
besides, that is all of the source that passes. Rows hold one sequence each, padding at the end.

Shapes: B rows · T positions · D model width · N rows while decoding
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.layers.context import Context, Memory
from regard.layers.mixer import Mixer
from regard.settings import ModelSettings


class Recurrent(Mixer):
    starts_from_memory = True
    compiles = False
    unrolled = True

    cell: ClassVar[type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]]
    vectors: ClassVar[int] = 1  # that the state is made of

    def __init__(self, settings: ModelSettings, causal: bool = False, decoder: bool = False):
        super().__init__(settings, causal, decoder)
        width = settings.width
        self.forwards = self.cell(width, width, batch_first=True)
        self.backwards = None if causal else self.cell(width, width, batch_first=True)
        self.to_out = nn.Linear(width if causal else 2 * width, width, bias=settings.bias)
        self.from_memory = nn.Linear(width, self.vectors * width) if decoder else None

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        y_BTD, _ = self.forwards(x_BTD, self.initial(context.memory))
        if self.backwards is None:
            return self.to_out(y_BTD)
        mirror_BT1 = _mirror(x_BTD, context.segments_BT)
        mirrored_BTD = torch.gather(x_BTD, 1, mirror_BT1.expand_as(x_BTD))
        back_BTD, _ = self.backwards(mirrored_BTD)
        back_BTD = torch.gather(back_BTD, 1, mirror_BT1.expand_as(back_BTD))
        return self.to_out(torch.cat([y_BTD, back_BTD], dim=-1))

    def step(self, x_ND: Tensor, state: RecurrentState) -> Tensor:
        """One position further: [N, D]. Same numbers as `forward` on the whole prefix."""
        y_N1D, state.vectors = self.forwards(x_ND[:, None], state.vectors)
        return self.to_out(y_N1D[:, 0])

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> RecurrentState:
        """The state before the first position."""
        vectors = self.initial(memory)
        if memory is not None and vectors is not None:
            # Every sentence of the memory has the same number of hypotheses.
            state = RecurrentState(vectors)
            state.select(torch.arange(rows, device=like.device) // (rows // len(memory.states_BSD)))
            return state
        zeros_1ND = like.new_zeros(1, rows, self.forwards.hidden_size)
        return RecurrentState((zeros_1ND, zeros_1ND) if self.vectors == 2 else zeros_1ND)

    def prefill(self, x_BTD: Tensor, context: Context, state: RecurrentState) -> Tensor:
        """`forward`, with the last state remembered for the steps that follow."""
        y_BTD, state.vectors = self.forwards(x_BTD, state.vectors)
        return self.to_out(y_BTD)

    def initial(self, memory: Memory | None) -> Tensor | tuple[Tensor, ...] | None:
        """None, for zeros, where there is no source."""
        if self.from_memory is None or memory is None:
            return None
        vectors = tuple(vector_BD[None] for vector_BD in first_state(self.from_memory, memory, self.vectors))
        return vectors if self.vectors == 2 else vectors[0]


class Rnn(Recurrent):
    title = "RNN"
    cell, cell_of_one = nn.RNN, nn.RNNCell


class Lstm(Recurrent):
    title = "LSTM"
    cell, cell_of_one = nn.LSTM, nn.LSTMCell
    vectors = 2  # h and c


class Gru(Recurrent):
    title = "GRU"
    cell, cell_of_one = nn.GRU, nn.GRUCell


@dataclass
class RecurrentState:
    """h, or h and c: [1, N, D] each."""

    vectors: Tensor | tuple[Tensor, ...]

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        if isinstance(self.vectors, Tensor):
            self.vectors = self.vectors[:, rows_N]
        else:
            self.vectors = tuple(vector[:, rows_N] for vector in self.vectors)


def first_state(from_memory: nn.Linear, memory: Memory, vectors: int) -> tuple[Tensor, ...]:
    """h₀ = tanh(W · summary of the source), as in Bahdanau et al.; of an LSTM also c₀: [B, D] each."""
    assert memory.summary_BD is not None
    first_BX = torch.tanh(from_memory(memory.summary_BD))
    return tuple(part_BD.contiguous() for part_BD in first_BX.chunk(vectors, dim=-1))


def _mirror(x_BTD: Tensor, segments_BT: Tensor | None) -> Tensor:
    """Where each position of the sequence read backwards comes from: [B, T, 1]. Padding stays at the end."""
    rows, length, _ = x_BTD.shape
    positions_1T = torch.arange(length, device=x_BTD.device)[None]
    if segments_BT is None:
        return positions_1T.flip(1).expand(rows, -1)[..., None]
    lengths_B1 = (segments_BT != 0).sum(1, keepdim=True)
    return torch.where(positions_1T < lengths_B1, lengths_B1 - 1 - positions_1T, positions_1T)[..., None]
