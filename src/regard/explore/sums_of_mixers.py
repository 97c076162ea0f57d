"""The arithmetic of Hyena and of recurrent cells, number by number.

    Hyena     c = x W_in + b        streams: Σ w c over three neighbours        z ← x ⊙ z        z ← Σ_s h_t−s z_s + D z
    RNN       h = tanh(a)           a = W x + b + U h_t−1 + b
    GRU       h = (1 − z) n + z h_t−1        n = tanh(W x + b + r (U h_t−1 + b))        r, z = σ(a)
    LSTM      h = o tanh(c)         c = f c_t−1 + i g        i, f, o = σ(a), g = tanh(a)

Shapes: T positions · D model width · X width of a cell's input
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.session import TracedInput
from regard.explore.stages import stack_with
from regard.explore.stages_of_mixers import stages as stages_of
from regard.explore.sums import Cell, Line, fmt, fmt_call, linear_line, row_cells, sum_line, to_float64
from regard.inside.formulas import INITIAL, Stages
from regard.inside.parts import PartTrace
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.hyena import SHORT, Hyena


def mixer_lines(traced: TracedInput, owner: str, quantity: str, row: int, column: int) -> list[Line]:
    """How a number of a stage (stages_of_mixers.py) was computed."""
    part = traced.part(owner)
    stages = stages_of(traced, part)
    if isinstance(part.module, Hyena):
        return _hyena(traced, part, stages, quantity, row, column)
    if quantity == "mixed" and isinstance(part.module, RecurrentSearch):
        return [_maxout(owner, stages["pairs"][row], row, column)]
    if quantity == "pairs":
        return [_pair(traced, part, stages, row, column)]
    return _recurrent(traced, part, stages, quantity, row, column)


# ---------------------------------------------------------------- Hyena


def _hyena(traced: TracedInput, part: PartTrace, stages: Stages, quantity: str, row: int, column: int) -> list[Line]:
    hyena: Hyena = part.module
    owner = part.name
    if quantity == "projected":
        bias = None if hyena.to_streams.bias is None else hyena.to_streams.bias[column]
        weight_D = hyena.to_streams.weight[column]
        at = row_cells(f"{owner}.read", row)
        return [linear_line("c", "Σ_d x_d W_d + b", part.read_TD[row], weight_D, bias, at)]
    if quantity == "streams":
        return [_short_convolution(traced, part, stages, row, column)]
    number = hyena.order if quantity == "mixed" else int(quantity[-1])
    stream = _before(hyena, quantity, number)
    z_T = stages[stream][:, column]  # v is the first of the streams
    if quantity.startswith("convolved"):
        return [_long_convolution(traced, part, z_T, stream, number, row, column)]
    gate = float(stages["streams"][row, number * hyena.width + column])
    line = sum_line(
        "z",
        f"x_{number} · z",
        z_T[row : row + 1],
        torch.tensor([gate]),
        named=lambda _: f"gate {number}",
        at=lambda _: (f"{owner}.{stream}", None, row, column),
        right_at=lambda _: (f"{owner}.streams", None, row, number * hyena.width + column),
    )
    return [line]


def _before(hyena: Hyena, quantity: str, number: int) -> str:
    """The stage that a stage reads. Gates and convolutions alternate; in the paper, a convolution comes first."""
    convolves_first = hyena.skips is None
    if quantity.startswith("convolved"):
        earlier = number - 1 if convolves_first else number
        return f"gated{earlier}" if earlier else "streams"
    earlier = number if convolves_first else number - 1
    return f"convolved{earlier}" if earlier else "streams"


def _short_convolution(traced: TracedInput, part: PartTrace, stages: Stages, row: int, column: int) -> Line:
    convolution = part.module.short
    first = row - convolution.left
    positions = [position for position in range(first, first + SHORT) if 0 <= position < len(part.read_TD)]
    weights_S = convolution.weight_C1S[column, 0][[position - first for position in positions]]
    return sum_line(
        "c′",
        "Σ_s w_s c_s + b",
        stages["projected"][positions, column],
        weights_S,
        [("b", float(convolution.bias_C[column]))],
        named=lambda index: _piece(traced, part, positions[index]),
        at=lambda index: (f"{part.name}.projected", None, positions[index], column),
    )


def _long_convolution(
    traced: TracedInput, part: PartTrace, z_T: Tensor, stage: str, number: int, row: int, column: int
) -> Line:
    hyena: Hyena = part.module
    taps_T = hyena.toeplitz(len(z_T), column, number - 1)[row]
    positions = [position for position in range(len(z_T)) if position <= row or hyena.filter_ahead is not None]
    skip = [] if hyena.skips is None else [("D · z", float(hyena.skips[number - 1][column] * z_T[row]))]
    return sum_line(
        "z",
        "Σ_s h_t−s z_s" + (" + D z_t" if skip else ""),
        z_T[positions],
        taps_T[positions],
        skip,
        named=lambda index: _piece(traced, part, positions[index]),
        at=lambda index: (f"{part.name}.{stage}", None, positions[index], column),
    )


# ---------------------------------------------------------------- recurrence


@dataclass(frozen=True)
class Gates:
    """A recurrent cell at one position: its input, the previous state, and the weights of its gates."""

    x_X: Tensor
    h_D: Tensor
    cell: Any
    width: int
    at: Callable[[int], Cell | None]  # the cells of its input
    state_at: Callable[[int], Cell | None]

    def weights(self, gate: int, number: int) -> tuple[Tensor, Tensor, float, float]:
        """Of one number of a gate: W and U, and a bias of each."""
        row = gate * self.width + number
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_GX, u_GD, b_G, c_G = (_weight(self.cell, name) for name in names)
        return w_GX[row], u_GD[row], float(b_G[row]), float(c_G[row])

    def line(
        self, symbol: str, formula: str, gate: int, number: int, then: Callable[[float], float], name: str
    ) -> Line:
        """then(W x + b + U h + b)"""
        w_X, u_D, b, c = self.weights(gate, number)
        return sum_line(
            symbol,
            formula,
            torch.cat([self.x_X, self.h_D]),
            torch.cat([w_X, u_D]),
            [("b", b + c)],
            named=lambda index: f"x {index + 1}" if index < len(w_X) else f"h {index - len(w_X) + 1}",
            at=lambda index: self.at(index) if index < len(w_X) else self.state_at(index - len(w_X)),
            then=then,
            numbers=lambda total: fmt_call(name, total),
            brief=True,
        )


def _recurrent(
    traced: TracedInput, part: PartTrace, stages: Stages, quantity: str, row: int, column: int
) -> list[Line]:
    module = part.module
    searches = isinstance(module, RecurrentSearch)
    width = part.read_TD.shape[1]
    backwards = column >= width
    cell = module.cell if searches else module.backwards if backwards else module.forwards
    number, previous = column % width, row + 1 if backwards else row - 1
    columns = slice(width, 2 * width) if backwards else slice(0, width)
    has_previous = 0 <= previous < len(part.read_TD)

    def state(name: str) -> Tensor:
        initial = INITIAL if name == "states" else f"{INITIAL} {name}"
        return to_float64((stages[name][previous] if has_previous else stages[initial][0])[columns])

    x_X, at = _cell_input(traced, part, row)

    def state_at(index: int) -> Cell | None:
        return (f"{part.name}.states", None, previous, columns.start + index) if has_previous else None

    gates = Gates(to_float64(x_X), state("states"), cell, width, at, state_at)
    kind = type(cell).__name__.removesuffix("Cell")
    if kind == "RNN":
        return [gates.line("h", "tanh(W x + U h_t−1 + b)", 0, number, math.tanh, "tanh")]
    if kind == "GRU":
        return _gru(gates, number)
    lines = _lstm(gates, number, float(state("memories")[number]))
    return lines[:-1] if quantity == "memories" else lines


def _cell_input(traced: TracedInput, part: PartTrace, row: int) -> tuple[Tensor, Callable[[int], Cell | None]]:
    """The input of a cell at a position; in Bahdanau's decoder, with the attention over the source concatenated."""
    owner, x_D = part.name, part.read_TD[row]
    if not isinstance(part.module, RecurrentSearch):
        return x_D, row_cells(f"{owner}.read", row)
    context_D = traced.attention(owner).heads_BHTV[0, 0, row]
    width = len(x_D)

    def at(index: int) -> Cell:
        return (f"{owner}.read", None, row, index) if index < width else (f"{owner}.heads", 0, row, index - width)

    return torch.cat([x_D, context_D]), at


def _gru(gates: Gates, number: int) -> list[Line]:
    reset = gates.line("r", "σ(W_r x + U_r h_t−1 + b)", 0, number, _sigmoid, "σ")
    update = gates.line("z", "σ(W_z x + U_z h_t−1 + b)", 1, number, _sigmoid, "σ")
    w_X, u_D, b, c = gates.weights(2, number)
    past = sum_line("u", "U_n h_t−1 + b", gates.h_D, u_D, [("b", c)], named=lambda d: f"h {d + 1}", at=gates.state_at)
    new = sum_line(
        "n",
        "tanh(W_n x + b + r · u)",
        gates.x_X,
        w_X,
        [("b", b), ("r · u", reset.value * past.value)],
        named=lambda d: f"x {d + 1}",
        at=gates.at,
        then=math.tanh,
        numbers=lambda total: fmt_call("tanh", total),
    )
    previous = float(gates.h_D[number])
    state = (1 - update.value) * new.value + update.value * previous
    numbers = f"(1 − {fmt(update.value)}) · {fmt(new.value)} + {fmt(update.value)} · {fmt(previous)}"
    return [reset, update, past, new, Line("h", "(1 − z) · n + z · h_t−1", state, numbers=numbers)]


def _lstm(gates: Gates, number: int, previous: float) -> list[Line]:
    functions = (("i", _sigmoid, "σ"), ("f", _sigmoid, "σ"), ("g", math.tanh, "tanh"), ("o", _sigmoid, "σ"))
    lines = [
        gates.line(symbol, f"{name}(W_{symbol} x + U_{symbol} h_t−1 + b)", gate, number, function, name)
        for gate, (symbol, function, name) in enumerate(functions)
    ]
    i, f, g, o = (line.value for line in lines)
    c = f * previous + i * g
    memory = Line("c", "f · c_t−1 + i · g", c, numbers=f"{fmt(f)} · {fmt(previous)} + {fmt(i)} · {fmt(g)}")
    state = Line("h", "o · tanh(c)", o * math.tanh(c), numbers=f"{fmt(o)} · {fmt_call('tanh', c)}")
    return [*lines, memory, state]


def _weight(cell: Any, name: str) -> Tensor:
    """A weight of an nn.GRUCell, or of an nn.GRU, where its name ends in the layer's number."""
    weight: Tensor = getattr(cell, name if isinstance(cell, nn.RNNCellBase) else f"{name}_l0")
    return weight


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


# ---------------------------------------------------------------- Bahdanau's output


def _pair(traced: TracedInput, part: PartTrace, stages: Stages, row: int, column: int) -> Line:
    """One number of [s; x; c] W."""
    layer, owner = part.module.to_pairs, part.name
    x_X, input_at = _cell_input(traced, part, row)
    states_D = stages["states"][row]
    width = len(states_D)

    def at(index: int) -> Cell | None:
        return (f"{owner}.states", None, row, index) if index < width else input_at(index - width)

    return linear_line(
        "t", "[s; x; c] · W + b", torch.cat([states_D, x_X]), layer.weight[column], layer.bias[column], at
    )


def _maxout(owner: str, pairs_X: Tensor, row: int, column: int) -> Line:
    """The larger number of a pair."""
    pair = pairs_X[2 * column : 2 * column + 2]
    larger = 2 * column + int(pair.argmax())
    return sum_line(
        "t",
        f"max({fmt(float(pair[0]))}, {fmt(float(pair[1]))})",
        pairs_X[larger : larger + 1],
        named=lambda _: f"number {larger + 1} of the pairs",
        at=lambda _: (f"{owner}.pairs", None, row, larger),
    )


def search_query(traced: TracedInput, part: PartTrace, row: int, column: int) -> Line:
    """Bahdanau's query: a linear map of the state before the position."""
    stages, layer = stages_of(traced, part), part.module.alignment.to_query
    state_D = stages["states"][row - 1] if row else stages[INITIAL][0]
    bias = None if layer.bias is None else layer.bias[column]

    def at(index: int) -> Cell | None:
        return (f"{part.name}.states", None, row - 1, index) if row else None

    return linear_line("q", "Σ_d s_d W_d + b", state_D, layer.weight[column], bias, at)


def _piece(traced: TracedInput, part: PartTrace, position: int) -> str:
    return stack_with(traced.trace, part).stack.pieces[position]
