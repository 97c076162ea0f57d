"""Candidates: the model's candidates at each position, the likeliest first.

    p_i ∝ exp(logit_i / temperature)         cut off and scaled as in `decoding.sampling`, by the same function

Words that are never written, such as <pad>, are no candidates. At temperature 0 the likeliest is certain.

Shapes: A answers · K candidates · W words or classes
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.decoding.sampling import truncate
from regard.errors import UsageError
from regard.inside.lens import answer_names
from regard.inside.named import Named, Together, named

if TYPE_CHECKING:
    from regard.inside.trace import Trace


@dataclass(frozen=True, repr=False)
class Candidates(Together):
    """Of each answer. `notes` of the first two have the `words` and `tokens` at each rank: [A, K]."""

    logits: Named  # as the model gave them: [A, K]
    probabilities: Named  # of being drawn with these settings; 0: cut off: [A, K]
    rank: Named  # of the answer itself, 1 is the likeliest: [A]
    said: Named  # its probability: [A]


@torch.no_grad()
def candidates(
    trace: Trace, count: int = 10, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Candidates:
    _check(count, temperature, top_k, top_p)
    subject = trace.subject
    logits_AW = trace.logits_AW.clone()
    for answer in range(len(subject.answers)):
        logits_AW[answer, subject.never_of(answer)] = -torch.inf
    p_AW = _drawn_with(logits_AW, temperature, top_k, top_p)
    if subject.independent:  # nothing is drawn of these: each is there or not
        p_AW = subject.log_p(logits_AW).exp()
    count = min(count, int(logits_AW.isfinite().sum(-1).max()))
    logits_AK, tokens_AK = logits_AW.sort(dim=-1, descending=True, stable=True)
    logits_AK, tokens_AK = logits_AK[:, :count], tokens_AK[:, :count]
    said_A1 = torch.tensor([[answer.token] for answer in subject.answers], device=logits_AW.device)
    rank_A = 1 + (logits_AW > trace.logits_AW.gather(1, said_A1)).sum(-1)

    answers = ("answer", answer_names(trace))
    axes = [answers, ("rank", [str(rank + 1) for rank in range(count)])]
    # Where fewer words can be written than elsewhere, the rest of the row is NaN.
    there_AK = logits_AK.isfinite()
    logits_AK = logits_AK.where(there_AK, torch.nan)
    p_AK = p_AW.gather(1, tokens_AK).where(there_AK, torch.nan)
    tokens = tokens_AK.tolist()
    words = [
        [subject.name_of(token) if there else "" for token, there in zip(row, real, strict=True)]
        for row, real in zip(tokens, there_AK.tolist(), strict=True)
    ]
    notes: dict[str, Any] = {"words": words, "tokens": tokens}
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if subject.never:
        settings["over"] = f"the {int(logits_AW.isfinite().sum(-1).max()):,} tokens that can be written"
    return Candidates(
        named("logit", logits_AK, axes, **notes),
        named("probability", p_AK, axes, **notes, **settings),
        named("rank of the answer", rank_A.cpu().numpy(), [answers]),
        named("probability of the answer", p_AW.gather(1, said_A1)[:, 0], [answers], **settings),
    )


def _drawn_with(logits_AW: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """The probability of every word, in the order of the vocabulary: [A, W]."""
    p_AX, tokens_AX = truncate(logits_AW, temperature, top_k, top_p) if temperature else truncate(logits_AW, 1.0, 1)
    return torch.zeros_like(logits_AW).scatter(1, tokens_AX, p_AX)


def _check(count: int, temperature: float, top_k: int, top_p: float) -> None:
    if count < 1:
        raise UsageError(f"{count} candidates cannot be shown.", "There is at least one.", "Use a count of 1 or more.")
    if not (temperature >= 0 and math.isfinite(temperature)):
        what = "is negative" if temperature < 0 else "is not finite"
        raise UsageError(
            f"The temperature {temperature} {what}.", "It divides logits.", "Use 0 or more; 1 is as the model is."
        )
    if top_k < 0:
        raise UsageError(f"top_k = {top_k} is negative.", "It is a number of words; 0 is all.", "Use 0 or more.")
    if not 0 < top_p <= 1:
        raise UsageError(f"top_p = {top_p} is not a share.", "It is more than 0, and 1 for all.", "Use 1.0.")
