"""Any cell opens its arithmetic: how a number of a matrix came about, with the terms as they were.

A cell is (name of the matrix, head, row, column); names are those of look.py and stages.py. Its numbers are computed
from what the trace noted before it, and from the weights; `cell` is the number that stands there. Both must agree.

Shapes: T positions · S positions looked at · K, V widths of a head · D model width · A answers · W words or classes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.errors import UsageError
from regard.explore.matrices import OF_ANSWERS, tensor
from regard.explore.session import Looked
from regard.explore.stages import before_part, hidden, inner, joined, last_norm, layer_of, stack_of, stream
from regard.explore.stages_of_mixers import NAMES, NUMBERED, stage
from regard.explore.sums import TERMS, Cell, Line, called, exact, normalised, product, short, sigmoid, softmax, summed
from regard.explore.sums_of_attention import head_vector, score
from regard.explore.sums_of_embedding import place_lines, token_lines
from regard.explore.sums_of_mixers import mixer_lines
from regard.inside.readout import Gelu, Mapped, Normed, SpanReadout
from regard.layers.additive import AdditiveAttention
from regard.layers.attention import Attention
from regard.layers.recurrent import Recurrent
from regard.layers.windows import WindowAttention

Written = tuple[list[Line], str]  # the lines, and what must be said besides


@torch.no_grad()
def arithmetic(
    looked: Looked, name: str, row: int, column: int, head: int | None = None, most: int = TERMS
) -> dict[str, Any]:
    """How one number came about; of every sum, the `most` largest terms."""
    values = tensor(looked, name)
    if values.ndim == 3:
        if head is None or not 0 <= head < len(values):
            raise UsageError(f"'{name}' has no such head.", f"It has {len(values)}.", "Choose another.")
        values = values[head]
    if not (0 <= row < values.shape[0] and 0 <= column < values.shape[1]):
        size = f"{values.shape[0]} × {values.shape[1]}"
        raise UsageError(f"'{name}' has no cell {row}, {column}.", f"It has {size}.", "Choose another.")
    of, _, what = name.rpartition(".")
    if what not in _WAYS:
        raise UsageError(f"'{name}' has no arithmetic.", "It is not a step of the model.", "Choose another matrix.")
    lines, note = _WAYS[what](looked, of, head or 0, row, column)
    cell = float(values[row, column])
    return {
        "name": name,
        "head": head,
        "row": row,
        "column": column,
        "word": looked.trace.subject.name_of(column) if what in OF_ANSWERS else "",
        "lines": [line.to_json(most) for line in lines],
        "note": note,
        "cell": cell if math.isfinite(cell) else None,
    }


# ---------------------------------------------------------------- before the first block


def _token(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return token_lines(looked, stack_of(looked, of), row, column)


def _place(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return place_lines(stack_of(looked, of), row, column)


def _summed(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    made = stack_of(looked, of).embedding
    terms_X = torch.stack([made.raw_content_TD[row, column], made.raw_position_TD[row, column]])
    names = ("token", "place")
    line = summed(
        "x",
        "token + position",
        terms_X,
        named=lambda index: ("token", "position")[index],
        at=lambda index: (f"{of}.{names[index]}", None, row, column),
    )
    return [line], ""


def _embedded(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    made = stack_of(looked, of).embedding
    if isinstance(made.norm, nn.Identity):
        return _summed(looked, of, head, row, column)
    x_TD = made.raw_content_TD + made.raw_position_TD
    return normalised(made.norm, x_TD[row], _cells(f"{of}.summed", row), column), ""


# ---------------------------------------------------------------- the residual stream


def _before(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return _elsewhere(looked, before_part(looked, of), row, column)


def _read(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    layer = layer_of(looked, of)
    if not layer.block.pre_norm:
        return _before(looked, of, head, row, column)
    before_TD = stream(looked, of)[0]
    return normalised(layer.norm_of(looked.part(of)), before_TD[row], _cells(f"{of}.before", row), column), ""


def _sum(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    before_TD = stream(looked, of)[0]
    terms_X = torch.stack([before_TD[row, column], looked.part(of).wrote_TD[row, column]])
    places = (before_part(looked, of), f"{of}.wrote")
    line = summed(
        "x",
        "x + written",
        terms_X,
        named=lambda index: ("x", "written")[index],
        at=lambda index: (places[index], None, row, column),
    )
    return [line], ""


def _after(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    layer = layer_of(looked, of)
    if layer.block.pre_norm:
        return _sum(looked, of, head, row, column)
    sum_TD = stream(looked, of)[1]
    return normalised(layer.norm_of(looked.part(of)), sum_TD[row], _cells(f"{of}.sum", row), column), ""


def _wrote(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    part = looked.part(of)
    module = part.module
    scale = None if part.scale_D is None else float(part.scale_D[column])
    if hasattr(module, "activate"):
        layer, x_X, at = module.contract, inner(part)[row], _cells(f"{of}.inner", row)
    elif isinstance(module, Attention | WindowAttention | AdditiveAttention):
        layer, x_X, at = module.to_out, joined(looked, part)[row], _cells(f"{of}.joined", row)
    else:
        last = "states" if isinstance(module, Recurrent) else "mixed"
        layer, x_X, at = module.to_out, stage(looked, of, last)[row], _cells(f"{of}.{last}", row)
    bias = None if layer.bias is None else layer.bias[column]
    formula = "Σ_i y_i W_i + b" if bias is not None else "Σ_i y_i W_i"
    formula = formula if scale is None else f"({formula}) · layer scale"
    return [product("z", formula, x_X, layer.weight[column], bias, at, scale)], ""


def _of_mixer(what: str) -> Callable[[Looked, str, int, int, int], Written]:
    return lambda looked, of, head, row, column: (mixer_lines(looked, of, what, row, column), "")


def _inner(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    part = looked.part(of)
    module = part.module
    at = _cells(f"{of}.read", row)

    def product_of(symbol: str, number: int) -> Line:
        bias = None if module.expand.bias is None else module.expand.bias[number]
        formula = "Σ_d x_d W_d + b" if bias is not None else "Σ_d x_d W_d"
        return product(symbol, formula, part.read_TD[row], module.expand.weight[number], bias, at)

    gate = product_of("gate" if module.gated else "z", column)
    name = module.activation_name
    active = float(module.activation(torch.tensor(gate.value, dtype=torch.float64)))
    if not module.gated:
        return [gate, Line("y", f"{name}(z)", active, numbers=called(name, gate.value))], ""
    value = product_of("z", column + module.expand.out_features // 2)
    said = f"{called(name, gate.value)} · {short(value.value)}"
    return [gate, value, Line("y", f"{name}(gate) · z", active * value.value, numbers=said)], ""


# ---------------------------------------------------------------- attention


def _queries(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return head_vector(looked, of, "queries", head, row, column)


def _keys(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return head_vector(looked, of, "keys", head, row, column)


def _values(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return head_vector(looked, of, "values", head, row, column)


def _scores(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    return score(looked, of, head, row, column)


def _weights(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    scores_S = looked.attention(of).scores_BHTS[0, head, row]
    pieces = _looked_at(looked, of)
    lines = softmax(scores_S, column, lambda index: pieces[index], lambda index: (f"{of}.scores", head, row, index))
    return lines, "" if bool(scores_S[column].isfinite()) else "It is masked: exp(−∞) is 0."


def _heads(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    traced = looked.attention(of)
    pieces = _looked_at(looked, of)
    line = summed(
        "z",
        "Σ_j a_j v_j",
        traced.weights_BHTS[0, head, row],
        traced.values_BHSV[0, head, :, column],
        named=lambda index: pieces[index],
        at=lambda index: (f"{of}.weights", head, row, index),
        right_at=lambda index: (f"{of}.values", head, index, column),
    )
    return [line], ""


def _joined(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    width = looked.attention(of).heads_BHTV.shape[-1]
    number, channel = divmod(column, width)
    lines, note = _heads(looked, of, number, row, channel)
    said = f"Number {channel + 1} of head {number + 1}: the heads' outputs are concatenated."
    return lines, f"{said} {note}".strip()


# ---------------------------------------------------------------- the answer


def _out(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    stack = stack_of(looked, of)
    norm, last = last_norm(looked, stack), stack.layers[-1]
    at = f"{last.parts[-1].name}.after"
    if isinstance(norm, nn.Identity):
        return _elsewhere(looked, at, row, column)
    return normalised(norm, last.after_TD[row], _cells(at, row), column), ""


def _hidden(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    readout = looked.trace.subject.readout
    assert readout is not None
    number = int(of)
    if number == 0:
        return _pooled(looked, row, column)
    x_D, step, at = hidden(looked)[number - 1][row], readout.steps[number - 1], _cells(f"{number - 1}.hidden", row)
    if isinstance(step, Normed):
        return normalised(step.norm, x_D, at, column), ""
    if isinstance(step, Mapped):
        bias = None if step.layer.bias is None else step.layer.bias[column]
        return [product("z", "Σ_d x_d W_d + b", x_D, step.layer.weight[column], bias, at)], ""
    assert isinstance(step, Gelu)
    x = float(x_D[column])
    return [Line("y", "gelu(x)", float(step(exact(x_D))[column]), numbers=called("gelu", x))], ""


def _pooled(looked: Looked, row: int, column: int) -> Written:
    readout, last = looked.trace.subject.readout, looked.trace.last
    assert readout is not None
    name = f"{last.name}.out"
    x_TD = tensor(looked, name)
    width = x_TD.shape[-1]
    if isinstance(readout, SpanReadout):
        return _elsewhere(looked, name, row, column)
    if readout.pool == "position":
        return _elsewhere(looked, name, readout.positions[row], column)
    if readout.pool == "first" or (readout.pool == "both" and column < width):
        return _elsewhere(looked, name, 0, column)
    channel, first = column % width, readout.before
    count = len(x_TD) - first
    line = summed(
        "mean",
        "Σ_t x_t / T",
        x_TD[first:, channel],
        named=lambda index: last.stack.pieces[first + index],
        at=lambda index: (name, None, first + index, channel),
        then=lambda total: total / count,
        numbers=lambda total: f"{short(total)} / {count}",
    )
    return [line], ""


def _logits(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    subject = looked.trace.subject
    readout = subject.readout
    if readout is None:
        return [], "The answer is not a linear map of the last layer's output."
    made = hidden(looked)
    spans = isinstance(readout, SpanReadout)  # of an answer, every position is a word to choose from
    place, word = (column, row) if spans else (row, column)
    h_D, weight_WD, bias_W = made[-1][place], readout.head.weight, readout.head.bias
    bias = None if bias_W is None else bias_W[word]
    cap = float(getattr(readout.head, "cap", 0.0))
    formula = "Σ_d h_d W_d + b" if bias is not None else "Σ_d h_d W_d"
    lines = [product("z", formula, h_D, weight_WD[word], bias, _cells(f"{len(made) - 1}.hidden", place))]
    if cap:
        z = lines[0].value
        said = f"{short(cap)} · tanh({short(z)} / {short(cap)})"
        lines.append(Line("z", "c · tanh(z / c)", cap * math.tanh(z / cap), numbers=said))
    return _finished(lines, float(looked.trace.logits_AW[row, column]))


def _finished(lines: list[Line], logit: float) -> Written:
    """What the readout does to a logit at last, of words that can be copied."""
    z = lines[-1].value
    if abs(logit - z) < 1e-4 * max(1.0, abs(z)):
        return lines, ""
    copied = logit + math.log(-math.expm1(z - logit))
    said = f"ln(exp {short(z)} + exp {short(copied)})"
    line = Line(
        "z′", "ln(exp z + Σ_j exp c_j)", float(torch.logaddexp(*torch.tensor([z, copied]).double())), numbers=said
    )
    return [*lines, line], "The word also occurs in the source, from which it can be copied."


def _probabilities(looked: Looked, of: str, head: int, row: int, column: int) -> Written:
    subject = looked.trace.subject
    logits_W, name_of = subject.softmax_logits(looked.trace.logits_AW[row], row), subject.name_of
    if subject.independent:
        return [sigmoid(logits_W, column, ("logits", None, row, column))], ""
    return softmax(logits_W, column, name_of, lambda index: ("logits", None, row, index), ("p", "z")), ""


# ---------------------------------------------------------------- helpers


def _cells(name: str, row: int, head: int | None = None) -> Callable[[int], Cell]:
    """Where the numbers of a vector stand."""
    return lambda index: (name, head, row, index)


def _elsewhere(looked: Looked, name: str, row: int, column: int) -> Written:
    """The same number, as it came about where it was made."""
    of, _, what = name.rpartition(".")
    return _WAYS[what](looked, of, 0, row, column)


def _looked_at(looked: Looked, part: str) -> list[str]:
    """What stands at the positions that a part looks at."""
    stacks = looked.trace.stacks
    own = next(index for index, stack in enumerate(stacks) if part.startswith(f"{stack.name}."))
    return stacks[own - 1 if looked.part(part).cross else own].stack.pieces


_WAYS: dict[str, Callable[[Looked, str, int, int, int], Written]] = {
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
    "queries": _queries,
    "keys": _keys,
    "values": _values,
    "scores": _scores,
    "weights": _weights,
    "heads": _heads,
    "joined": _joined,
    "out": _out,
    "hidden": _hidden,
    "logits": _logits,
    "probabilities": _probabilities,
    **{what: _of_mixer(what) for what in (*NAMES, *NUMBERED)},
}
