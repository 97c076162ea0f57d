"""Influence: how strongly the output at one position depends on the input at another, for any mixer.

    influence_ts = ‖∂y_t / ∂x_s‖ = √ Σ_ij (∂y_ti / ∂x_sj)²                            Frobenius norm of a Jacobian block

For a stack, x is the input of its first block, or of that of an earlier stack (how a decoder depends on its source),
and y the output of its last block. For a part, x is its input (for cross-attention, the encoder output) and y what it
adds to the residual stream.

A row of the Jacobian is the gradient of q · y_t for a unit vector q. With all D of them the norm is exact. In wide
models q are P random orthonormal vectors, and D/P Σ_q ‖∂(q · y_t)/∂x_s‖² is an unbiased estimate of the square.

Shapes: T positions of y · S positions of x · D model width · P probes · N = T·P gradients · B of them at once
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError, did_you_mean
from regard.inside.named import Named, named
from regard.inside.parts import PartTrace
from regard.inside.sites import watching
from regard.inside.subject import unfused_eval
from regard.inside.trace import Trace
from regard.inside.variants import rows_with_gradients
from regard.layers.context import Context

MOST_GRADIENTS = 2048  # T·D: exact up to here
PROBES = 16  # beyond

Pass = Callable[[int], tuple[Tensor, Tensor]]  # for B identical rows: x, a leaf for autograd, and y: [B, S or T, D]


def influence(
    trace: Trace, stack: str = "", part: str = "", source: str = "", probes: int | None = None, seed: int = 0
) -> Named:
    """For a stack, by default the last, or a part ("decoder.0.mixer"): [T, S].

    `source`: the stack whose input x is; by default that of y itself.
    """
    if probes is not None and (not isinstance(probes, int) or probes < 1):
        raise UsageError(
            f"{probes!r} probes are not enough."
            if isinstance(probes, int)
            else f"The number of probes is {probes!r}, not an integer.",
            "A probe is a random direction in which the output is differentiated.",
            "Use 1 or more; None chooses the number.",
        )
    if part:
        part_trace = _part(trace, part, stack or source)
        stack = part.rpartition(".")[0].rpartition(".")[0]
        source = _before(trace, stack) if _reads_source(part_trace) else stack
        pass_ = _through_part(trace, part_trace)
    else:
        stack = _stack(trace, stack or trace.last.name)
        source = _stack(trace, source or stack)
        pass_ = _through_stacks(trace, source, stack)
    rows, columns = trace[stack].stack.pieces, trace[source].stack.pieces
    width = trace[stack].layers[-1].after_TD.shape[1]
    if probes is None:
        probes = width if len(rows) * width <= MOST_GRADIENTS else PROBES
    probes = min(probes, width)
    q_PD = directions(probes, width, seed)
    norm_TS = jacobian_norms(pass_, len(rows), q_PD, rows_with_gradients(trace.subject))
    exact = probes == width
    notes: dict[str, Any] = {"of": part or stack, "from": source, "exact": exact, "probes": probes} | (
        {} if exact else {"seed": seed}
    )
    return named("influence", norm_TS, [("position", rows), ("from", columns)], **notes)


def directions(probes: int, width: int, seed: int) -> Tensor:
    """All unit vectors if P = D, otherwise random orthonormal ones: [P, D]."""
    if probes == width:
        return torch.eye(width)
    normal_DP = torch.randn(width, probes, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(normal_DP).Q.T


def jacobian_norms(pass_: Pass, length: int, q_PD: Tensor, at_once: int) -> Tensor:
    """√(D/P Σ_q ‖∂(q · y_t)/∂x_s‖²): [T, S]. One forward pass serves all gradients, a chunk of rows at a time."""
    probes, width = q_PD.shape
    count = length * probes
    rows = min(at_once, count)
    x_BSD, y_BTD = pass_(rows)
    squares_NS = []
    for start in range(0, count, rows):
        number_B = torch.arange(start, min(start + rows, count))
        v_BTD = torch.zeros_like(y_BTD)
        row_B = number_B - start
        v_BTD[row_B, number_B // probes] = q_PD[number_B % probes].to(y_BTD)
        (gradient_BSD,) = torch.autograd.grad(y_BTD, x_BSD, v_BTD, retain_graph=True, allow_unused=True)
        if gradient_BSD is None:  # y does not depend on x
            return y_BTD.new_zeros(length, x_BSD.shape[1])
        squares_NS.append(gradient_BSD[: len(row_B)].float().square().sum(-1))
    squares_TPS = torch.cat(squares_NS).unflatten(0, (length, probes))
    return (squares_TPS.sum(1) * (width / probes)).sqrt()


def _through_stacks(trace: Trace, first: str, last: str) -> Pass:
    subject, x_TD = trace.subject, trace[first].layers[0].before_TD
    end = trace[last].layers[-1].name

    def pass_(rows: int) -> tuple[Tensor, Tensor]:
        x_BTD = _rows_of(x_TD, rows)
        with watching(subject, keep=[end], edits={f"{first}.embedding": lambda _: x_BTD}) as activations:
            subject.logits_with_gradient(rows)
        return x_BTD, activations[end]

    return pass_


def _through_part(trace: Trace, part: PartTrace) -> Pass:
    context = part.context
    assert context is not None

    def pass_(rows: int) -> tuple[Tensor, Tensor]:
        with torch.enable_grad(), unfused_eval(trace.subject.model), torch.backends.cudnn.flags(enabled=False):
            x_BTD = read_BTD = _rows_of(part.read_TD, rows)
            batched = expanded(context, rows)
            if _reads_source(part):
                assert batched.memory is not None
                x_BTD = _rows_of(batched.memory.states_BSD[0], rows)
                batched = dataclasses.replace(batched, memory=dataclasses.replace(batched.memory, states_BSD=x_BTD))
            y_BTD = part.module(read_BTD, batched)
            return x_BTD, y_BTD if part.scale_D is None else y_BTD * part.scale_D

    return pass_


def expanded(context: Context, rows: int) -> Context:
    """The same context for this many identical rows."""

    def expand(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor.expand(rows, *tensor.shape[1:])

    memory = context.memory
    if memory is not None:
        memory = dataclasses.replace(
            memory,
            states_BSD=expand(memory.states_BSD),
            mask_B1TS=expand(memory.mask_B1TS),
            summary_BD=expand(memory.summary_BD),
        )
    return dataclasses.replace(
        context,
        segments_BT=expand(context.segments_BT),
        positions_BT=expand(context.positions_BT),
        mask_B1TT=expand(context.mask_B1TT),
        memory=memory,
    )


def _rows_of(x_TD: Tensor, rows: int) -> Tensor:
    return x_TD.detach().repeat(rows, 1, 1).requires_grad_()


def _reads_source(part: PartTrace) -> bool:
    return part.name.endswith(".cross")


def _before(trace: Trace, stack: str) -> str:
    names = [known.name for known in trace.stacks]
    return names[names.index(stack) - 1]


def _stack(trace: Trace, name: str) -> str:
    names = [stack.name for stack in trace.stacks]
    if name not in names:
        raise UsageError(
            f"'{name}' is not a stack of this model.", f"Its stacks are {', '.join(names)}.", did_you_mean(name, names)
        )
    return name


def _part(trace: Trace, name: str, stack: str) -> PartTrace:
    mixing = {part.name: part for part in trace.parts() if part.context is not None}
    if name not in mixing:
        why = "No part that mixes positions has this name."
        raise UsageError(f"Influence is not defined for '{name}'.", why, did_you_mean(name, list(mixing)))
    if stack:
        raise UsageError(
            "Both a part and a stack are given.", "Influence is computed for either.", f"Leave '{stack}' out."
        )
    return mixing[name]
