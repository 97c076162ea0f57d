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
from regard.explore.notation import activation, joined_letters, mixed_letter, read_letter, written_letter
from regard.explore.session import TracedInput
from regard.explore.stages import (
    before_part,
    hidden,
    inner,
    joined,
    key_stack,
    last_norm,
    layer_of,
    place_name,
    stack_of,
    stream,
)
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
from regard.explore.sums_of_attention import head_vector, is_additive, score
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
        "x + p",
        terms_X,
        named=lambda index: ("x, of the token", "p, of the position")[index],
        at=lambda index: (f"{owner}.{names[index]}", None, row, column),
    )
    return [line], ""


def _embedded(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    embedding = stack_of(traced, owner).embedding
    if isinstance(embedding.norm, nn.Identity):
        return _summed(traced, owner, head, row, column)
    x_TD = embedding.raw_content_TD + embedding.raw_position_TD
    return norm_lines(embedding.norm, x_TD[row], row_cells(f"{owner}.summed", row), column, "x"), ""


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
    names, written = (before_part(traced, owner), f"{owner}.wrote"), written_letter(traced.part(owner))
    line = sum_line(
        "x",
        f"x + {written}",
        terms_X,
        named=lambda index: ("x", written)[index],
        at=lambda index: (names[index], None, row, column),
    )
    return [line], ""


def _after(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    layer = layer_of(traced, owner)
    if layer.block.pre_norm:
        return _sum(traced, owner, head, row, column)
    sum_TD = stream(traced, owner)[1]
    return norm_lines(layer.norm_of(traced.part(owner)), sum_TD[row], row_cells(f"{owner}.sum", row), column, "x"), ""


def _wrote(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    part = traced.part(owner)
    module = part.module
    scale = None if part.scale_D is None else float(part.scale_D[column])
    if hasattr(module, "activate"):
        layer, x_X, at = module.contract, inner(part)[row], row_cells(f"{owner}.inner", row)
        letters = ("h", "W_2", "b_2")
    elif isinstance(module, Attention | WindowAttention | AdditiveAttention):
        layer, x_X, at = module.to_out, joined(traced, part)[row], row_cells(f"{owner}.joined", row)
        letters = (joined_letters(part), "W_O", "b_O")
    else:
        last = "states" if isinstance(module, Recurrent) else "mixed"
        layer, x_X, at = module.to_out, stage(traced, owner, last)[row], row_cells(f"{owner}.{last}", row)
        letters = (mixed_letter(part), "W_O", "b_O")
    bias = None if layer.bias is None else layer.bias[column]
    return [linear_line(written_letter(part), "", x_X, layer.weight[column], bias, at, scale, letters)], ""


def _mixer_stage(quantity: str) -> Derive:
    return lambda traced, owner, head, row, column: (mixer_lines(traced, owner, quantity, row, column), "")


def _inner(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    part = traced.part(owner)
    module = part.module
    at, x = row_cells(f"{owner}.read", row), read_letter(layer_of(traced, owner))

    def expanded(symbol: str, number: int, w: str, b: str) -> Line:
        bias = None if module.expand.bias is None else module.expand.bias[number]
        return linear_line(symbol, "", part.read_TD[row], module.expand.weight[number], bias, at, letters=(x, w, b))

    before = expanded("y", column, "W_1", "b_1")
    name = activation(module)
    active = float(module.activation(torch.tensor(before.value, dtype=torch.float64)))
    if not module.gated:
        return [before, Line("h", f"{name}(y)", active, numbers=fmt_call(name, before.value))], ""
    value = expanded("y′", column + module.expand.out_features // 2, "V", "c")
    numbers = f"{fmt_call(name, before.value)} · {fmt(value.value)}"
    return [before, value, Line("h", f"{name}(y) · y′", active * value.value, numbers=numbers)], ""


# ---------------------------------------------------------------- attention


def _head_vector(quantity: str) -> Derive:
    return lambda traced, owner, head, row, column: head_vector(traced, owner, quantity, head, row, column)


def _weights(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    scores_S = traced.attention(owner).scores_BHTS[0, head, row]
    keys = key_stack(traced.trace, traced.part(owner))
    lines = softmax_lines(
        scores_S,
        column,
        lambda index: place_name(keys, index),
        lambda index: (f"{owner}.scores", head, row, index),
        ("a", "e" if is_additive(traced.part(owner)) else "s"),
    )
    return lines, "" if bool(scores_S[column].isfinite()) else "It is masked: exp(−∞) is 0."


def _heads(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    attention = traced.attention(owner)
    keys = key_stack(traced.trace, traced.part(owner))
    line = sum_line(
        "z",
        "Σ_j a_j v_j",
        attention.weights_BHTS[0, head, row],
        attention.values_BHSV[0, head, :, column],
        named=lambda index: place_name(keys, index),
        at=lambda index: (f"{owner}.weights", head, row, index),
        right_at=lambda index: (f"{owner}.values", head, index, column),
        heads=("j", "a_j", "v_j", "product"),
    )
    return [line], ""


def _joined(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    width = traced.attention(owner).heads_BHTV.shape[-1]
    number, channel = divmod(column, width)
    lines, note = _heads(traced, owner, number, row, channel)
    concatenated = f"Component {channel + 1:,} of head {number + 1}: the outputs of the heads are concatenated."
    return lines, f"{concatenated} {note}".strip()


# ---------------------------------------------------------------- the answer


def _out(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    stack = stack_of(traced, owner)
    norm, last = last_norm(traced, stack), stack.layers[-1]
    at = f"{last.parts[-1].name}.after"
    if isinstance(norm, nn.Identity):
        return _derivation(traced, at, row, column)
    return norm_lines(norm, last.after_TD[row], row_cells(at, row), column, "x"), ""


def _hidden(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    readout = traced.trace.subject.readout
    assert readout is not None
    number = int(owner)
    if number == 0:
        return _pooled(traced, row, column)
    x_D, step, at = hidden(traced)[number - 1][row], readout.steps[number - 1], row_cells(f"{number - 1}.hidden", row)
    if isinstance(step, Normed):
        return norm_lines(step.norm, x_D, at, column, "x"), ""
    if isinstance(step, Mapped):
        bias = None if step.layer.bias is None else step.layer.bias[column]
        return [linear_line("x", "", x_D, step.layer.weight[column], bias, at)], ""
    assert isinstance(step, Gelu)
    x = float(x_D[column])
    return [Line("x", "gelu(x)", float(step(to_float64(x_D))[column]), numbers=fmt_call("gelu", x))], ""


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
        "x",
        f"Σ_t x_t / {count:,}",
        x_TD[first:, channel],
        named=lambda index: place_name(last, first + index),
        at=lambda index: (name, None, first + index, channel),
        then=lambda total: total / count,
        numbers=lambda total: f"{fmt(total)} / {count:,}",
        heads=("position t", "x_t"),
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
    weight_WD, bias_W = readout.head.weight, readout.head.bias
    bias = None if bias_W is None else bias_W[word]
    cap = float(getattr(readout.head, "cap", 0.0))
    at = row_cells(f"{len(vectors) - 1}.hidden", position)
    lines = [linear_line("ℓ", "", vectors[-1][position], weight_WD[word], bias, at)]
    if cap:
        logit = lines[0].value
        numbers = f"{fmt(cap)} · tanh({fmt(logit)} / {fmt(cap)})"
        capped = cap * math.tanh(logit / cap)
        lines.append(Line("ℓ", "c · tanh(ℓ / c)", capped, numbers=numbers, where=f"c = {fmt(cap)}"))
    return _with_copying(lines, float(traced.trace.logits_AW[row, column]))


def _with_copying(lines: list[Line], logit: float) -> Derivation:
    """The last step of the logit of a word that can be copied from the source."""
    own = lines[-1].value
    if abs(logit - own) < 1e-4 * max(1.0, abs(own)):
        return lines, ""
    copied = logit + math.log(-math.expm1(own - logit))
    value = float(torch.logaddexp(*torch.tensor([own, copied]).double()))
    line = Line("ℓ′", "ln(exp ℓ + Σ_j exp c_j)", value, numbers=f"ln(exp {fmt(own)} + exp {fmt(copied)})")
    return [*lines, line], "The word also occurs in the source and can be copied from there."


def _probabilities(traced: TracedInput, owner: str, head: int, row: int, column: int) -> Derivation:
    subject = traced.trace.subject
    logits_W, name_of = subject.softmax_logits(traced.trace.logits_AW[row], row), subject.name_of
    if subject.independent:
        return [sigmoid_line(logits_W, column, ("logits", None, row, column))], ""
    return softmax_lines(logits_W, column, name_of, lambda index: ("logits", None, row, index), ("p", "ℓ")), ""


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
