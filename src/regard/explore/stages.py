"""The stages between the matrices that a trace records: every other vector on a position's way through a model.

    STACK.token, .place, .summed, .embedded     a token's vector, its position's, their sum, and the sum after any norm
    PART.before, .sum, .after                   the residual stream before a part, with its output added, and after
                                                the norm where that comes last
    PART.inner                                  of a feed-forward: after the activation
    PART.joined                                 the concatenated heads, before W_O
    PART.states, .streams …                     inside other mixers: stages_of_mixers.py
    STACK.out                                   the output of the last block, after the last norm
    N.hidden                                    what answers are read from: pooled, and after each further step
    logits, probabilities                       of every answer

Shapes: T positions · D model width · F inner width · X = heads · value width · A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.explore.session import TracedInput
from regard.explore.stages_of_mixers import NAMES, NUMBERED, stage
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.subject import unfused_eval
from regard.inside.trace import Trace


def stack_of(traced: TracedInput, name: str) -> StackTrace:
    stack = next((stack for stack in traced.trace.stacks if stack.name == name), None)
    if stack is None:
        raise UsageError(f"There is no stack '{name}'.", "This model does not have it.", "Choose another.")
    return stack


def stack_with(trace: Trace, part: PartTrace) -> StackTrace:
    """The stack that a part belongs to."""
    return next(stack for stack in trace.stacks if part.name.startswith(f"{stack.name}."))


def key_stack(trace: Trace, part: PartTrace) -> StackTrace:
    """The stack that an attention attends to: its own, or the previous one."""
    own = next(index for index, stack in enumerate(trace.stacks) if part.name.startswith(f"{stack.name}."))
    return trace.stacks[own - 1 if part.cross else own]


def place_name(stack: StackTrace, position: int) -> str:
    """The piece at a position; of an image "row 3, column 1", and the colour of a pixel before it."""
    piece, grid, cell = stack.stack.pieces[position], stack.stack.grid, position - stack.stack.before
    if grid is None or cell < 0:
        return piece
    row, column = divmod(cell, grid[1])
    place = f"row {row + 1}, column {column + 1}"
    return f"{piece}, {place}" if piece.startswith("#") else place


def layer_of(traced: TracedInput, part: str) -> LayerTrace:
    """The layer that a part belongs to: of "encoder.0.mixer", "encoder.0"."""
    traced.part(part)
    return next(layer for stack in traced.trace.stacks for layer in stack.layers if part.startswith(f"{layer.name}."))


@torch.no_grad()
def stream(traced: TracedInput, part: str) -> tuple[Tensor, Tensor, Tensor]:
    """The residual stream before a part, with its output added, and after the norm with post-norm: [T, D] each."""
    layer = layer_of(traced, part)
    after_TD = layer.before_TD
    for current in layer.parts:
        before_TD = after_TD
        sum_TD = before_TD + current.wrote_TD
        after_TD = sum_TD if layer.block.pre_norm else layer.norm_of(current)(sum_TD)
        if current.name == part:
            break
    return before_TD, sum_TD, after_TD


def before_part(traced: TracedInput, part: str) -> str:
    """The name of the matrix that is the residual stream before a part."""
    stack = stack_with(traced.trace, traced.part(part))
    names = [part.name for layer in stack.layers for part in layer.parts]
    number = names.index(part)
    return f"{names[number - 1]}.after" if number else f"{stack.name}.embedded"


@torch.no_grad()
def inner(part: PartTrace) -> Tensor:
    """The hidden layer of a feed-forward, after the activation: [T, F]."""
    inner_TF: Tensor = part.module.activate(part.module.expand(part.read_TD))
    return inner_TF


def joined(traced: TracedInput, part: PartTrace) -> Tensor:
    """The concatenated heads: [T, X]."""
    if part.joined_TX is not None:
        return part.joined_TX
    return traced.attention(part.name).heads_BHTV[0].transpose(0, 1).flatten(1)


def last_norm(traced: TracedInput, stack: StackTrace) -> nn.Module:
    """The norm after the last block of a stack. That of the last stack belongs to the readout."""
    subject = traced.trace.subject
    if stack is traced.trace.last:
        return subject.readout.norm if subject.readout is not None else nn.Identity()
    norm: Any = getattr(subject.model, "encoder_norm", None)
    return norm if norm is not None else nn.Identity()


@torch.no_grad()
def out(traced: TracedInput, stack: StackTrace) -> Tensor:
    x_TD: Tensor = last_norm(traced, stack)(stack.layers[-1].after_TD)
    return x_TD


@torch.no_grad()
def hidden(traced: TracedInput) -> list[Tensor]:
    """What answers are read from: pooled, and after each further step of the readout: [A, D] each."""
    readout = traced.trace.subject.readout
    if readout is None:
        raise UsageError(
            "This cannot be shown.",
            "The answer is not a linear map of the last layer's output.",
            "Choose another step.",
        )
    with unfused_eval(traced.trace.subject.model):
        vectors = [readout.pooled(out(traced, traced.trace.last)[None])]
        for step in readout.steps:
            vectors.append(step(vectors[-1]))
    return [x_1AD[0] for x_1AD in vectors]


# ---------------------------------------------------------------- by name


def _of_embedding(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    stack = stack_of(traced, owner)
    token_TD, place_TD = stack.embedding.raw_content_TD, stack.embedding.raw_position_TD
    if quantity == "embedded":
        return stack.layers[0].before_TD
    return {"token": token_TD, "place": place_TD, "summed": token_TD + place_TD}[quantity]


def _of_stream(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    return dict(zip(("before", "sum", "after"), stream(traced, owner), strict=True))[quantity]


def _inner(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    part = traced.part(owner)
    if not hasattr(part.module, "activate"):
        raise UsageError(f"'{owner}' has no inner vector.", "It is not a feed-forward.", "Choose another part.")
    return inner(part)


def _joined(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    return joined(traced, traced.part(owner))


def _out(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    return out(traced, stack_of(traced, owner))


def _hidden(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    vectors = hidden(traced)
    if not owner.isdigit() or int(owner) >= len(vectors):
        raise UsageError(
            f"There is no '{owner}.hidden'.", f"There are {len(vectors)}, counted from 0.", "Choose another."
        )
    return vectors[int(owner)]


def _probabilities(traced: TracedInput, owner: str, quantity: str) -> Tensor:
    return traced.trace.p_AW


STAGES: dict[str, Callable[[TracedInput, str, str], Tensor]] = {
    **dict.fromkeys(("token", "place", "summed", "embedded"), _of_embedding),
    **dict.fromkeys(("before", "sum", "after"), _of_stream),
    "inner": _inner,
    "joined": _joined,
    "out": _out,
    "hidden": _hidden,
    "probabilities": _probabilities,
    **dict.fromkeys((*NAMES, *NUMBERED), stage),
}
