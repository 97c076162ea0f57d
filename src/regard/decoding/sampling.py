"""Sampling: draw the next token instead of taking the likeliest.

    p_i ∝ exp(logit_i / temperature)     over the k likeliest, or the likeliest that sum to p, or those with at
                                         least a share of the likeliest one's probability

Each text draws with its own random numbers, made from (seed, its number); so it does not depend on which others are
written beside it. At temperature 0 the likeliest token is taken.

Shapes: B slots, one text each · N rows · W words in the vocabulary · L most tokens written
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decoding.beam import largest
from regard.decoding.hypothesis import Request, upload
from regard.decoding.repeats import Repeats
from regard.layers.slots import slot_kernel
from regard.settings import SamplingSettings

OPEN, TOKEN, PROBABILITY, CANDIDATES = 0, 1, 2, 3  # columns of a report


def truncate(
    logits_NW: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Probabilities, largest first, and the tokens they belong to; what is cut off has probability 0."""
    if 0 < top_k <= logits_NW.shape[-1]:
        ordered_NW, tokens_NW = largest(logits_NW, top_k)
    else:
        ordered_NW, tokens_NW = logits_NW.sort(dim=-1, descending=True, stable=True)
    ordered_NW = ordered_NW.float()
    # The largest is taken off first: divided by a tiny temperature it would overflow.
    p_NW = ((ordered_NW - ordered_NW[:, :1]) / temperature).softmax(-1)
    if top_p < 1.0:
        # A token stays if those before it do not yet sum to p; the first always stays.
        p_NW = p_NW * (p_NW.cumsum(-1) - p_NW < top_p)
    if min_p > 0.0:
        p_NW = p_NW * (p_NW >= min_p * p_NW[:, :1])
    return p_NW / p_NW.sum(-1, keepdim=True), tokens_NW


def draw(p_NW: Tensor, tokens_NW: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """The token at which the cumulative probability passes a uniform number; and its probability."""
    rank_N1 = (p_NW.cumsum(-1) < uniform_N[:, None]).sum(-1, keepdim=True)
    rank_N1 = rank_N1.clamp(max=p_NW.shape[-1] - 1)
    # Rounding may leave the last sum just below 1: never fall on a token that was cut off.
    rank_N1 = torch.minimum(rank_N1, (p_NW > 0).sum(-1, keepdim=True) - 1)
    return tokens_NW.gather(1, rank_N1)[:, 0], p_NW.gather(1, rank_N1)[:, 0]


class Draws:
    """The next token of every slot, in memory that is allocated once."""

    beams = 1

    def __init__(
        self,
        slots: int,
        length: int,
        words: int,
        settings: SamplingSettings,
        *,
        end: int = -1,
        never: Sequence[int] = (),
        top: int = 0,
        device: torch.device | None = None,
    ):
        """`length`: most tokens written. `top`: how many candidates to name."""
        self.settings, self.end, self.top, self.device = settings, end, min(top, words), device
        self.never = torch.tensor(sorted(never), device=device, dtype=torch.long)
        self.tokens_N = torch.zeros(slots, dtype=torch.long, device=device)
        self.open_B = torch.zeros(slots, dtype=torch.bool, device=device)
        self.by_B = self.open_B  # one position each step
        self.step_B = torch.zeros(slots, dtype=torch.long, device=device)
        self.limit_B = torch.ones(slots, dtype=torch.long, device=device)
        self.uniform_BL = torch.zeros(slots, length + 1, device=device)  # a column to spare, for slots that are done
        self.forced_BL = torch.full((slots, length + 1), -1, device=device)
        self.penalty = getattr(settings, "repetition_penalty", 1.0)
        self.seen_BW = torch.zeros(slots, words if self.penalty != 1.0 else 0, dtype=torch.bool, device=device)
        self.repeats = Repeats(slots, length, getattr(settings, "no_repeat", 0), device)
        self.report_BX = torch.zeros(slots, CANDIDATES + 2 * self.top, device=device)

    def enter(self, slots_X: Tensor, requests: Sequence[Request]) -> None:
        """These slots begin anew."""
        first_X, limit_X = upload([[r.first for r in requests], [r.limit for r in requests]], self.device)
        self.tokens_N[slots_X], self.limit_B[slots_X] = first_X, limit_X
        self.open_B.index_fill_(0, slots_X, True)
        self.step_B.index_fill_(0, slots_X, 0)
        uniform = np.zeros((len(requests), self.uniform_BL.shape[1]), np.float32)
        forced = np.full(uniform.shape, -1)
        for row, request in enumerate(requests):
            forced[row, : len(request.forced)] = request.forced
            if request.uniform is not None:
                uniform[row, : request.limit] = request.uniform[: request.limit]
        self.uniform_BL[slots_X], self.forced_BL[slots_X] = (upload(x, self.device) for x in (uniform, forced))
        if self.penalty != 1.0:
            seen = np.zeros((len(requests), self.seen_BW.shape[1]), bool)
            for row, request in enumerate(requests):
                seen[row, [*request.seen, *request.reads, request.first]] = True
            self.seen_BW[slots_X] = upload(seen, self.device)

    def advance(self, logits_NW: Tensor) -> None:
        """One token further."""
        step_B1 = self.step_B[:, None]
        forced_B = self.forced_BL.gather(1, step_B1)[:, 0]
        logits_NW = logits_NW.float()
        self.repeats.forbid(logits_NW, self.step_B)
        p_BW, tokens_BW = self._probabilities(logits_NW, self.seen_BW)
        if self.settings.temperature == 0:
            drawn_B, p_B = tokens_BW[:, 0], p_BW[:, 0]
        else:
            drawn_B, p_B = draw(p_BW, tokens_BW, self.uniform_BL.gather(1, step_B1)[:, 0])
        is_forced_B = forced_B >= 0
        token_B = torch.where(is_forced_B, forced_B, drawn_B)
        self.tokens_N.copy_(token_B)
        self.repeats.write(token_B, self.step_B)
        if self.penalty != 1.0:
            self.seen_BW.scatter_(1, token_B[:, None], True)
        self.step_B.add_(self.open_B)
        self.open_B.logical_and_(((token_B != self.end) | is_forced_B) & (self.step_B < self.limit_B))
        told = [self.open_B, token_B, torch.where(is_forced_B, 1.0, p_B)]
        self.report_BX[:, :CANDIDATES] = torch.stack([x.float() for x in told], dim=1)
        self._name_candidates(self.report_BX[:, CANDIDATES:], p_BW, tokens_BW)

    def _name_candidates(self, told_NX: Tensor, p_NW: Tensor, tokens_NW: Tensor) -> None:
        if self.top:
            # Fewer may be left than are asked for.
            found = min(self.top, tokens_NW.shape[1])
            told_NX[:, :found] = tokens_NW[:, :found].float()
            told_NX[:, self.top : self.top + found] = p_NW[:, :found]

    def _probabilities(self, logits_BW: Tensor, seen_BW: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest first, and their tokens: all of them, or as many as are needed; [B, ≤ W] each."""
        settings = self.settings
        logits_BW.index_fill_(1, self.never, -torch.inf)
        if self.penalty != 1.0:
            # Divided if positive, multiplied if negative: less likely either way (Keskar et al., 2019).
            penalised_BW = torch.where(logits_BW > 0, logits_BW / self.penalty, logits_BW * self.penalty)
            logits_BW = torch.where(seen_BW, penalised_BW, logits_BW)
        if settings.temperature == 0 and not self.top and slot_kernel(logits_BW):
            from regard.decoding.likeliest import likeliest

            p_B, token_B = likeliest(logits_BW)
            return p_B[:, None], token_B[:, None]
        if settings.temperature == 0:  # the first is taken; the others are only shown
            values_BC, tokens_BC = largest(logits_BW, max(1, self.top))
            return (values_BC - logits_BW.logsumexp(-1, keepdim=True)).exp(), tokens_BC
        return truncate(
            logits_BW, settings.temperature, settings.top_k, settings.top_p, getattr(settings, "min_p", 0.0)
        )
