"""Regeneration under ablation: the output that the model generates with something switched off.

    y_t = argmax p(y_t | y_1 … y_{t−1}, off)

Every step is a full forward pass over all tokens so far, since caches do not support ablation. A translator starts with
<start>; a language model continues its text. Decoding is greedy, even if the run itself uses beam search.

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

MOST = 64  # generated tokens


@torch.no_grad()
def regenerate(
    subject: Subject,
    off: Off,
    by: By = "zero",
    reference: Sequence[Trace] | None = None,
    most: int = MOST,
    longest: int | None = None,
) -> list[int]:
    """The generated ids, without <end>. `longest`: the most positions that the model has, including the prompt."""
    if not generates_text(subject):
        raise UsageError(
            "Nothing can be regenerated here.",
            "The output is not text generated token by token.",
            "Use a translator, a summariser or a language model.",
        )
    assert subject.tokens is not None and subject.with_tokens is not None
    source, prompt = subject.tokens[:-1], [START] if isinstance(subject.model, Seq2Seq) else subject.tokens[-1]
    tokens: list[int] = []
    while len(tokens) < most and (longest is None or len(prompt) + len(tokens) < longest):
        so_far = subject.with_tokens([*source, [*prompt, *tokens]])
        logits_W = ablate(so_far, [_existing_positions(off, so_far)], by, reference)[0, -1]
        token = int(so_far.allowed_logits(logits_W, answer=-1).argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens


def generates_text(subject: Subject) -> bool:
    """Whether its output is text that can be regenerated token by token."""
    return (
        subject.with_tokens is not None
        and isinstance(subject.model, Causal | Seq2Seq)
        and all(stack.grid is None for stack in subject.stacks)
    )


def _existing_positions(off: Off, subject: Subject) -> Off:
    """Without positions that are not generated yet."""
    existing = ((stack, position) for stack, position in off.positions if position < len(subject.stack(stack).pieces))
    return replace(off, positions=tuple(existing))
