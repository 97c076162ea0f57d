"""Activation patching: what of one run, put into another, makes it say what the first one said.

    d(run)  = logit of what the clean run said − logit of what the corrupted run said
    effect  = (d(patched) − d(corrupted)) / (d(clean) − d(corrupted))

Patched is the corrupted run with one thing of the clean one in its place: the residual stream at one position after
one layer, what one head gathers at all positions, or what one part adds at one position. 1: that alone restores the
clean answer. 0: it changes nothing.

Shapes: N patches · B of them in a chunk · T positions · X width of a site · A answers · W words or classes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inside.named import Named, named
from regard.inside.readout import SpanReadout
from regard.inside.sites import PARTS, sites_of, watching
from regard.inside.subject import Subject
from regard.inside.trace import Trace
from regard.inside.variants import replacing, variants

What = Literal["residual", "heads", "parts"]
SMALLEST = 1e-6  # difference of two logits that anything can be measured in


def patch(
    corrupted: Trace,
    clean: Trace,
    what: What = "residual",
    answer: int | None = None,
    tokens: tuple[int, int] | None = None,
) -> Named:
    """The effect of each patch; where there is nothing to patch, such as past the end of a stack, NaN.

    `answer`: of which place. If not given: the last, and if both say the same there, the first where they differ.
    `tokens`: what is compared there, if not what the clean and the corrupted run said.
    """
    if not isinstance(clean, Trace):
        raise UsageError(
            "What is patched comes from another trace.",
            f"This is a {type(clean).__name__}.",
            'Use run.trace("Another text.").',
        )
    _must_match(corrupted.subject, clean.subject)
    answer, tokens = _compared(corrupted.subject, clean.subject, answer, tokens)
    high, low = (float(_difference(each.logits_AW[None], answer, tokens)) for each in (clean, corrupted))
    if not abs(high - low) > SMALLEST:
        raise UsageError(
            "There is nothing to restore.",
            "Both inputs give these two answers the same logits.",
            "Choose another answer, or another input.",
        )
    rows, columns, cells = _cells(corrupted.subject, what)
    d_N = patched(corrupted, clean, [{site: where} for site, where, _ in cells], answer, tokens)
    effect = np.full((len(rows), len(columns)), math.nan, dtype=np.float32)
    for (_, _, place), d in zip(cells, d_N.tolist(), strict=True):
        effect[place] = (d - low) / (high - low)
    name_of = corrupted.subject.name_of
    return named(
        "effect",
        effect,
        [("part" if what != "residual" else "layer", rows), ("head" if what == "heads" else "position", columns)],
        "of the difference",
        answer=answer,
        tokens=[name_of(token) for token in tokens],
        clean=high,
        corrupted=low,
        pieces={stack.name: stack.pieces for stack in corrupted.subject.stacks},
    )


def patched(
    corrupted: Trace, clean: Trace, patches: Sequence[Mapping[str, Any]], answer: int, tokens: tuple[int, int]
) -> Tensor:
    """The logit difference after each patch, which says of each site what of it comes from the clean run: [N].

    That is a position, a slice of columns at all positions (of a site of heads), or `...` for all of it.
    """
    sites = sorted({site for each in patches for site in each})
    with watching(clean.subject, keep=sites) as seen:
        clean.subject.logits()
    instead = {site: seen[site][0] for site in sites}
    masks = {}
    for site, x_TX in instead.items():
        size = x_TX.shape[1 if site.endswith(".heads") else 0]
        mask_NX = torch.zeros(len(patches), size, dtype=torch.bool, device=x_TX.device)
        for row, each in enumerate(patches):
            if site in each:
                mask_NX[row, each[site]] = True
        masks[site] = mask_NX[:, None] if site.endswith(".heads") else mask_NX[..., None]
    return variants(
        corrupted.subject,
        len(patches),
        replacing(masks, instead),
        lambda logits_BAW: _difference(logits_BAW, answer, tokens),
    )


def _difference(logits_BAW: Tensor, answer: int, tokens: tuple[int, int]) -> Tensor:
    return logits_BAW[:, answer, tokens[0]] - logits_BAW[:, answer, tokens[1]]


Cell = tuple[str, Any, tuple[int, int]]  # a site, which of it is patched, and where its effect stands


def _cells(subject: Subject, what: What) -> tuple[list[str], list[str], list[Cell]]:
    """Names of the rows and of the columns, and what is patched for each cell."""
    sites = sites_of(subject)
    cells: list[Cell] = []
    if what == "heads":
        rows = [site for site in sites if site.endswith(".heads")]
        if not rows:
            raise UsageError(
                "This model has no heads to patch.", "None of its parts is an attention.", 'Use what="parts".'
            )
        for row, site in enumerate(rows):
            heads, width = int(getattr(sites[site.removesuffix(".heads")], "heads", 0)), _features(sites[site])
            step = width // heads
            cells += [(site, slice(h * step, (h + 1) * step), (row, h)) for h in range(heads)]
        most = 1 + max(column for _, _, (_, column) in cells)
        return [site.removesuffix(".heads") for site in rows], [str(head) for head in range(most)], cells
    if what == "parts":
        rows = [site for site in sites if site.rpartition(".")[2] in PARTS]
    elif what == "residual":
        rows = [site for site in sites if site.rpartition(".")[2] not in (*PARTS, "heads")]
    else:
        raise UsageError(f"'{what}' cannot be patched.", 'It is "residual", "heads" or "parts".', 'Use "residual".')
    stacks = {site: next(stack for stack in subject.stacks if site.startswith(f"{stack.name}.")) for site in rows}
    cells = [(site, t, (row, t)) for row, site in enumerate(rows) for t in range(len(stacks[site].pieces))]
    return rows, position_names(subject), cells


def _features(to_out: Any) -> int:
    return int(to_out.in_features)


def position_names(subject: Subject) -> list[str]:
    """Of the longest stack: numbers, with what stands there if there is only one."""
    if len(subject.stacks) == 1:
        return [f"{number + 1} {piece}" for number, piece in enumerate(subject.last.pieces)]
    return [str(number + 1) for number in range(max(len(stack.pieces) for stack in subject.stacks))]


def _compared(
    corrupted: Subject, clean: Subject, answer: int | None, tokens: tuple[int, int] | None
) -> tuple[int, tuple[int, int]]:
    """Which answer, and which of its words or classes."""
    said = [(a.token, b.token) for a, b in zip(clean.answers, corrupted.answers, strict=True)]
    if answer is None:
        differ = [number for number, (a, b) in enumerate(said) if a != b]
        answer = len(said) - 1 if tokens or not differ or differ[-1] == len(said) - 1 else differ[0]
    answer = corrupted.place(answer)
    tokens = tokens or said[answer]
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
            "The traces come from two models.",
            "Activations of one are meaningless in the other.",
            "Take both traces from the same loaded run.",
        )
    for ours, theirs in zip(corrupted.stacks, clean.stacks, strict=True):
        if len(ours.pieces) != len(theirs.pieces):
            raise UsageError(
                "These inputs differ in length.",
                f"In '{ours.name}' one has {len(theirs.pieces)} positions, the other {len(ours.pieces)}.",
                "Replace words by others with the same number of tokens.",
            )
    # Where all positions are chosen from, they are the words of both, whichever was chosen.
    same = [answer.position for answer in corrupted.answers] == [answer.position for answer in clean.answers]
    if not (same or isinstance(corrupted.readout, SpanReadout)):
        raise UsageError(
            "These inputs have different answers.",
            "Their answers are not read at the same positions.",
            "Use inputs with answers at the same positions.",
        )
