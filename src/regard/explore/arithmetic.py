"""How any number of a matrix was computed, with its actual terms.

A cell is (name of the matrix, head, row, column); names are those of matrices.py and stages.py. The lines compute its
number from the matrices before it and from the weights; `cell` is the number in the matrix. Both must agree.

Shapes: T positions · S positions attended to · K, V widths of a head · D model width · A answers · W words or classes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.errors import UsageError
from regard.explore.matrices import OF_ANSWERS, tensor
from regard.explore.session import TracedInput
from regard.explore.stages import before_part, hidden, inner, joined, key_stack, last_norm, layer_of, stack_of, stream
from regard.explore.stages_of_mixers import NAMES, NUMBERED, stage
from regard.explore.sums import (
    TERMS,
    Derivation,
    Line,
    fmt,
    fmt_call,
    linear_line,
    norm_lines,
    row_cells,
    sigmoid_line,
    softmax_lines,
    sum_line,
    to_float64,
)
from regard.explore.sums_of_attention import head_vector, score
from regard.explore.sums_of_embedding import place_lines, token_lines
from regard.explore.sums_of_mixers import mixer_lines
from regard.inside.readout import Gelu, Mapped, Normed, SpanReadout
from regard.layers.additive import AdditiveAttention
from regard.layers.attention import Attention
from regard.layers.recurrent import Recurrent
from regard.layers.windows import WindowAttention

Derive = Callable[[TracedInput, str, int, int, int], Derivation]  # of an owner, a head, a row and a column


@torch.no_grad()
def arithmetic(
    traced: TracedInput, name: str, row: int, column: int, head: int | None = None, most: int = TERMS
) -> dict[str, Any]:
    """How one number was computed, with the `most` largest terms of every sum."""
    values = tensor(traced, name)
    if values.ndim == 3:
        if head is None or not 0 <= head < len(values):
            raise UsageError(f"'{name}' has no such head.", f"It has {len(values)}.", "Choose another.")
        values = values[head]
    if not (0 <= row < values.shape[0] and 0 <= column < values.shape[1]):
        size = f"{values.shape[0]} × {values.shape[1]}"
        raise UsageError(f"'{name}' has no cell {row}, {column}.", f"It has {size}.", "Choose another.")
    owner, _, quantity = name.rpartition(".")
    if quantity not in _DERIVATIONS:
        raise UsageError(f"'{name}' has no arithmetic.", "It is not a step of the model.", "Choose another matrix.")
    lines, note = _DERIVATIONS[quantity](traced, owner, head or 0, row, column)
    cell = float(values[row, column])
    return {
        "name": name,
        "head": head,
        "row": row,
        "column": column,
        "word": traced.trace.subject.name_of(column) if quantity in OF_ANSWERS else "",
        "lines": [line.to_json(most) for line in lines],
        "note": note,
        "cell": cell if math.isfinite(cell) else None,
    }


# ---------------------------------------------------------------- before the first block


def _token(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    return token_lines(traced, stack_of(traced, owner), row, column)


def _place(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    return place_lines(stack_of(traced, owner), row, column)


def _summed(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    embedding = stack_of(traced, owner).embedding
    terms_X = torch.stack([embedding.raw_content_TD[row, column], embedding.raw_position_TD[row, column]])
    names = ("token", "place")
    line = sum_line(
        "x",
        "token + position",
        terms_X,
        named=lambda index: ("token", "position")[index],
        at=lambda index: (f"{owner}.{names[index]}", None, row, column),
    )
    return [line], ""


def _embedded(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    embedding = stack_of(traced, owner).embedding
    if isinstance(embedding.norm, nn.Identity):
        return _summed(traced, owner, head, row, column)
    x_TD = embedding.raw_content_TD + embedding.raw_position_TD
    return norm_lines(embedding.norm, x_TD[row], row_cells(f"{owner}.summed", row), column), ""


# ---------------------------------------------------------------- the residual stream


def _before(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    return _derivation(traced, before_part(traced, owner), row, column)


def _read(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    layer = layer_of(traced, owner)
    if not layer.block.pre_norm:
        return _before(traced, owner, head, row, column)
    before_TD = stream(traced, owner)[0]
    return norm_lines(layer.norm_of(traced.part(owner)), before_TD[row], row_cells(f"{owner}.before", row), column), ""


def _sum(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    before_TD = stream(traced, owner)[0]
    terms_X = torch.stack([before_TD[row, column], traced.part(owner).wrote_TD[row, column]])
    names = (before_part(traced, owner), f"{owner}.wrote")
    line = sum_line(
        "x",
        "x + written",
        terms_X,
        named=lambda index: ("x", "written")[index],
        at=lambda index: (names[index], None, row, column),
    )
    return [line], ""


def _after(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    layer = layer_of(traced, owner)
    if layer.block.pre_norm:
        return _sum(traced, owner, head, row, column)
    sum_TD = stream(traced, owner)[1]
    return norm_lines(layer.norm_of(traced.part(owner)), sum_TD[row], row_cells(f"{owner}.sum", row), column), ""


def _wrote(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    part = traced.part(owner)
    module = part.module
    scale = None if part.scale_D is None else float(part.scale_D[column])
    if hasattr(module, "activate"):
        layer, x_X, at = module.contract, inner(part)[row], row_cells(f"{owner}.inner", row)
    elif isinstance(module, Attention | WindowAttention | AdditiveAttention):
        layer, x_X, at = module.to_out, joined(traced, part)[row], row_cells(f"{owner}.joined", row)
    else:
        last = "states" if isinstance(module, Recurrent) else "mixed"
        layer, x_X, at = module.to_out, stage(traced, owner, last)[row], row_cells(f"{owner}.{last}", row)
    bias = None if layer.bias is None else layer.bias[column]
    formula = "Σ_i y_i W_i + b" if bias is not None else "Σ_i y_i W_i"
    formula = formula if scale is None else f"({formula}) · layer scale"
    return [linear_line("z", formula, x_X, layer.weight[column], bias, at, scale)], ""


def _mixer_stage(quantity: str) -> Derive:
    return lambda traced, owner, head, row, column: (mixer_lines(traced, owner, quantity, row, column), "")


def _inner(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    part = traced.part(owner)
    module = part.module
    at = row_cells(f"{owner}.read", row)

    def expanded(symbol: str, number: int) -> Line:
        bias = None if module.expand.bias is None else module.expand.bias[number]
        formula = "Σ_d x_d W_d + b" if bias is not None else "Σ_d x_d W_d"
        return linear_line(symbol, formula, part.read_TD[row], module.expand.weight[number], bias, at)

    gate = expanded("gate" if module.gated else "z", column)
    name = module.activation_name
    active = float(module.activation(torch.tensor(gate.value, dtype=torch.float64)))
    if not module.gated:
        return [gate, Line("y", f"{name}(z)", active, numbers=fmt_call(name, gate.value))], ""
    value = expanded("z", column + module.expand.out_features // 2)
    numbers = f"{fmt_call(name, gate.value)} · {fmt(value.value)}"
    return [gate, value, Line("y", f"{name}(gate) · z", active * value.value, numbers=numbers)], ""


# ---------------------------------------------------------------- attention


def _head_vector(quantity: str) -> Derive:
    return lambda traced, owner, head, row, column: head_vector(traced, owner, quantity, head, row, column)


def _weights(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    scores_S = traced.attention(owner).scores_BHTS[0, head, row]
    pieces = key_stack(traced.trace, traced.part(owner)).stack.pieces
    lines = softmax_lines(
        scores_S, column, lambda index: pieces[index], lambda index: (f"{owner}.scores", head, row, index)
    )
    return lines, "" if bool(scores_S[column].isfinite()) else "It is masked: exp(−∞) is 0."


def _heads(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    attention = traced.attention(owner)
    pieces = key_stack(traced.trace, traced.part(owner)).stack.pieces
    line = sum_line(
        "z",
        "Σ_j a_j v_j",
        attention.weights_BHTS[0, head, row],
        attention.values_BHSV[0, head, :, column],
        named=lambda index: pieces[index],
        at=lambda index: (f"{owner}.weights", head, row, index),
        right_at=lambda index: (f"{owner}.values", head, index, column),
    )
    return [line], ""


def _joined(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    width = traced.attention(owner).heads_BHTV.shape[-1]
    number, channel = divmod(column, width)
    lines, note = _heads(traced, owner, number, row, channel)
    concatenated = f"Number {channel + 1} of head {number + 1}: the heads' outputs are concatenated."
    return lines, f"{concatenated} {note}".strip()


# ---------------------------------------------------------------- the answer


def _out(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    stack = stack_of(traced, owner)
    norm, last = last_norm(traced, stack), stack.layers[-1]
    at = f"{last.parts[-1].name}.after"
    if isinstance(norm, nn.Identity):
        return _derivation(traced, at, row, column)
    return norm_lines(norm, last.after_TD[row], row_cells(at, row), column), ""


def _hidden(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    readout = traced.trace.subject.readout
    assert readout is not None
    number = int(owner)
    if number == 0:
        return _pooled(traced, row, column)
    x_D, step, at = hidden(traced)[number - 1][row], readout.steps[number - 1], row_cells(f"{number - 1}.hidden", row)
    if isinstance(step, Normed):
        return norm_lines(step.norm, x_D, at, column), ""
    if isinstance(step, Mapped):
        bias = None if step.layer.bias is None else step.layer.bias[column]
        return [linear_line("z", "Σ_d x_d W_d + b", x_D, step.layer.weight[column], bias, at)], ""
    assert isinstance(step, Gelu)
    x = float(x_D[column])
    return [Line("y", "gelu(x)", float(step(to_float64(x_D))[column]), numbers=fmt_call("gelu", x))], ""


def _pooled(traced: TracedInput, row: int, column: int) -> Derivation:
    readout, last = traced.trace.subject.readout, traced.trace.last
    assert readout is not None
    name = f"{last.name}.out"
    x_TD = tensor(traced, name)
    width = x_TD.shape[-1]
    if isinstance(readout, SpanReadout):
        return _derivation(traced, name, row, column)
    if readout.pool == "position":
        return _derivation(traced, name, readout.positions[row], column)
    if readout.pool == "first" or (readout.pool == "both" and column < width):
        return _derivation(traced, name, 0, column)
    channel, first = column % width, readout.before
    count = len(x_TD) - first
    line = sum_line(
        "mean",
        "Σ_t x_t / T",
        x_TD[first:, channel],
        named=lambda index: last.stack.pieces[first + index],
        at=lambda index: (name, None, first + index, channel),
        then=lambda total: total / count,
        numbers=lambda total: f"{fmt(total)} / {count}",
    )
    return [line], ""


def _logits(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    subject = traced.trace.subject
    readout = subject.readout
    if readout is None:
        return [], "The answer is not a linear map of the last layer's output."
    vectors = hidden(traced)
    spans = isinstance(readout, SpanReadout)  # every position is a candidate, and each answer has its own output vector
    position, word = (column, row) if spans else (row, column)
    h_D, weight_WD, bias_W = vectors[-1][position], readout.head.weight, readout.head.bias
    bias = None if bias_W is None else bias_W[word]
    cap = float(getattr(readout.head, "cap", 0.0))
    formula = "Σ_d h_d W_d + b" if bias is not None else "Σ_d h_d W_d"
    lines = [linear_line("z", formula, h_D, weight_WD[word], bias, row_cells(f"{len(vectors) - 1}.hidden", position))]
    if cap:
        z = lines[0].value
        numbers = f"{fmt(cap)} · tanh({fmt(z)} / {fmt(cap)})"
        lines.append(Line("z", "c · tanh(z / c)", cap * math.tanh(z / cap), numbers=numbers))
    return _with_copying(lines, float(traced.trace.logits_AW[row, column]))


def _with_copying(lines: list[Line], logit: float) -> Derivation:
    """The last step of the logit of a word that can be copied from the source."""
    z = lines[-1].value
    if abs(logit - z) < 1e-4 * max(1.0, abs(z)):
        return lines, ""
    copied = logit + math.log(-math.expm1(z - logit))
    value = float(torch.logaddexp(*torch.tensor([z, copied]).double()))
    line = Line("z′", "ln(exp z + Σ_j exp c_j)", value, numbers=f"ln(exp {fmt(z)} + exp {fmt(copied)})")
    return [*lines, line], "The word also occurs in the source and can be copied from there."


def _probabilities(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    subject = traced.trace.subject
    logits_W, name_of = subject.softmax_logits(traced.trace.logits_AW[row], row), subject.name_of
    if subject.independent:
        return [sigmoid_line(logits_W, column, ("logits", None, row, column))], ""
    return softmax_lines(logits_W, column, name_of, lambda index: ("logits", None, row, index), ("p", "z")), ""


# ---------------------------------------------------------------- helpers


def _derivation(traced: TracedInput, name: str, row: int, column: int) -> Derivation:
    """How a number of another matrix was computed."""
    owner, _, quantity = name.rpartition(".")
    return _DERIVATIONS[quantity](traced, owner, 0, row, column)


_DERIVATIONS: dict[str, Derive] = {
    "token": _token,
    "place": _place,
    "summed": _summed,
    "embedded": _embedded,
    "before": _before,
    "read": _read,
    "sum": _sum,
    "after": _after,
    "wrote": _wrote,
    "inner": _inner,
    **{quantity: _head_vector(quantity) for quantity in ("queries", "keys", "values")},
    "scores": score,
    "weights": _weights,
    "heads": _heads,
    "joined": _joined,
    "out": _out,
    "hidden": _hidden,
    "logits": _logits,
    "probabilities": _probabilities,
    **{quantity: _mixer_stage(quantity) for quantity in (*NAMES, *NUMBERED)},
}
