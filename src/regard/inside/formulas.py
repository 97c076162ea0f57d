"""Mixers by their formulas: a slow reference for what the fast path computes in fused kernels.

    attention      softmax of all scores, as a matrix (layers/attention_trace.py)
    Hyena          every long convolution as a sum over positions, instead of by FFT
    recurrence     position by position, gate by gate

`stages` returns the intermediate results by name: `projected`, `streams`, `gated1`, `convolved1` … `mixed` for Hyena,
`states` and `memories` for recurrence (see explore/stages_of_mixers.py). `initial` is the state before the first step.

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
def formula_output(module: Any, x_1TD: Tensor, context: Context) -> Tensor:
    """The output of a mixer for one row, by its formula: [1, T, D]."""
    if hasattr(module, "trace"):
        y_1TD: Tensor = module.trace(x_1TD, context).output_BTD
        return y_1TD
    last = "mixed" if isinstance(module, Hyena) else "states"
    y_TD: Tensor = module.to_out(stages(module, x_1TD[0], context)[last])
    return y_TD[None]


def stages(module: Any, x_TD: Tensor, context: Context) -> Stages:
    """The intermediate results; none for attention."""
    with torch.no_grad():
        if isinstance(module, Hyena):
            return _hyena(module, x_TD, context)
        if isinstance(module, Recurrent):
            return _recurrence(module, x_TD, context)
        return _search(module, x_TD, context) if isinstance(module, RecurrentSearch) else {}


# ---------------------------------------------------------------- Hyena


def _hyena(hyena: Hyena, x_TD: Tensor, context: Context) -> Stages:
    streams = [stream_1DT[0] for stream_1DT in hyena.streams(x_TD[None], context)]
    results: Stages = {"projected": hyena.to_streams(x_TD), "streams": torch.cat(streams).T}
    z_DT, *gates = streams
    for n, gate_DT in enumerate(gates, start=1):
        if hyena.skips is None:
            z_DT = _convolved(hyena, z_DT, n)
            results[f"convolved{n}"] = z_DT.T
        z_DT = gate_DT * z_DT
        results["mixed" if n == len(gates) else f"gated{n}"] = z_DT.T
        if hyena.skips is not None and n < len(gates):
            z_DT = _convolved(hyena, z_DT, n) + hyena.skips[n - 1][:, None] * z_DT
            results[f"convolved{n}"] = z_DT.T
    return results


def _convolved(hyena: Hyena, z_DT: Tensor, number: int) -> Tensor:
    """h ∗ z as a sum over earlier positions, and over later ones if the layer is bidirectional."""
    before = z_DT.shape[1] - 1
    h_DK, ahead_DK = hyena.filters(before + 1)[number - 1]
    taps_DK = h_DK.flip(1) if ahead_DK is None else torch.cat([h_DK.flip(1), ahead_DK[:, 1:]], dim=1)
    padded_DX = F.pad(z_DT, (before, 0 if ahead_DK is None else before))
    return F.conv1d(padded_DX[None], taps_DK[:, None], groups=len(z_DT))[0]


# ---------------------------------------------------------------- recurrence


def _recurrence(module: Recurrent, x_TD: Tensor, context: Context) -> Stages:
    forward = _unrolled(module.forwards, x_TD, module.initial(context.memory))
    if module.backwards is None:
        return forward
    backward = _unrolled(module.backwards, x_TD.flip(0), None)
    return {name: torch.cat([x_TX, backward[name].flip(0)], dim=1) for name, x_TX in forward.items()}


def _unrolled(cell: nn.RNNBase, x_TD: Tensor, initial: Tensor | tuple[Tensor, ...] | None) -> Stages:
    """h after each position, and for an LSTM c."""
    kind = type(cell)
    zeros_D = x_TD.new_zeros(cell.hidden_size)
    state = [vector.flatten() for vector in vectors_of(initial)] or [zeros_D] * (2 if kind is nn.LSTM else 1)
    weights = [getattr(cell, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    states = [state]
    for x_D in x_TD:
        state = _step(kind, x_D, state, weights)
        states.append(state)
    results: Stages = {}
    for name, (first_D, *rest) in zip(("states", "memories"), zip(*states, strict=True), strict=False):
        results |= {name: torch.stack(rest), INITIAL if name == "states" else f"{INITIAL} {name}": first_D[None]}
    return results


def _step(kind: type, x_D: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """The state after one more position."""
    h_D, (w, u, b, c) = state[0], weights
    from_x, from_h = (w @ x_D + b), (u @ h_D + c)
    if kind is nn.RNN:
        return [torch.tanh(from_x + from_h)]
    if kind is nn.GRU:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = from_x.chunk(3), from_h.chunk(3)
        z = torch.sigmoid(x_z + h_z)
        return [(1 - z) * torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n) + z * h_D]
    i, f, g, o = (from_x + from_h).chunk(4)
    memory_D = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(memory_D), memory_D]


def _search(module: RecurrentSearch, x_TD: Tensor, context: Context) -> Stages:
    cells, read_1TD = module.read(x_TD[None], context)
    states_TD = torch.cat([vectors_of(cell)[0] for cell in cells[1:]])
    results: Stages = {"states": states_TD, INITIAL: vectors_of(cells[0])[0]}
    if module.vectors == 2:
        memories_TD = torch.cat([vectors_of(cell)[1] for cell in cells[1:]])
        results |= {"memories": memories_TD, f"{INITIAL} memories": vectors_of(cells[0])[1]}
    results["pairs"] = module.to_pairs(torch.cat([states_TD, x_TD, read_1TD[0]], dim=-1))
    return results | {"mixed": results["pairs"].unflatten(-1, (-1, 2)).amax(-1)}


def vectors_of(state: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """The vectors of a recurrent state: one, two for an LSTM, or none for None."""
    return () if state is None else (state,) if isinstance(state, Tensor) else tuple(state)
