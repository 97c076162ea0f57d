"""The arithmetic of Hyena and of recurrent cells, number by number.

    Hyena     c = x W_in + b        streams: Σ w c over three neighbours        u ← g ⊙ u        u ← Σ_s w_t−s u_s + d u
    RNN       h = tanh(a)           a = W x + b + U h_t−1 + b
    GRU       h = (1 − u) n + u h_t−1        n = tanh(W x + b + r (U h_t−1 + b))        r, u = σ(a)
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

from regard.explore.notation import read_letter
from regard.explore.session import TracedInput
from regard.explore.stages import layer_of, place_name, stack_with
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
        letters = (read_letter(layer_of(traced, owner)), "W_in", "b_in")
        return [linear_line("c", "", part.read_TD[row], weight_D, bias, at, letters=letters)]
    if quantity == "streams":
        return [_short_convolution(traced, part, stages, row, column)]
    number = hyena.order if quantity == "mixed" else int(quantity[-1])
    stream = _before(hyena, quantity, number)
    z_T = stages[stream][:, column]  # v is the first of the streams
    if quantity.startswith("convolved"):
        return [_long_convolution(traced, part, z_T, stream, number, row, column)]
    gate = float(stages["streams"][row, number * hyena.width + column])
    before = "v" if stream == "streams" else "u"
    line = sum_line(
        "y" if quantity == "mixed" else "u",
        f"g_{number} · {before}",
        z_T[row : row + 1],
        torch.tensor([gate]),
        named=lambda _: f"gate {number}",
        heads=("term", before, f"g_{number}", "product"),
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
        "c",
        "Σ_s w_s c_t+s + b",
        stages["projected"][positions, column],
        weights_S,
        [("b", float(convolution.bias_C[column]))],
        named=lambda index: _piece(traced, part, positions[index]),
        at=lambda index: (f"{part.name}.projected", None, positions[index], column),
        heads=("t + s", "c_t+s", "w_s", "product"),
    )


def _long_convolution(
    traced: TracedInput, part: PartTrace, z_T: Tensor, stage: str, number: int, row: int, column: int
) -> Line:
    hyena: Hyena = part.module
    taps_T = hyena.toeplitz(len(z_T), column, number - 1)[row]
    positions = [position for position in range(len(z_T)) if position <= row or hyena.filter_ahead is not None]
    before = "v" if stage == "streams" else "u"
    skip = [] if hyena.skips is None else [(f"d · {before}_t", float(hyena.skips[number - 1][column] * z_T[row]))]
    return sum_line(
        "u",
        f"Σ_s w_t−s {before}_s" + (f" + d {before}_t" if skip else ""),
        z_T[positions],
        taps_T[positions],
        skip,
        named=lambda index: _piece(traced, part, positions[index]),
        at=lambda index: (f"{part.name}.{stage}", None, positions[index], column),
        heads=("s", f"{before}_s", "w_t−s", "product"),
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
    x: str  # the letter of its input
    h: str  # of its states

    def weights(self, gate: int, number: int) -> tuple[Tensor, Tensor, float, float]:
        """Of one component of a gate: W and U, and a bias of each."""
        row = gate * self.width + number
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_GX, u_GD, b_G, c_G = (_weight(self.cell, name) for name in names)
        return w_GX[row], u_GD[row], float(b_G[row]), float(c_G[row])

    def line(self, symbol: str, gate: int, number: int, then: Callable[[float], float], name: str) -> Line:
        """then(W x + b + U h + b)"""
        w_X, u_D, b, c = self.weights(gate, number)
        of_gate = "" if symbol == self.h else f"_{symbol}"
        return sum_line(
            symbol,
            f"{name}(W{of_gate} {self.x} + U{of_gate} {self.h}_t−1 + b{of_gate})",
            torch.cat([self.x_X, self.h_D]),
            torch.cat([w_X, u_D]),
            [(f"b{of_gate}", b + c)],
            named=lambda index: (
                self.named(index, self.x) if index < len(w_X) else self.named(index - len(w_X), f"{self.h}_t−1")
            ),
            at=lambda index: self.at(index) if index < len(w_X) else self.state_at(index - len(w_X)),
            then=then,
            numbers=lambda total: fmt_call(name, total),
            brief=True,
            heads=("component", "value", "weight", "product"),
        )

    @staticmethod
    def named(index: int, letter: str) -> str:
        return f"{index + 1:,} of {letter}"


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

    x = read_letter(layer_of(traced, part.name))
    letters = (f"[{x}; z]", "s") if searches else (x, "h")
    gates = Gates(to_float64(x_X), state("states"), cell, width, at, state_at, *letters)
    kind = type(cell).__name__.removesuffix("Cell")
    if kind == "RNN":
        return [gates.line(gates.h, 0, number, math.tanh, "tanh")]
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
    reset = gates.line("r", 0, number, _sigmoid, "σ")
    update = gates.line("u", 1, number, _sigmoid, "σ")
    w_X, u_D, b, c = gates.weights(2, number)
    x, h = gates.x, gates.h
    past = sum_line(
        "c",
        f"U_n {h}_t−1 + b_U",
        gates.h_D,
        u_D,
        [("b_U", c)],
        at=gates.state_at,
        heads=("i", f"{h}_i", "U_i", "product"),
    )
    new = sum_line(
        "n",
        f"tanh(W_n {x} + b_n + r · c)",
        gates.x_X,
        w_X,
        [("b_n", b), ("r · c", reset.value * past.value)],
        at=gates.at,
        then=math.tanh,
        numbers=lambda total: fmt_call("tanh", total),
        heads=("i", f"{x}_i", "W_i", "product"),
    )
    previous = float(gates.h_D[number])
    state = (1 - update.value) * new.value + update.value * previous
    numbers = f"(1 − {fmt(update.value)}) · {fmt(new.value)} + {fmt(update.value)} · {fmt(previous)}"
    return [reset, update, past, new, Line(h, f"(1 − u) · n + u · {h}_t−1", state, numbers=numbers)]


def _lstm(gates: Gates, number: int, previous: float) -> list[Line]:
    functions = (("i", _sigmoid, "σ"), ("f", _sigmoid, "σ"), ("g", math.tanh, "tanh"), ("o", _sigmoid, "σ"))
    lines = [
        gates.line(symbol, gate, number, function, name) for gate, (symbol, function, name) in enumerate(functions)
    ]
    i, f, g, o = (line.value for line in lines)
    c = f * previous + i * g
    memory = Line("c", "f · c_t−1 + i · g", c, numbers=f"{fmt(f)} · {fmt(previous)} + {fmt(i)} · {fmt(g)}")
    state = Line(gates.h, "o · tanh(c)", o * math.tanh(c), numbers=f"{fmt(o)} · {fmt_call('tanh', c)}")
    return [*lines, memory, state]


def _weight(cell: Any, name: str) -> Tensor:
    """A weight of an nn.GRUCell, or of an nn.GRU, where its name ends in the layer's number."""
    weight: Tensor = getattr(cell, name if isinstance(cell, nn.RNNCellBase) else f"{name}_l0")
    return weight


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


# ---------------------------------------------------------------- Bahdanau's output


def _pair(traced: TracedInput, part: PartTrace, stages: Stages, row: int, column: int) -> Line:
    """One component of [s; x; z] W."""
    layer, owner = part.module.to_pairs, part.name
    x_X, input_at = _cell_input(traced, part, row)
    states_D = stages["states"][row]
    width = len(states_D)

    def at(index: int) -> Cell | None:
        return (f"{owner}.states", None, row, index) if index < width else input_at(index - width)

    x = read_letter(layer_of(traced, owner))
    letters = (f"[s; {x}; z]", "W", "b")
    return linear_line(
        "y′", "", torch.cat([states_D, x_X]), layer.weight[column], layer.bias[column], at, letters=letters
    )


def _maxout(owner: str, pairs_X: Tensor, row: int, column: int) -> Line:
    """The larger component of a pair."""
    pair = pairs_X[2 * column : 2 * column + 2]
    larger = 2 * column + int(pair.argmax())
    return sum_line(
        "y",
        f"max({', '.join(fmt(float(each)).strip('()') for each in pair)})",
        pairs_X[larger : larger + 1],
        named=lambda _: f"component {larger + 1:,} of the pairs",
        at=lambda _: (f"{owner}.pairs", None, row, larger),
    )


def search_query(traced: TracedInput, part: PartTrace, row: int, column: int) -> Line:
    """Bahdanau's query: a linear map of the state before the position."""
    stages, layer = stages_of(traced, part), part.module.alignment.to_query
    state_D = stages["states"][row - 1] if row else stages[INITIAL][0]
    bias = None if layer.bias is None else layer.bias[column]

    def at(index: int) -> Cell | None:
        return (f"{part.name}.states", None, row - 1, index) if row else None

    return linear_line("q", "", state_D, layer.weight[column], bias, at, letters=("s_t−1", "W_Q", "b_Q"))


def _piece(traced: TracedInput, part: PartTrace, position: int) -> str:
    return place_name(stack_with(traced.trace, part), position)
