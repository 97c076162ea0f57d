"""Variants: the same input many times, each row of the batch edited in its own way.

A hundred changes are then a few passes of the model. Rows are taken in chunks, so that memory stays bounded however
many changes there are, and however long the input is.

Shapes: N variants · B of them in a chunk · T positions · X width of a site · A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from regard.inside.sites import Edit, watching
from regard.inside.subject import Stack, Subject

MOST_NUMBERS = 1 << 25  # of a chunk, about: the widest it is anywhere
WIDEST = 8  # times the model's width: what a block has of a position at once
KEPT = 4  # times as much: what is kept of a block for a gradient

EditsOf = Callable[[slice], Mapping[str, Edit]]  # the edits of these variants, which are the rows of a batch
Read = Callable[[Tensor], Tensor]  # from logits [B, A, W]: [B, …]


def variants(subject: Subject, count: int, edits_of: EditsOf, read: Read = lambda logits_BAW: logits_BAW) -> Tensor:
    """What is read from the logits [B, A, W] of every variant: [N, …]."""
    at_once = rows_at_once(subject)
    made = []
    for start in range(0, count, at_once):
        rows = slice(start, min(start + at_once, count))
        with watching(subject, edits=edits_of(rows)):
            made.append(read(subject.logits(rows.stop - rows.start)))
    return torch.cat(made)


def replacing(masks: Mapping[str, Tensor], instead: Mapping[str, Tensor]) -> EditsOf:
    """Where a mask is true, something else passes: of each site a mask [N, T or 1, X or 1] and that [T or 1, X]."""

    def edit(mask_BTX: Tensor, other: Tensor) -> Edit:
        return lambda x_BTX: torch.where(mask_BTX, other.to(x_BTX.dtype), x_BTX)

    return lambda rows: {site: edit(mask[rows], instead[site]) for site, mask in masks.items()}


def rows_at_once(subject: Subject) -> int:
    """Rows of a chunk."""
    words = getattr(getattr(subject.readout, "head", None), "out_features", 0)
    inside = sum(len(stack.pieces) * WIDEST * _width(stack) for stack in subject.stacks)
    return max(1, MOST_NUMBERS // max(1, inside + len(subject.answers) * words))


def rows_with_gradients(subject: Subject) -> int:
    """Rows of a chunk through which gradients are taken, for which something of every block is kept."""
    return max(1, rows_at_once(subject) // (KEPT * sum(len(stack.blocks) for stack in subject.stacks)))


def log_p_of_answers(subject: Subject, logits_BAW: Tensor) -> Tensor:
    """ln p of what the model said, for each answer: [B, A]."""
    said_A = torch.tensor([answer.token for answer in subject.answers], device=logits_BAW.device)
    log_p_BAW = subject.log_p(logits_BAW)
    return log_p_BAW.gather(2, said_A.expand(len(logits_BAW), -1)[..., None])[..., 0]


def _width(stack: Stack) -> int:
    return max(parameter.numel() for parameter in stack.blocks[0].mixer_norm.parameters())
