"""The arithmetic of Hyena and of recurrent cells, number by number.

    Hyena     c = x W_in + b        streams: Σ w c over three neighbours        z ← x ⊙ z        z ← Σ_s h_t−s z_s + D z
    RNN       h = tanh(a)           a = W x + b + U h_t−1 + b
    GRU       h = (1 − z) n + z h_t−1        n = tanh(W x + b + r (U h_t−1 + b))        r, z = σ(a)
    LSTM      h = o tanh(c)         c = f c_t−1 + i g        i, f, o = σ(a), g = tanh(a)

Shapes: T positions · D model width · X width of what a cell reads
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.session import Looked
from regard.explore.stages_of_mixers import stages
from regard.explore.sums import Cell, Line, called, exact, product, short, summed
from regard.inside.formulas import INITIAL, Stages
from regard.inside.parts import PartTrace
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.hyena import SHORT, Hyena


def mixer_lines(looked: Looked, of: str, what: str, row: int, column: int) -> list[Line]:
    """How a number of a stage (stages_of_mixers.py) came about."""
    part = looked.part(of)
    made = stages(looked, part)
    if isinstance(part.module, Hyena):
        return _hyena(looked, part, made, what, row, column)
    if what == "mixed" and isinstance(part.module, RecurrentSearch):
        return [_larger(of, made["pairs"][row], row, column)]
    if what == "pairs":
        return [_pair(looked, part, made, row, column)]
    return _recurrent(looked, part, made, what, row, column)


# ---------------------------------------------------------------- Hyena


def _hyena(looked: Looked, part: PartTrace, made: Stages, what: str, row: int, column: int) -> list[Line]:
    hyena: Hyena = part.module
    of = part.name
    if what == "projected":
        bias = None if hyena.to_streams.bias is None else hyena.to_streams.bias[column]
        weight_D = hyena.to_streams.weight[column]
        return [
            product("c", "Σ_d x_d W_d + b", part.read_TD[row], weight_D, bias, lambda d: (f"{of}.read", None, row, d))
        ]
    if what == "streams":
        return [_short(looked, part, made, row, column)]
    number = hyena.order if what == "mixed" else int(what[-1])
    stream = _before(hyena, what, number)
    z_T = made[stream][:, column]  # v is the first of the streams
    if what.startswith("convolved"):
        return [_convolved(looked, part, z_T, stream, number, row, column)]
    gate = float(made["streams"][row, number * hyena.width + column])
    line = summed(
        "z",
        f"x_{number} · z",
        z_T[row : row + 1],
        torch.tensor([gate]),
        named=lambda _: f"gate {number}",
        at=lambda _: (f"{of}.{stream}", None, row, column),
        right_at=lambda _: (f"{of}.streams", None, row, number * hyena.width + column),
    )
    return [line]


def _before(hyena: Hyena, what: str, number: int) -> str:
    """The stage that a stage reads: gates and convolutions take turns, the paper's beginning with a convolution."""
    convolves_first = hyena.skips is None
    if what.startswith("convolved"):
        earlier = number - 1 if convolves_first else number
        return f"gated{earlier}" if earlier else "streams"
    earlier = number if convolves_first else number - 1
    return f"convolved{earlier}" if earlier else "streams"


def _short(looked: Looked, part: PartTrace, made: Stages, row: int, column: int) -> Line:
    short_one = part.module.short
    first = row - short_one.left
    seen = [place for place in range(first, first + SHORT) if 0 <= place < len(part.read_TD)]
    weights_S = short_one.weight_C1S[column, 0][[place - first for place in seen]]
    return summed(
        "c′",
        "Σ_s w_s c_s + b",
        made["projected"][seen, column],
        weights_S,
        [("b", float(short_one.bias_C[column]))],
        named=lambda index: _piece(looked, part, seen[index]),
        at=lambda index: (f"{part.name}.projected", None, seen[index], column),
    )


def _convolved(looked: Looked, part: PartTrace, z_T: Tensor, stage: str, number: int, row: int, column: int) -> Line:
    hyena: Hyena = part.module
    taps_T = hyena.toeplitz(len(z_T), column, number - 1)[row]
    seen = [place for place in range(len(z_T)) if place <= row or hyena.filter_ahead is not None]
    skip = [] if hyena.skips is None else [("D · z", float(hyena.skips[number - 1][column] * z_T[row]))]
    return summed(
        "z",
        "Σ_s h_t−s z_s" + (" + D z_t" if skip else ""),
        z_T[seen],
        taps_T[seen],
        skip,
        named=lambda index: _piece(looked, part, seen[index]),
        at=lambda index: (f"{part.name}.{stage}", None, seen[index], column),
    )


# ---------------------------------------------------------------- recurrence


@dataclass(frozen=True)
class Gates:
    """One cell at one position: what it reads, its state before, and the weights of one number of each gate."""

    x_X: Tensor
    h_D: Tensor
    cell: Any
    width: int
    at: Callable[[int], Cell | None]  # where what it reads stands
    state_at: Callable[[int], Cell | None]

    def weights(self, gate: int, number: int) -> tuple[Tensor, Tensor, float, float]:
        """Of one number of a gate: W and U, and a bias for each."""
        place = gate * self.width + number
        found = [_weight(self.cell, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        w_GX, u_GD, b_G, c_G = found
        return w_GX[place], u_GD[place], float(b_G[place]), float(c_G[place])

    def line(
        self, symbol: str, formula: str, gate: int, number: int, then: Callable[[float], float], name: str
    ) -> Line:
        """then(W x + b + U h + b)"""
        w_X, u_D, b, c = self.weights(gate, number)
        return summed(
            symbol,
            formula,
            torch.cat([self.x_X, self.h_D]),
            torch.cat([w_X, u_D]),
            [("b", b + c)],
            named=lambda index: f"x {index + 1}" if index < len(w_X) else f"h {index - len(w_X) + 1}",
            at=lambda index: self.at(index) if index < len(w_X) else self.state_at(index - len(w_X)),
            then=then,
            numbers=lambda total: called(name, total),
            brief=True,
        )


def _recurrent(looked: Looked, part: PartTrace, made: Stages, what: str, row: int, column: int) -> list[Line]:
    module = part.module
    searches = isinstance(module, RecurrentSearch)
    width = part.read_TD.shape[1]
    back = column >= width
    cell = module.cell if searches else module.backwards if back else module.forwards
    number, earlier = column % width, row + 1 if back else row - 1
    columns = slice(width, 2 * width) if back else slice(0, width)
    there = 0 <= earlier < len(part.read_TD)

    def state(name: str) -> Tensor:
        initial = INITIAL if name == "states" else f"{INITIAL} {name}"
        return exact((made[name][earlier] if there else made[initial][0])[columns])

    x_X, at = _cell_input(looked, part, row)

    def state_at(index: int) -> Cell | None:
        return (f"{part.name}.states", None, earlier, columns.start + index) if there else None

    gates = Gates(exact(x_X), state("states"), cell, width, at, state_at)
    kind = type(cell).__name__.removesuffix("Cell")
    if kind == "RNN":
        return [gates.line("h", "tanh(W x + U h_t−1 + b)", 0, number, math.tanh, "tanh")]
    if kind == "GRU":
        return _gru(gates, number)
    lines = _lstm(gates, number, float(state("memories")[number]))
    return lines[:-1] if what == "memories" else lines


def _cell_input(looked: Looked, part: PartTrace, row: int) -> tuple[Tensor, Callable[[int], Cell | None]]:
    """What a cell reads at a position: what stands there; in Bahdanau's decoder beside what it found in the source."""
    of, x_D = part.name, part.read_TD[row]
    if not isinstance(part.module, RecurrentSearch):
        return x_D, lambda index: (f"{of}.read", None, row, index)
    found_D = looked.attention(of).heads_BHTV[0, 0, row]
    width = len(x_D)

    def at(index: int) -> Cell:
        return (f"{of}.read", None, row, index) if index < width else (f"{of}.heads", 0, row, index - width)

    return torch.cat([x_D, found_D]), at


def _gru(gates: Gates, number: int) -> list[Line]:
    reset = gates.line("r", "σ(W_r x + U_r h_t−1 + b)", 0, number, _sigmoid, "σ")
    update = gates.line("z", "σ(W_z x + U_z h_t−1 + b)", 1, number, _sigmoid, "σ")
    w_X, u_D, b, c = gates.weights(2, number)
    past = summed("u", "U_n h_t−1 + b", gates.h_D, u_D, [("b", c)], named=lambda d: f"h {d + 1}", at=gates.state_at)
    new = summed(
        "n",
        "tanh(W_n x + b + r · u)",
        gates.x_X,
        w_X,
        [("b", b), ("r · u", reset.value * past.value)],
        named=lambda d: f"x {d + 1}",
        at=gates.at,
        then=math.tanh,
        numbers=lambda total: called("tanh", total),
    )
    before = float(gates.h_D[number])
    state = (1 - update.value) * new.value + update.value * before
    said = f"(1 − {short(update.value)}) · {short(new.value)} + {short(update.value)} · {short(before)}"
    return [reset, update, past, new, Line("h", "(1 − z) · n + z · h_t−1", state, numbers=said)]


def _lstm(gates: Gates, number: int, before: float) -> list[Line]:
    names = (("i", _sigmoid, "σ"), ("f", _sigmoid, "σ"), ("g", math.tanh, "tanh"), ("o", _sigmoid, "σ"))
    lines = [
        gates.line(symbol, f"{said}(W_{symbol} x + U_{symbol} h_t−1 + b)", gate, number, then, said)
        for gate, (symbol, then, said) in enumerate(names)
    ]
    enters, keeps, new, shows = (line.value for line in lines)
    memory = keeps * before + enters * new
    said = f"{short(keeps)} · {short(before)} + {short(enters)} · {short(new)}"
    kept = Line("c", "f · c_t−1 + i · g", memory, numbers=said)
    state = Line("h", "o · tanh(c)", shows * math.tanh(memory), numbers=f"{short(shows)} · {called('tanh', memory)}")
    return [*lines, kept, state]


def _weight(cell: Any, name: str) -> Tensor:
    """Of nn.GRU, whose weights are numbered by layer, or of nn.GRUCell."""
    weight: Tensor = getattr(cell, name if isinstance(cell, nn.RNNCellBase) else f"{name}_l0")
    return weight


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


# ---------------------------------------------------------------- Bahdanau's output


def _pair(looked: Looked, part: PartTrace, made: Stages, row: int, column: int) -> Line:
    """One number of [s; x; c] W."""
    layer, of = part.module.to_pairs, part.name
    x_X, input_at = _cell_input(looked, part, row)
    states_D = made["states"][row]
    width = len(states_D)

    def at(index: int) -> Cell | None:
        return (f"{of}.states", None, row, index) if index < width else input_at(index - width)

    return product("t", "[s; x; c] · W + b", torch.cat([states_D, x_X]), layer.weight[column], layer.bias[column], at)


def _larger(of: str, pairs_X: Tensor, row: int, column: int) -> Line:
    """The larger of two."""
    two = pairs_X[2 * column : 2 * column + 2]
    place = 2 * column + int(two.argmax())
    return summed(
        "t",
        f"max({short(float(two[0]))}, {short(float(two[1]))})",
        pairs_X[place : place + 1],
        named=lambda _: f"number {place + 1} of the pairs",
        at=lambda _: (f"{of}.pairs", None, row, place),
    )


def search_query(looked: Looked, part: PartTrace, row: int, column: int) -> Line:
    """Bahdanau's query: the state before the position, mapped."""
    made, layer = stages(looked, part), part.module.alignment.to_query
    state_D = made["states"][row - 1] if row else made[INITIAL][0]
    bias = None if layer.bias is None else layer.bias[column]

    def at(index: int) -> Cell | None:
        return (f"{part.name}.states", None, row - 1, index) if row else None

    return product("q", "Σ_d s_d W_d + b", state_D, layer.weight[column], bias, at)


def _piece(looked: Looked, part: PartTrace, place: int) -> str:
    return looked.trace[part.name.split(".")[0]].stack.pieces[place]
