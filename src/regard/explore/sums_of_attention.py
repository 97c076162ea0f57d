"""The arithmetic of queries, keys, values and scores, for every kind of attention.

    q = x W_Q + b_Q        normalised, then rotated, where the model does so; k and v alike, from x or from the memory m
    s = q · k / √d_k       + a learned bias (windows of an image)
    e = Σ_i w_i tanh(q_i + k_i)        (additive)

Shapes: T positions · S positions attended to · H heads · G key and value heads · K width of a head · D model width
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.notation import read_letter, root
from regard.explore.session import TracedInput
from regard.explore.stages import key_stack, layer_of
from regard.explore.sums import (
    Derivation,
    Line,
    fmt,
    linear_line,
    norm_lines,
    row_cells,
    sum_line,
    to_float64,
)
from regard.explore.sums_of_mixers import search_query
from regard.inside.parts import PartTrace
from regard.layers.additive import AdditiveAttention, Alignment
from regard.layers.attention import Attention
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.positions import Positions, Rotary, frequencies
from regard.layers.windows import WindowAttention

ORDER = ("queries", "keys", "values")
SYMBOLS = {"queries": "q", "keys": "k", "values": "v"}


def is_additive(part: PartTrace) -> bool:
    return isinstance(part.module, AdditiveAttention | RecurrentSearch)


def head_vector(traced: TracedInput, owner: str, quantity: str, head: int, row: int, column: int) -> Derivation:
    """A component of a query, a key or a value."""
    part = traced.part(owner)
    module = part.module
    x_D, source, x = _read(traced, part, quantity, row)
    if isinstance(module, Alignment | RecurrentSearch):
        if quantity == "queries" and isinstance(module, RecurrentSearch):
            return [search_query(traced, part, row, column)], "It is computed from the state before this position."
        return _additive(module, quantity, x_D, source, x, row, column)
    weight_XD, bias_X, group, width = _projection(module, quantity, head)
    symbol = SYMBOLS[quantity]

    bias = None if bias_X is None else bias_X[group * width + column]
    letters = (x, f"W_{symbol.upper()}", f"b_{symbol.upper()}")
    weight_D = weight_XD[group * width + column]
    lines = [linear_line(symbol, "", x_D, weight_D, bias, row_cells(source, row), letters=letters)]
    norm = {"queries": module.query_norm, "keys": module.key_norm}.get(quantity, nn.Identity())
    rotates = quantity != "values" and not getattr(module, "cross", False) and hasattr(module, "rotate")
    rotates = rotates and module.rotate is not Positions.rotate
    note = _shared(module, quantity, group)
    if isinstance(norm, nn.Identity) and not rotates:
        return lines, note
    bias_K = 0 if bias_X is None else to_float64(bias_X[group * width :][:width])
    z_K = to_float64(weight_XD[group * width :][:width]) @ to_float64(x_D) + bias_K
    if not isinstance(norm, nn.Identity):
        lines += norm_lines(norm, z_K, None, column, symbol, symbol)
        z_K = torch.tensor([norm_lines(norm, z_K, None, number)[-1].value for number in range(width)])
    if rotates:
        assert module.rotate is Rotary.rotate
        lines.append(_rotated(z_K, column, row, symbol))
        note = f"After the projection, it is rotated by an angle that depends on the position. {note}".strip()
    return lines, note


def _read(traced: TracedInput, part: PartTrace, quantity: str, row: int) -> tuple[Tensor, str, str]:
    """The vector that is projected, the name of its matrix, and its letter."""
    if quantity == "queries" or not part.cross:
        return part.read_TD[row], f"{part.name}.read", read_letter(layer_of(traced, part.name))
    assert part.context is not None and part.context.memory is not None
    return part.context.memory.states_BSD[0, row], f"{key_stack(traced.trace, part).name}.out", "m"


def _projection(module: Any, quantity: str, head: int) -> tuple[Tensor, Tensor | None, int, int]:
    """The rows of W for queries, keys or values, their biases, the head's number among them, and its width."""
    assert isinstance(module, Attention | WindowAttention)
    layer = module.to_qkv
    if isinstance(module, WindowAttention):
        width = layer.in_features // module.heads
        widths, groups = [layer.in_features] * 3, head
    else:
        width = module.value_width if quantity == "values" else module.key_width
        widths = module.widths
        groups = head if quantity == "queries" else head // (module.heads // module.key_value_heads)
    start = sum(widths[: ORDER.index(quantity)])
    rows = slice(start, start + widths[ORDER.index(quantity)])
    return layer.weight[rows], None if layer.bias is None else layer.bias[rows], groups, width


def _shared(module: Any, quantity: str, group: int) -> str:
    heads = getattr(module, "key_value_heads", module.heads)
    if quantity == "queries" or heads == module.heads:
        return ""
    return (
        f"Keys and values have {heads} heads: this is head {group + 1}, shared by {module.heads // heads} query heads."
    )


def _rotated(z_K: Tensor, column: int, position: int, q: str) -> Line:
    """Each pair (z_i, z_{i + K/2}) is rotated by position · frequency_i. `q`: the letter of the vector."""
    half = len(z_K) // 2
    first = column % half
    frequency = frequencies(len(z_K))[first].double()
    angle = float(position * frequency)
    factors = [math.cos(angle), -math.sin(angle)] if column < half else [math.sin(angle), math.cos(angle)]
    i, j = first + 1, first + half + 1
    return sum_line(
        q,
        f"{q}_{i} cos α − {q}_{j} sin α" if column < half else f"{q}_{i} sin α + {q}_{j} cos α",
        z_K[[first, first + half]],
        torch.tensor(factors),
        named=lambda index: str((i, j)[index]),
        heads=("i", f"{q}_i", "factor", "product"),
        where=f"α = position · frequency = {position:,} · {fmt(float(frequency))} = {fmt(angle)}",
    )


def _additive(module: Any, quantity: str, x_D: Tensor, source: str, x: str, row: int, column: int) -> Derivation:
    alignment = getattr(module, "alignment", module)
    if quantity == "values":
        line = sum_line(
            "v", "m", x_D[column : column + 1], named=lambda _: "m", at=lambda _: (source, None, row, column)
        )
        return [line], "The values are the vectors of the source themselves."
    layer = alignment.to_query if quantity == "queries" else alignment.to_key
    bias = None if layer.bias is None else layer.bias[column]
    symbol = SYMBOLS[quantity]
    letters = (x, f"W_{symbol.upper()}", f"b_{symbol.upper()}")
    return [linear_line(symbol, "", x_D, layer.weight[column], bias, row_cells(source, row), letters=letters)], ""


def score(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    """The score of a query and a key."""
    module = traced.part(owner).module
    attention = traced.attention(owner)
    q_K, k_K = attention.queries_BHTK[0, head, row], attention.keys_BHSK[0, head, column]
    at, key_at = row_cells(f"{owner}.queries", row, head), row_cells(f"{owner}.keys", column, head)
    if isinstance(module, AdditiveAttention | RecurrentSearch):
        alignment: Any = getattr(module, "alignment", module)
        energy_D = alignment.energy.weight[0]
        line = sum_line(
            "e",
            "Σ_i w_i tanh(q_i + k_i)",
            torch.tanh(to_float64(q_K) + to_float64(k_K)),
            energy_D,
            at=at,
            heads=("i", "tanh(q_i + k_i)", "w_i", "product"),
        )
        return _masked([line], attention.scores_BHTS[0, head, row, column], "It is outside the source.")
    bias = 0.0
    if isinstance(module, WindowAttention):
        bias = float(module.bias_over_grid()[head, row, column])
        if bias == -math.inf:
            return _masked([_dot(q_K, k_K, at, key_at)], torch.tensor(-math.inf), "It lies in another window.")
    lines = [_dot(q_K, k_K, at, key_at)]
    if isinstance(module, WindowAttention):
        numbers = f"{fmt(lines[0].value)} + {fmt(bias)}"
        lines.append(Line("s", "q · k / √d_k + B of this offset", lines[0].value + bias, numbers=numbers))
    context = traced.part(owner).context
    later = context is not None and context.causal and not traced.part(owner).cross and column > row
    why = "It comes later." if later else "It is too far away."
    return _masked(lines, attention.scores_BHTS[0, head, row, column], why)


def _dot(q_K: Tensor, k_K: Tensor, at: Any, key_at: Any) -> Line:
    root_of_width = math.sqrt(len(q_K))
    return sum_line(
        "s",
        "Σ_i q_i k_i / √d_k",
        q_K,
        k_K,
        at=at,
        right_at=key_at,
        then=lambda total: total / root_of_width,
        numbers=lambda total: f"{fmt(total)} / {fmt(root_of_width)}",
        heads=("i", "q_i", "k_i", "product"),
        where=root("d_k", len(q_K)),
    )


def _masked(lines: list[Line], score: Tensor, why: str) -> Derivation:
    """With the last step of a masked score, which is −∞ whatever the dot product."""
    if bool(score.isfinite()):
        return lines, ""
    return [*lines, Line("s", "−∞", -math.inf)], f"{why} It is masked: its score is set to −∞, so its weight is 0."
