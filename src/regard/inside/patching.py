"""Activation patching: which activations of one run, copied into another, restore the output of the first.

    d(run)  = logit(answer of the clean run) − logit(answer of the corrupted run)
    effect  = (d(patched) − d(corrupted)) / (d(clean) − d(corrupted))

The patched run is the corrupted run with one activation of the clean run: the residual stream at one position after one
layer, the output of one head at all positions, or the output of one part at one position. 1: the patch alone restores
the clean difference; 0: it has no effect.

Shapes: N patches · B of them in a chunk · T positions · X width of a site · A answers · W words or classes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.readout import SpanReadout
from regard.inside.sites import PARTS, sites_of, watching
from regard.inside.subject import Subject
from regard.inside.trace import Trace
from regard.inside.variants import replacing, variants

What = Literal["residual", "heads", "parts"]
SMALLEST = 1e-6  # d(clean) − d(corrupted) to which an effect can be relative


def patch(
    corrupted: Trace,
    clean: Trace,
    what: What = "residual",
    answer: int | None = None,
    tokens: tuple[int | str, int | str] | None = None,
) -> Named:
    """The effect of each patch; NaN where there is nothing to patch, such as past the end of a stack.

    `answer`: by default the last; if both runs agree on that, the first on which they differ.
    `tokens`: the two that are compared, by default the answers of the clean and the corrupted run.
    """
    if not isinstance(clean, Trace):
        raise UsageError(
            "The activations must come from another trace.",
            f"This is a {type(clean).__name__}.",
            'Use run.trace("Another text.").',
        )
    _must_match(corrupted.subject, clean.subject)
    answer, ids = _compared(corrupted.subject, clean.subject, answer, None if tokens is None else _ids(tokens, clean))
    high, low = (float(_difference(each.logits_AW[None], answer, ids)) for each in (clean, corrupted))
    if not abs(high - low) > SMALLEST:
        raise UsageError(
            "There is nothing to restore.",
            "Both inputs give these two answers the same logits.",
            "Choose another answer, or another input.",
        )
    rows, columns, cells = _cells(corrupted.subject, what)
    d_N = patched(corrupted, clean, [{cell.site: cell.part} for cell in cells], answer, ids)
    effect = np.full((len(rows), len(columns)), math.nan, dtype=np.float32)
    for cell, d in zip(cells, d_N.tolist(), strict=True):
        effect[cell.row, cell.column] = (d - low) / (high - low)
    name_of = corrupted.subject.name_of
    return named(
        "effect",
        effect,
        [("part" if what != "residual" else "layer", rows), ("head" if what == "heads" else "position", columns)],
        "of the difference",
        answer=answer,
        tokens=[name_of(token) for token in ids],
        clean=high,
        corrupted=low,
        pieces={stack.name: stack.pieces for stack in corrupted.subject.stacks},
    )


def patched(
    corrupted: Trace, clean: Trace, patches: Sequence[Mapping[str, Any]], answer: int, tokens: tuple[int, int]
) -> Tensor:
    """The logit difference d after each patch: [N]. A patch maps sites to the part that comes from the clean run.

    This is a position, a slice of columns at all positions (for sites of heads), or `...` for everything.
    """
    sites = sorted({site for patch in patches for site in patch})
    with watching(clean.subject, keep=sites) as activations:
        clean.subject.logits()
    clean_values = {site: activations[site][0] for site in sites}
    masks = {}
    for site, x_TX in clean_values.items():
        size = x_TX.shape[1 if site.endswith(".heads") else 0]
        mask_NX = torch.zeros(len(patches), size, dtype=torch.bool, device=x_TX.device)
        for row, patch in enumerate(patches):
            if site in patch:
                mask_NX[row, patch[site]] = True
        masks[site] = mask_NX[:, None] if site.endswith(".heads") else mask_NX[..., None]
    return variants(
        corrupted.subject,
        len(patches),
        replacing(masks, clean_values),
        lambda logits_BAW: _difference(logits_BAW, answer, tokens),
    )


def _difference(logits_BAW: Tensor, answer: int, tokens: tuple[int, int]) -> Tensor:
    return logits_BAW[:, answer, tokens[0]] - logits_BAW[:, answer, tokens[1]]


class Cell(NamedTuple):
    """A patch, and the cell of the table that has its effect."""

    site: str
    part: int | slice  # a position, or the columns of a head
    row: int
    column: int


def _cells(subject: Subject, what: What) -> tuple[list[str], list[str], list[Cell]]:
    """Names of the rows and of the columns, and the patch of each cell."""
    sites = sites_of(subject)
    cells: list[Cell] = []
    if what == "heads":
        rows = [site for site in sites if site.endswith(".heads")]
        if not rows:
            raise UsageError(
                "This model has no heads to patch.", "None of its parts is an attention layer.", 'Use what="parts".'
            )
        for row, site in enumerate(rows):
            heads, to_out = int(getattr(sites[site.removesuffix(".heads")], "heads", 0)), cast(nn.Linear, sites[site])
            width = to_out.in_features // heads
            cells += [Cell(site, slice(h * width, (h + 1) * width), row, h) for h in range(heads)]
        most = 1 + max(cell.column for cell in cells)
        return [site.removesuffix(".heads") for site in rows], [str(head) for head in range(most)], cells
    if what == "parts":
        rows = [site for site in sites if site.rpartition(".")[2] in PARTS]
    elif what == "residual":
        rows = [site for site in sites if site.rpartition(".")[2] not in (*PARTS, "heads")]
    else:
        raise UsageError(f"'{what}' cannot be patched.", 'It is "residual", "heads" or "parts".', 'Use "residual".')
    stacks = {site: next(stack for stack in subject.stacks if site.startswith(f"{stack.name}.")) for site in rows}
    cells = [Cell(site, t, row, t) for row, site in enumerate(rows) for t in range(len(stacks[site].pieces))]
    return rows, position_names(subject), cells


def position_names(subject: Subject) -> list[str]:
    """The positions of the longest stack: numbers, and the pieces if there is only one stack."""
    if len(subject.stacks) == 1:
        return [f"{number + 1} {piece}" for number, piece in enumerate(subject.last.pieces)]
    return [str(number + 1) for number in range(max(len(stack.pieces) for stack in subject.stacks))]


def _ids(tokens: Sequence[int | str], trace: Trace) -> tuple[int, int]:
    """Two tokens, by their ids or names."""
    if isinstance(tokens, str) or len(tokens) != 2:
        raise UsageError(
            f"{tokens!r} are not two tokens.", "The logits of two are compared.", 'Give a pair: ("Hund", "Katze").'
        )
    first, second = tokens
    return trace.token_id(first), trace.token_id(second)


def _compared(
    corrupted: Subject, clean: Subject, answer: int | None, tokens: tuple[int, int] | None
) -> tuple[int, tuple[int, int]]:
    """The answer, and the two tokens whose logits are compared."""
    pairs = [(a.token, b.token) for a, b in zip(clean.answers, corrupted.answers, strict=True)]
    if answer is None:
        differ = [number for number, (a, b) in enumerate(pairs) if a != b]
        default = len(pairs) - 1 if corrupted.first is None else corrupted.first
        answer = default if tokens or not differ or default in differ else differ[0]
    answer = corrupted.answer_index(answer)
    tokens = tokens or pairs[answer]
    if tokens[0] == tokens[1]:
        raise UsageError(
            f"Both inputs have the same answer, '{corrupted.name_of(tokens[0])}'.",
            "The effect is measured on the difference between two answers.",
            "Choose another input or answer, or name the two tokens to compare.",
        )
    return answer, tokens


def _must_match(corrupted: Subject, clean: Subject) -> None:
    if corrupted.model is not clean.model:
        raise UsageError(
            "The traces come from different models.",
            "Activations of one are meaningless in the other.",
            "Take both traces from the same loaded run.",
        )
    for ours, theirs in zip(corrupted.stacks, clean.stacks, strict=True):
        if len(ours.pieces) != len(theirs.pieces):
            raise UsageError(
                "These inputs differ in length.",
                f"In '{ours.name}', one has {len(theirs.pieces)} positions, the other {len(ours.pieces)}.",
                "Replace words by others with the same number of tokens.",
            )
    # A span is chosen from all positions, so that its two answers are read in the same way in both runs.
    same = [answer.position for answer in corrupted.answers] == [answer.position for answer in clean.answers]
    if not (same or isinstance(corrupted.readout, SpanReadout)):
        raise UsageError(
            "These inputs have different answers.",
            "Their answers are not read at the same positions.",
            "Use inputs with answers at the same positions.",
        )
