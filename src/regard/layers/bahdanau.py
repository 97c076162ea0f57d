"""Bahdanau's decoder as published: it looks at the source before each word, and what it finds enters the recurrence.

    e_ij = vᵀ tanh(W s_{i−1} + U h_j)        α_ij = softmax over j of e_ij        c_i = Σ_j α_ij h_j
    s_i  = GRU([x_i ; c_i], s_{i−1})         s_0  = tanh(W_s · summary of the source)
    t_i  = maxout(U_o s_i + V_o x_i + C_o c_i)           y_i = t_i W_out             maxout: the larger of each two

(Bahdanau et al., 2015, appendix A; x_i is the word before, h_j the source.) The query is the state *before* the word,
so positions must be taken one after the other, in training too. `additive` is the other form: there a whole recurrent
layer has read the sentence first, each of its states s_i then looks at the source, and c_i is added to it.

What is not from the paper: the cell is torch's (its reset gate acts on U s, not on s), and may be another than a GRU;
the output is made from s_i as in the paper's main text, where its appendix has s_{i−1}; and as everywhere here, a
residual connection and a norm are around it.

Shapes: B rows · T target positions · S source positions · D model width · N rows while decoding
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.layers.additive import AdditiveMemory, Alignment
from regard.layers.attention_trace import AttentionTrace
from regard.layers.context import Context, Memory
from regard.layers.mixer import Mixer
from regard.layers.recurrent import Recurrent, first_state
from regard.settings import ModelSettings

CellState = Tensor | tuple[Tensor, ...]  # s; of an LSTM, s and its own memory: [B, D] each


class RecurrentSearch(Mixer):
    """The mixer and the cross-attention of a decoder in one."""

    title = "recurrence with attention"
    starts_from_memory = True
    compiles = False
    unrolled = True

    def __init__(self, settings: ModelSettings):
        super().__init__(settings, causal=True, decoder=True)
        width = settings.width
        recurrent: type[Recurrent] = settings.part("mixer")
        assert recurrent.cell_of_one is not None
        self.vectors = recurrent.vectors
        self.alignment = Alignment(settings)
        self.cell = recurrent.cell_of_one(2 * width, width)
        self.from_memory = nn.Linear(width, self.vectors * width)
        self.to_pairs = nn.Linear(3 * width, 2 * width)
        self.to_out = nn.Linear(width, width, bias=settings.bias)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        cells, found_BTD = self.read(x_BTD, context)
        states_BTD = torch.stack([_visible(cell) for cell in cells[1:]], dim=1)
        return self._write(states_BTD, x_BTD, found_BTD)

    def step(self, x_ND: Tensor, state: SearchState) -> Tensor:
        """One position further, for the N = B · beams hypotheses of B sentences: [N, D]."""
        found_ND = self.alignment.look(_visible(state.cell), state.memory)
        state.cell = self.cell(torch.cat([x_ND, found_ND], dim=-1), state.cell)
        return self._write(_visible(state.cell), x_ND, found_ND)

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> SearchState:
        """The state before the first position."""
        assert memory is not None
        source = self.alignment.remember(memory.states_BSD, memory.seen_B1TS[:, 0, :1])
        state = SearchState(self._first_cell(memory), source)
        # Every sentence of the memory has the same number of hypotheses.
        state.select(torch.arange(rows, device=like.device) // (rows // len(memory.states_BSD)))
        return state

    def trace(self, x_BTD: Tensor, context: Context) -> AttentionTrace:
        """The formulas written out for all positions at once, from the states before them; as one head."""
        cells, _ = self.read(x_BTD, context)
        vectors = [torch.stack(each, dim=1) for each in zip(*(_vectors(cell) for cell in cells[:-1]), strict=True)]
        aligned = self.alignment.written_out(vectors[0], context, nn.Identity())
        found_BTD = aligned.heads_BHTV[:, 0]
        before = tuple(vector_BTD.flatten(0, 1) for vector_BTD in vectors)
        inputs = torch.cat([x_BTD, found_BTD], dim=-1).flatten(0, 1)
        after = self.cell(inputs, before if self.vectors == 2 else before[0])
        states_BTD = _visible(after).view_as(x_BTD)
        return dataclasses.replace(aligned, output_BTD=self._write(states_BTD, x_BTD, found_BTD))

    def read(self, x_BTD: Tensor, context: Context) -> tuple[list[CellState], Tensor]:
        """One position after the other: s_0 … s_T, and all c_i, [B, T, D]."""
        memory = context.memory
        assert memory is not None
        masks = memory.seen_B1TS[:, 0].expand(-1, x_BTD.shape[1], -1).split(1, dim=1)
        source = self.alignment.remember(memory.states_BSD, masks[0])
        cells, found = [self._first_cell(memory)], []
        for x_BD, mask_B1S in zip(x_BTD.unbind(1), masks, strict=True):
            source.mask_B1S = mask_B1S
            found.append(self.alignment.look(_visible(cells[-1]), source))
            cells.append(self.cell(torch.cat([x_BD, found[-1]], dim=-1), cells[-1]))
        return cells, torch.stack(found, dim=1)

    def _write(self, states: Tensor, x: Tensor, found: Tensor) -> Tensor:
        """What the word is read from, at one position or at all: [..., D]."""
        pairs = self.to_pairs(torch.cat([states, x, found], dim=-1))
        return self.to_out(pairs.unflatten(-1, (-1, 2)).amax(-1))

    def _first_cell(self, memory: Memory) -> CellState:
        vectors = first_state(self.from_memory, memory, self.vectors)
        return vectors if self.vectors == 2 else vectors[0]


@dataclass
class SearchState:
    """The cell, a row for each hypothesis; and the source, a row for each sentence."""

    cell: CellState
    memory: AdditiveMemory

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        vectors = tuple(vector_ND[rows_N] for vector_ND in _vectors(self.cell))
        self.cell = vectors if len(vectors) == 2 else vectors[0]


def _vectors(cell: CellState) -> tuple[Tensor, ...]:
    return (cell,) if isinstance(cell, Tensor) else cell


def _visible(cell: CellState) -> Tensor:
    """s: what others see of the state."""
    return _vectors(cell)[0]
