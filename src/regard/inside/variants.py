"""Variants: the same input many times, with a different edit in each row of the batch.

A hundred edits are then a few forward passes. Rows are processed in chunks, which bounds memory for any number of edits
and any length of the input.

Shapes: N variants · B of them in a chunk · T positions · X width of a site · A answers · W words or classes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from regard.inside.sites import Edit, watching
from regard.inside.subject import Stack, Subject

MOST_NUMBERS = 1 << 25  # approximate peak of a chunk
PEAK_WIDTHS = 8  # model widths per position: the peak inside a block
SAVED_PEAKS = 4  # such peaks per block that autograd saves

EditsOf = Callable[[slice], Mapping[str, Edit]]  # the edits of a chunk of variants, the rows of a batch
Read = Callable[[Tensor], Tensor]  # from logits [B, A, W] to [B, …]


def variants(subject: Subject, count: int, edits_of: EditsOf, read: Read = lambda logits_BAW: logits_BAW) -> Tensor:
    """`read` of the logits [B, A, W] of every variant: [N, …]."""
    at_once = rows_at_once(subject)
    results = []
    for start in range(0, count, at_once):
        rows = slice(start, min(start + at_once, count))
        with watching(subject, edits=edits_of(rows)):
            results.append(read(subject.logits(rows.stop - rows.start)))
    return torch.cat(results)


def replacing(masks: Mapping[str, Tensor], replacements: Mapping[str, Tensor]) -> EditsOf:
    """Replace activations where a mask is true. For each site, a mask [N, T or 1, X or 1] and values [T or 1, X]."""

    def edit(mask_BTX: Tensor, values: Tensor) -> Edit:
        return lambda x_BTX: torch.where(mask_BTX, values.to(x_BTX.dtype), x_BTX)

    return lambda rows: {site: edit(mask[rows], replacements[site]) for site, mask in masks.items()}


def rows_at_once(subject: Subject) -> int:
    """Rows of a chunk."""
    words = getattr(getattr(subject.readout, "head", None), "out_features", 0)
    hidden = sum(len(stack.pieces) * PEAK_WIDTHS * _width(stack) for stack in subject.stacks)
    return max(1, MOST_NUMBERS // max(1, hidden + len(subject.answers) * words))


def rows_with_gradients(subject: Subject) -> int:
    """Rows of a chunk with gradients, for which autograd saves activations of every block."""
    return max(1, rows_at_once(subject) // (SAVED_PEAKS * sum(len(stack.blocks) for stack in subject.stacks)))


def log_p_of_answers(subject: Subject, logits_BAW: Tensor) -> Tensor:
    """ln p of each answer: [B, A]."""
    answer_A = torch.tensor([answer.token for answer in subject.answers], device=logits_BAW.device)
    log_p_BAW = subject.log_p(logits_BAW)
    return log_p_BAW.gather(2, answer_A.expand(len(logits_BAW), -1)[..., None])[..., 0]


def _width(stack: Stack) -> int:
    return max(parameter.numel() for parameter in stack.blocks[0].mixer_norm.parameters())
