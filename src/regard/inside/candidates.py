"""Candidates: the most probable tokens or classes for each answer, the likeliest first.

    p_i ∝ exp(logit_i / temperature)         truncated to top-k and top-p, by the same function as in sampling

Tokens that are never generated, such as <pad>, are excluded. At temperature 0 the likeliest has probability 1.

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
from regard.inside.named import Named, Result, named

if TYPE_CHECKING:
    from regard.inside.trace import Trace


@dataclass(frozen=True, repr=False)
class Candidates(Result):
    """The notes of the first two arrays have the `words` and `tokens` at each rank: [A, K]."""

    logits: Named  # of the candidates, before the temperature: [A, K]
    probabilities: Named  # of being sampled with these settings; 0 where truncated: [A, K]
    rank: Named  # of the answer itself; 1 is the likeliest: [A]
    answer: Named  # probability of the answer itself: [A]


@torch.no_grad()
def candidates(
    trace: Trace, count: int = 10, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Candidates:
    _check(count, temperature, top_k, top_p)
    subject = trace.subject
    logits_AW = subject.allowed_logits(trace.logits_AW)
    p_AW = _sampling_probabilities(logits_AW, temperature, top_k, top_p)
    if subject.independent:  # nothing is sampled: each class has its own sigmoid
        p_AW = subject.log_p(logits_AW).exp()
    count = min(count, int(logits_AW.isfinite().sum(-1).max()))
    logits_AK, tokens_AK = logits_AW.sort(dim=-1, descending=True, stable=True)
    logits_AK, tokens_AK = logits_AK[:, :count], tokens_AK[:, :count]
    answer_A1 = torch.tensor([[answer.token] for answer in subject.answers], device=logits_AW.device)
    rank_A = 1 + (logits_AW > trace.logits_AW.gather(1, answer_A1)).sum(-1)

    answers = ("answer", answer_names(trace))
    axes = [answers, ("rank", [str(rank + 1) for rank in range(count)])]
    # An answer with fewer allowed tokens than others has NaN in the rest of its row.
    allowed_AK = logits_AK.isfinite()
    logits_AK = logits_AK.where(allowed_AK, torch.nan)
    p_AK = p_AW.gather(1, tokens_AK).where(allowed_AK, torch.nan)
    tokens = tokens_AK.tolist()
    words = [
        [subject.name_of(token) if allowed else "" for token, allowed in zip(row, allowed_row, strict=True)]
        for row, allowed_row in zip(tokens, allowed_AK.tolist(), strict=True)
    ]
    notes: dict[str, Any] = {"words": words, "tokens": tokens}
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if subject.never or subject.never_at:
        counts = sorted(set(logits_AW.isfinite().sum(-1).tolist()))
        allowed = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        settings["over"] = f"the {allowed} tokens that can be generated"
    return Candidates(
        named("logit", logits_AK, axes, **notes),
        named("probability", p_AK, axes, **notes, **settings),
        named("rank of the answer", rank_A.cpu().numpy(), [answers]),
        named("probability of the answer", p_AW.gather(1, answer_A1)[:, 0], [answers], **settings),
    )


def _sampling_probabilities(logits_AW: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """The probability that each token is sampled, in the order of the vocabulary: [A, W]."""
    p_AX, tokens_AX = truncate(logits_AW, temperature, top_k, top_p) if temperature else truncate(logits_AW, 1.0, 1)
    return torch.zeros_like(logits_AW).scatter(1, tokens_AX, p_AX)


def _check(count: int, temperature: float, top_k: int, top_p: float) -> None:
    if count < 1:
        raise UsageError(f"{count} candidates cannot be shown.", "At least one is needed.", "Use a count of 1 or more.")
    if not (temperature >= 0 and math.isfinite(temperature)):
        what = "is negative" if temperature < 0 else "is not finite"
        raise UsageError(
            f"The temperature {temperature} {what}.",
            "Logits are divided by it.",
            "Use 0 or more; 1 leaves the distribution unchanged.",
        )
    if top_k < 0:
        raise UsageError(f"top_k = {top_k} is negative.", "It is a number of tokens; 0 means all.", "Use 0 or more.")
    if not 0 < top_p <= 1:
        raise UsageError(
            f"top_p = {top_p} is not a probability.", "It is above 0 and at most 1; 1 means all.", "Use 1.0."
        )
