"""The arithmetic of queries, keys, values and scores, for every kind of attention.

    q = x W_q + b          normalised, then rotated, where the model does so; k and v alike, of x or of the memory
    s = q · k / √K         + a learned bias (windows of an image)
    e = Σ_d v_d tanh(q_d + k_d)        (additive)

Shapes: T positions · S positions looked at · H heads · G key and value heads · K width of a head · D model width
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.explore.session import Looked
from regard.explore.sums import Cell, Line, exact, normalised, product, short, summed
from regard.explore.sums_of_mixers import search_query
from regard.inside.parts import PartTrace
from regard.layers.additive import AdditiveAttention, Alignment
from regard.layers.attention import Attention
from regard.layers.bahdanau import RecurrentSearch
from regard.layers.positions import Positions, Rotary, frequencies
from regard.layers.windows import WindowAttention

ORDER = ("queries", "keys", "values")
SYMBOLS = {"queries": "q", "keys": "k", "values": "v"}


def head_vector(looked: Looked, of: str, what: str, head: int, row: int, column: int) -> tuple[list[Line], str]:
    """A number of a query, a key or a value."""
    part = looked.part(of)
    module = part.module
    x_D, source = _read(looked, part, what, row)
    if isinstance(module, Alignment | RecurrentSearch):
        if what == "queries" and isinstance(module, RecurrentSearch):
            return [search_query(looked, part, row, column)], "It is made from the state before this position."
        return _additive(module, what, x_D, source, row, column)
    weight_XD, bias_X, group, width = _projection(module, what, head)
    symbol = SYMBOLS[what]

    def projected(number: int, symbol: str) -> Line:
        bias = None if bias_X is None else bias_X[group * width + number]
        formula = f"Σ_d x_d W_{symbol[0]},d{' + b' if bias is not None else ''}"
        place = group * width + number
        return product(symbol, formula, x_D, weight_XD[place], bias, lambda d: (source, None, row, d))

    lines = [projected(column, symbol)]
    norm = {"queries": module.query_norm, "keys": module.key_norm}.get(what, nn.Identity())
    rotates = what != "values" and not getattr(module, "cross", False) and hasattr(module, "rotate")
    rotates = rotates and module.rotate is not Positions.rotate
    note = _shared(module, what, group)
    if isinstance(norm, nn.Identity) and not rotates:
        return lines, note
    bias_K = 0 if bias_X is None else exact(bias_X[group * width :][:width])
    z_K = exact(weight_XD[group * width :][:width]) @ exact(x_D) + bias_K
    if not isinstance(norm, nn.Identity):
        lines += normalised(norm, z_K, None, column)
        z_K = torch.tensor([normalised(norm, z_K, None, number)[-1].value for number in range(width)])
    if rotates:
        assert module.rotate is Rotary.rotate
        lines.append(_rotated(z_K, column, row))
        note = f"After the projection, it is rotated by an angle that depends on the position. {note}".strip()
    return lines, note


def _read(looked: Looked, part: PartTrace, what: str, row: int) -> tuple[Tensor, str]:
    """The vector that it is made of, and the matrix where that stands."""
    if what == "queries" or not part.cross:
        return part.read_TD[row], f"{part.name}.read"
    assert part.context is not None and part.context.memory is not None
    stacks = looked.trace.stacks
    own = next(index for index, stack in enumerate(stacks) if part.name.startswith(f"{stack.name}."))
    return part.context.memory.states_BSD[0, row], f"{stacks[own - 1].name}.out"


def _projection(module: Any, what: str, head: int) -> tuple[Tensor, Tensor | None, int, int]:
    """The rows of W for queries, keys or values, their biases, which head of these it is, and the width of one."""
    assert isinstance(module, Attention | WindowAttention)
    layer = module.to_qkv
    if isinstance(module, WindowAttention):
        width = layer.in_features // module.heads
        widths, groups = [layer.in_features] * 3, head
    else:
        width = module.value_width if what == "values" else module.key_width
        widths = module.widths
        groups = head if what == "queries" else head // (module.heads // module.key_value_heads)
    start = sum(widths[: ORDER.index(what)])
    rows = slice(start, start + widths[ORDER.index(what)])
    return layer.weight[rows], None if layer.bias is None else layer.bias[rows], groups, width


def _shared(module: Any, what: str, group: int) -> str:
    heads = getattr(module, "key_value_heads", module.heads)
    if what == "queries" or heads == module.heads:
        return ""
    return (
        f"Keys and values have {heads} heads: this is head {group + 1}, shared by {module.heads // heads} query heads."
    )


def _rotated(z_K: Tensor, column: int, position: int) -> Line:
    """Each pair (z_i, z_{i + K/2}) is rotated by position · frequency_i."""
    half = len(z_K) // 2
    first = column % half
    angle = float(position * frequencies(len(z_K))[first].double())
    factors = [math.cos(angle), -math.sin(angle)] if column < half else [math.sin(angle), math.cos(angle)]
    formula = "z_i cos α − z_j sin α" if column < half else "z_i sin α + z_j cos α"
    return summed(
        "rotated",
        f"{formula},  α = {position} · {short(float(frequencies(len(z_K))[first]))} = {short(angle)}",
        z_K[[first, first + half]],
        torch.tensor(factors),
        named=lambda index: f"number {(first, first + half)[index] + 1} of the projection",
    )


def _additive(module: Any, what: str, x_D: Tensor, source: str, row: int, column: int) -> tuple[list[Line], str]:
    alignment = getattr(module, "alignment", module)
    if what == "values":
        line = summed(
            "v", "h", x_D[column : column + 1], named=lambda _: "memory", at=lambda _: (source, None, row, column)
        )
        return [line], "The values are the source states themselves."
    layer = alignment.to_query if what == "queries" else alignment.to_key
    bias = None if layer.bias is None else layer.bias[column]
    symbol = SYMBOLS[what]
    formula = f"Σ_d x_d W_{symbol},d{' + b' if bias is not None else ''}"
    return [product(symbol, formula, x_D, layer.weight[column], bias, lambda d: (source, None, row, d))], ""


def score(looked: Looked, of: str, head: int, row: int, column: int) -> tuple[list[Line], str]:
    """How well a query and a key fit."""
    module = looked.part(of).module
    traced = looked.attention(of)
    q_K, k_K = traced.queries_BHTK[0, head, row], traced.keys_BHSK[0, head, column]

    def at(index: int) -> Cell:
        return f"{of}.queries", head, row, index

    def key_at(index: int) -> Cell:
        return f"{of}.keys", head, column, index

    if isinstance(module, AdditiveAttention | RecurrentSearch):
        alignment: Any = getattr(module, "alignment", module)
        energy_D = alignment.energy.weight[0]
        line = summed("e", "Σ_d tanh(q_d + k_d) v_d", torch.tanh(exact(q_K) + exact(k_K)), energy_D, at=at)
        return _seen([line], traced.scores_BHTS[0, head, row, column], "It is outside the source.")
    root = math.sqrt(len(q_K))
    bias = 0.0
    if isinstance(module, WindowAttention):
        bias = float(module.bias_over_grid()[head, row, column])
        if bias == -math.inf:
            return _seen([_dot(q_K, k_K, at, key_at, root)], torch.tensor(-math.inf), "It lies in another window.")
    lines = [_dot(q_K, k_K, at, key_at, root)]
    if isinstance(module, WindowAttention):
        said = f"{short(lines[0].value)} + {short(bias)}"
        lines.append(Line("s", "q · k / √K + bias of this offset", lines[0].value + bias, numbers=said))
    context = looked.part(of).context
    hidden = context is not None and context.causal and not looked.part(of).cross and column > row
    why = "It comes later." if hidden else "It is too far away."
    return _seen(lines, traced.scores_BHTS[0, head, row, column], why)


def _dot(q_K: Tensor, k_K: Tensor, at: Any, key_at: Any, root: float) -> Line:
    return summed(
        "s",
        "Σ_i q_i k_i / √K",
        q_K,
        k_K,
        at=at,
        right_at=key_at,
        then=lambda total: total / root,
        numbers=lambda total: f"{short(total)} / √{len(q_K)}",
    )


def _seen(lines: list[Line], score: Tensor, why: str) -> tuple[list[Line], str]:
    """What a mask hides has the score −∞, whatever its product is."""
    if bool(score.isfinite()):
        return lines, ""
    return [*lines, Line("s", "−∞", -math.inf)], f"{why} It is masked: its score is set to −∞, so its weight is 0."
