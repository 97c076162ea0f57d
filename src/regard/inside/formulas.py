"""Mixers by their formulas: what the fast path computes at once or in kernels, written out one thing after the other.

    attention      softmax of all scores, as a matrix (layers/attention_trace.py)
    Hyena          every long convolution as a sum over positions, instead of by FFT
    recurrence     one position after the other, gate by gate

Each gives what passes inside, by name; `projected`, `streams`, `gated1`, `convolved1` … `mixed` of Hyena, `states` and
`memories` of a recurrence (explore/stages_of_mixers.py says what they are). `initial` is the state before the first.

Shapes: T positions · D model width · X width of a stage · K taps of a filter
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.bahdanau import RecurrentSearch
from regard.layers.context import Context
from regard.layers.hyena import Hyena
from regard.layers.recurrent import Recurrent

INITIAL = "initial"

Stages = dict[str, Tensor]  # [T, X] each


def has_formula(module: nn.Module) -> bool:
    return hasattr(module, "trace") or isinstance(module, Hyena | Recurrent)


@torch.no_grad()
def written_out(module: Any, x_1TD: Tensor, context: Context) -> Tensor:
    """What the module gives for one row, by its formula: [1, T, D]."""
    if hasattr(module, "trace"):
        written_1TD: Tensor = module.trace(x_1TD, context).output_BTD
        return written_1TD
    last = "mixed" if isinstance(module, Hyena) else "states"
    written_TD: Tensor = module.to_out(stages(module, x_1TD[0], context)[last])
    return written_TD[None]


def stages(module: Any, x_TD: Tensor, context: Context) -> Stages:
    """What passes inside; nothing, of attention."""
    with torch.no_grad():
        if isinstance(module, Hyena):
            return _hyena(module, x_TD, context)
        if isinstance(module, Recurrent):
            return _recurrence(module, x_TD, context)
        return _search(module, x_TD, context) if isinstance(module, RecurrentSearch) else {}


# ---------------------------------------------------------------- Hyena


def _hyena(hyena: Hyena, x_TD: Tensor, context: Context) -> Stages:
    streams = [stream_1DT[0] for stream_1DT in hyena.streams(x_TD[None], context)]
    made: Stages = {"projected": hyena.to_streams(x_TD), "streams": torch.cat(streams).T}
    z_DT, *gates = streams
    for n, gate_DT in enumerate(gates, start=1):
        if hyena.skips is None:
            z_DT = _convolved(hyena, z_DT, n)
            made[f"convolved{n}"] = z_DT.T
        z_DT = gate_DT * z_DT
        made["mixed" if n == len(gates) else f"gated{n}"] = z_DT.T
        if hyena.skips is not None and n < len(gates):
            z_DT = _convolved(hyena, z_DT, n) + hyena.skips[n - 1][:, None] * z_DT
            made[f"convolved{n}"] = z_DT.T
    return made


def _convolved(hyena: Hyena, z_DT: Tensor, number: int) -> Tensor:
    """h ∗ z as the sum that it is: over what lies behind, and over what lies ahead where that is seen."""
    before = z_DT.shape[1] - 1
    h_DK, ahead_DK = hyena.filters(before + 1)[number - 1]
    taps_DK = h_DK.flip(1) if ahead_DK is None else torch.cat([h_DK.flip(1), ahead_DK[:, 1:]], dim=1)
    padded_DX = F.pad(z_DT, (before, 0 if ahead_DK is None else before))
    return F.conv1d(padded_DX[None], taps_DK[:, None], groups=len(z_DT))[0]


# ---------------------------------------------------------------- recurrence


def _recurrence(module: Recurrent, x_TD: Tensor, context: Context) -> Stages:
    forth = _one_by_one(module.forwards, x_TD, module.initial(context.memory))
    if module.backwards is None:
        return forth
    back = _one_by_one(module.backwards, x_TD.flip(0), None)
    return {name: torch.cat([x_TX, back[name].flip(0)], dim=1) for name, x_TX in forth.items()}


def _one_by_one(cell: nn.RNNBase, x_TD: Tensor, first: Tensor | tuple[Tensor, ...] | None) -> Stages:
    """h after each position, and c of an LSTM."""
    kind = type(cell)
    zeros_D = x_TD.new_zeros(cell.hidden_size)
    vectors = [each.flatten() for each in vectors_of(first)] or [zeros_D] * (2 if kind is nn.LSTM else 1)
    weights = [getattr(cell, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    passed = [vectors]
    for x_D in x_TD:
        vectors = _step(kind, x_D, vectors, weights)
        passed.append(vectors)
    made: Stages = {}
    for name, (first_D, *rest) in zip(("states", "memories"), zip(*passed, strict=True), strict=False):
        made |= {name: torch.stack(rest), INITIAL if name == "states" else f"{INITIAL} {name}": first_D[None]}
    return made


def _step(kind: type, x_D: Tensor, vectors: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """One position further."""
    h_D, (w, u, b, c) = vectors[0], weights
    of_x, of_h = (w @ x_D + b), (u @ h_D + c)
    if kind is nn.RNN:
        return [torch.tanh(of_x + of_h)]
    if kind is nn.GRU:
        (r, z, n), (past_r, past_z, past_n) = of_x.chunk(3), of_h.chunk(3)
        z = torch.sigmoid(z + past_z)
        return [(1 - z) * torch.tanh(n + torch.sigmoid(r + past_r) * past_n) + z * h_D]
    i, f, g, o = (of_x + of_h).chunk(4)
    memory_D = torch.sigmoid(f) * vectors[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(memory_D), memory_D]


def _search(module: RecurrentSearch, x_TD: Tensor, context: Context) -> Stages:
    cells, found_1TD = module.read(x_TD[None], context)
    states_TD = torch.cat([vectors_of(cell)[0] for cell in cells[1:]])
    made: Stages = {"states": states_TD, INITIAL: vectors_of(cells[0])[0]}
    if module.vectors == 2:
        memories_TD = torch.cat([vectors_of(cell)[1] for cell in cells[1:]])
        made |= {"memories": memories_TD, f"{INITIAL} memories": vectors_of(cells[0])[1]}
    made["pairs"] = module.to_pairs(torch.cat([states_TD, x_TD, found_1TD[0]], dim=-1))
    return made | {"mixed": made["pairs"].unflatten(-1, (-1, 2)).amax(-1)}


def vectors_of(state: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """A state is one vector, or two, or there is none yet."""
    return () if state is None else (state,) if isinstance(state, Tensor) else tuple(state)
