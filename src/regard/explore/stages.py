"""The vectors that a position passes on its way through a model, by name: what look.py's matrices leave out.

    STACK.token, .place, .summed, .embedded     a token's vector, its position, their sum, and that after any norm
    PART.before, .sum, .after                   the residual stream before a part, with what it wrote, and normalised
    PART.inner                                  of a feed-forward: after the activation
    PART.joined                                 the heads side by side, before W_O
    PART.states, .streams …                     inside other mixers: stages_of_mixers.py
    STACK.out                                   what leaves the last block, after the last norm
    N.hidden                                    what answers are read from: pooled, and after each step that follows
    logits, probabilities                       of every answer

Shapes: T positions · D model width · F inner width · X = heads · value width · A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.explore.session import Looked
from regard.explore.stages_of_mixers import NAMES, NUMBERED, stage
from regard.inside.parts import LayerTrace, PartTrace, StackTrace
from regard.inside.subject import unfused_eval


def stack_of(looked: Looked, name: str) -> StackTrace:
    stack = next((each for each in looked.trace.stacks if each.name == name), None)
    if stack is None:
        raise UsageError(f"There is no stack '{name}'.", "There is no such stack.", "Choose another.")
    return stack


def layer_of(looked: Looked, part: str) -> LayerTrace:
    """The layer that a part belongs to: of "encoder.0.mixer", "encoder.0"."""
    looked.part(part)
    return next(layer for stack in looked.trace.stacks for layer in stack.layers if part.startswith(f"{layer.name}."))


@torch.no_grad()
def stream(looked: Looked, part: str) -> tuple[Tensor, Tensor, Tensor]:
    """The residual stream before a part, with what it wrote, and after its norm where that comes last: [T, D] each."""
    layer = layer_of(looked, part)
    after_TD = layer.before_TD
    for each in layer.parts:
        before_TD = after_TD
        sum_TD = before_TD + each.wrote_TD
        after_TD = sum_TD if layer.block.pre_norm else layer.norm_of(each)(sum_TD)
        if each.name == part:
            break
    return before_TD, sum_TD, after_TD


def before_part(looked: Looked, part: str) -> str:
    """The name of the matrix that a part finds in the residual stream: of whatever came before it."""
    stack = stack_of(looked, part.rpartition(".")[0].rpartition(".")[0])
    earlier = [each.name for layer in stack.layers for each in layer.parts]
    number = earlier.index(part)
    return f"{earlier[number - 1]}.after" if number else f"{stack.name}.embedded"


@torch.no_grad()
def inner(part: PartTrace) -> Tensor:
    """What a feed-forward has between its two products: [T, F]."""
    inner_TF: Tensor = part.module.activate(part.module.expand(part.read_TD))
    return inner_TF


def joined(looked: Looked, part: PartTrace) -> Tensor:
    """The heads side by side: [T, X]."""
    if part.joined_TX is not None:
        return part.joined_TX
    return looked.attention(part.name).heads_BHTV[0].transpose(0, 1).flatten(1)


def last_norm(looked: Looked, stack: StackTrace) -> nn.Module:
    """After the last block of a stack; of the last stack, it belongs to the readout."""
    subject = looked.trace.subject
    if stack is looked.trace.last:
        return subject.readout.norm if subject.readout is not None else nn.Identity()
    norm: Any = getattr(subject.model, "encoder_norm", None)
    return norm if norm is not None else nn.Identity()


@torch.no_grad()
def out(looked: Looked, stack: StackTrace) -> Tensor:
    x_TD: Tensor = last_norm(looked, stack)(stack.layers[-1].after_TD)
    return x_TD


@torch.no_grad()
def hidden(looked: Looked) -> list[Tensor]:
    """What answers are read from: pooled, and after each step that follows: [A, D]."""
    readout = looked.trace.subject.readout
    if readout is None:
        raise UsageError(
            "This cannot be shown.",
            "The answer is not a linear map of the last layer's output.",
            "Choose another step.",
        )
    with unfused_eval(looked.trace.subject.model):
        made = [readout.pooled(out(looked, looked.trace.last)[None])]
        for step in readout.steps:
            made.append(step(made[-1]))
    return [x_1AD[0] for x_1AD in made]


# ---------------------------------------------------------------- by name


def _of_embedding(looked: Looked, of: str, what: str) -> Tensor:
    stack = stack_of(looked, of)
    made = stack.embedding
    if what == "embedded":
        return stack.layers[0].before_TD
    return (
        made.raw_content_TD + made.raw_position_TD
        if what == "summed"
        else {"token": made.raw_content_TD, "place": made.raw_position_TD}[what]
    )


def _of_stream(looked: Looked, of: str, what: str) -> Tensor:
    return dict(zip(("before", "sum", "after"), stream(looked, of), strict=True))[what]


def _inner(looked: Looked, of: str, what: str) -> Tensor:
    part = looked.part(of)
    if not hasattr(part.module, "activate"):
        raise UsageError(f"'{of}' has no inner vector.", "It is not a feed-forward.", "Choose another part.")
    return inner(part)


def _joined(looked: Looked, of: str, what: str) -> Tensor:
    return joined(looked, looked.part(of))


def _out(looked: Looked, of: str, what: str) -> Tensor:
    return out(looked, stack_of(looked, of))


def _hidden(looked: Looked, of: str, what: str) -> Tensor:
    made = hidden(looked)
    if not of.isdigit() or int(of) >= len(made):
        raise UsageError(f"There is no '{of}.hidden'.", f"There are {len(made)}, counted from 0.", "Choose another.")
    return made[int(of)]


def _probabilities(looked: Looked, of: str, what: str) -> Tensor:
    return looked.trace.p_AW


READERS: dict[str, Callable[[Looked, str, str], Tensor]] = {
    **dict.fromkeys(("token", "place", "summed", "embedded"), _of_embedding),
    **dict.fromkeys(("before", "sum", "after"), _of_stream),
    "inner": _inner,
    "joined": _joined,
    "out": _out,
    "hidden": _hidden,
    "probabilities": _probabilities,
    **dict.fromkeys((*NAMES, *NUMBERED), stage),
}
