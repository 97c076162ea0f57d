"""Writing with something switched off: what the model would then have written, token by token.

    y_t = argmax p(y_t | y_1 … y_{t−1}), with the same things off at every step

Every step is a whole pass over all that stands there so far, since caches know nothing of what is off. A translator
begins with <start>; a language model goes on after its text. What is written is the likeliest token of each step, also
where the run itself searches with beams.

Shapes: A answers · W words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from regard.data.tokenizers import END, START
from regard.errors import UsageError
from regard.inside.ablation import By, Off, ablate
from regard.inside.subject import Subject
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from regard.inside.trace import Trace

MOST = 64  # tokens that are written


@torch.no_grad()
def written(
    subject: Subject,
    off: Off,
    by: By = "zero",
    reference: Sequence[Trace] | None = None,
    most: int = MOST,
    longest: int | None = None,
) -> list[int]:
    """The ids that are written, without <end>. `longest`: positions that the model has, with those before them."""
    if not writes(subject):
        raise UsageError(
            "Nothing can be regenerated here.",
            "The output is not text generated token by token.",
            "Use a translator, a summariser or a language model.",
        )
    assert subject.tokens is not None and subject.with_tokens is not None
    before, begun = subject.tokens[:-1], [START] if isinstance(subject.model, Seq2Seq) else subject.tokens[-1]
    tokens: list[int] = []
    while len(tokens) < most and (longest is None or len(begun) + len(tokens) < longest):
        now = subject.with_tokens([*before, [*begun, *tokens]])
        logits_W = ablate(now, [_so_far(off, now)], by, reference)[0, -1]
        token = int(now.writable(logits_W, answer=-1).argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens


def writes(subject: Subject) -> bool:
    """Whether its output is a text that can be written again from ids."""
    return (
        subject.with_tokens is not None
        and isinstance(subject.model, Causal | Seq2Seq)
        and all(stack.grid is None for stack in subject.stacks)
    )


def _so_far(off: Off, subject: Subject) -> Off:
    """Without positions at which nothing stands yet."""
    there = ((stack, position) for stack, position in off.positions if position < len(subject.stack(stack).pieces))
    return replace(off, positions=tuple(there))
