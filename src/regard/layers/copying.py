"""Copying: a decoder may also point at a word of its source, and write that.

    c_j  = (W_q h) · (W_k m_j) / √D                  h: the decoder's last state · m_j: the encoder's at position j
    P(w) ∝ exp(z_w) + Σ_{j: x_j = w} exp(c_j)        z = h Eᵀ, as without copying · x_j: the word at position j

There is one softmax, over the vocabulary and the positions of the source, and positions with the same word are added
up (a pointer in the manner of CopyNet: Gu et al., 2016). Whoever reads logits is given

    z'_w = log(exp z_w + Σ_{j: x_j = w} exp c_j)

and needs to know nothing of copying. Only words of the source change, so all is computed for these alone. With
g = ∂L/∂z',

    ∂L/∂z_w = g_w exp(z_w − z'_w)                    ∂L/∂c_j = g_{x_j} exp(c_j − z'_{x_j})

Shapes: B rows, or slots · T target positions, or beams of a slot · S source positions · D model width
        · W words in the vocabulary · X sources that enter
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ONE = 1 << 40  # what the largest exp(c_j) is counted as: a sum over four million positions fits into 63 bits


@dataclass
class CopySource:
    """What can be copied: the words of the source, and where they are found."""

    keys_BSD: Tensor  # W_k m_j
    words_BS: Tensor
    first_BS: Tensor  # the first position of the row with the same word
    seen_BTS: Tensor  # True where a word may be copied; T may be 1

    @classmethod
    def empty(cls, slots: int, length: int, like: Tensor) -> Self:
        """For sources of up to this length that enter one by one. `like`: has the type of keys, and their width."""
        words_BS = torch.zeros(slots, length, dtype=torch.long, device=like.device)
        seen_B1S = torch.zeros(slots, 1, length, dtype=torch.bool, device=like.device)
        return cls(like.new_zeros(slots, length, like.shape[-1]), words_BS, first_places(words_BS), seen_B1S)

    def enter(self, slots_X: Tensor, source: CopySource) -> None:
        """Sources that are read into some of the slots, where nothing is left of those before them.

        Behind its end each has its first word again, which is not seen there.
        """
        length = source.words_BS.shape[1]
        behind = self.words_BS.shape[1] - length
        at_S = F.pad(torch.arange(length, device=slots_X.device), (0, behind))
        self.keys_BSD[:, :length][slots_X] = source.keys_BSD
        self.words_BS[slots_X] = source.words_BS[:, at_S]
        self.first_BS[slots_X] = source.first_BS[:, at_S]
        self.seen_BTS[slots_X] = F.pad(source.seen_BTS, (0, behind))


class Copying(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.to_query = nn.Linear(width, width, bias=False)
        self.to_key = nn.Linear(width, width, bias=False)

    def forward(self, logits_BTW: Tensor, x_BTD: Tensor, source: CopySource) -> Tensor:
        """z', of the logits and of what they were read from: [B, T, W]."""
        scores_BTS = _products(self.to_query(x_BTD), source.keys_BSD) / math.sqrt(x_BTD.shape[-1])
        scores_BTS = scores_BTS.masked_fill(~source.seen_BTS, -torch.inf)
        added: Tensor = _Added.apply(logits_BTW, scores_BTS, source.words_BS, source.first_BS)
        return added

    def source(self, memory_BSD: Tensor, words_BS: Tensor, seen_BTS: Tensor) -> CopySource:
        """Of what an encoder has made of these words."""
        return CopySource(self.to_key(memory_BSD), words_BS, first_places(words_BS), seen_BTS)


def first_places(words_BS: Tensor) -> Tensor:
    """For every position, the first one with the same word: [B, S]."""
    return (words_BS[:, :, None] == words_BS[:, None, :]).to(torch.uint8).argmax(-1)


class _Added(torch.autograd.Function):
    """z' of z and c. Other sentences of a row may hold the same word: there c is −∞, and nothing is added."""

    @staticmethod
    def forward(ctx: Any, z_BTW: Tensor, c_BTS: Tensor, words_BS: Tensor, first_BS: Tensor) -> Tensor:
        words_BTS, first_BTS = (x[:, None].expand_as(c_BTS) for x in (words_BS, first_BS))
        highest_BT1 = c_BTS.amax(-1, keepdim=True).clamp(min=torch.finfo(c_BTS.dtype).min)  # −∞ where none is seen
        # Counted in integers, whose sum does not depend on the order in which a GPU adds. What is lost is below 1e-12.
        counts_BTS = ((c_BTS - highest_BT1).exp() * ONE).long()
        with _in_any_order(z_BTW):
            totals_BTS = torch.zeros_like(counts_BTS).scatter_add_(-1, first_BTS, counts_BTS).gather(-1, first_BTS)
            before_BTS = z_BTW.gather(-1, words_BTS).to(c_BTS.dtype)
            after_BTS = torch.logaddexp(before_BTS, highest_BT1 + (totals_BTS.to(c_BTS.dtype) / ONE).log())
            # Every position of a word puts the same number there.
            added_BTW = z_BTW.scatter(-1, words_BTS, after_BTS.to(z_BTW.dtype))
        kept_BTS, copied_BTS = (before_BTS - after_BTS).exp(), (c_BTS - after_BTS).clamp(max=0).exp()
        ctx.save_for_backward(words_BS, kept_BTS, copied_BTS)
        return added_BTW

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_BTW: Tensor) -> tuple[Tensor | None, ...]:
        words_BS, kept_BTS, copied_BTS = ctx.saved_tensors
        words_BTS = words_BS[:, None].expand_as(kept_BTS)
        g_BTS = g_BTW.gather(-1, words_BTS).to(kept_BTS.dtype)
        with _in_any_order(g_BTW):
            for_z_BTW = g_BTW.scatter(-1, words_BTS, (g_BTS * kept_BTS).to(g_BTW.dtype))
        return for_z_BTW, g_BTS * copied_BTS, None, None


def _products(q_BTD: Tensor, k_BSD: Tensor) -> Tensor:
    """q · k in float32 or better, as logits are: [B, T, S]. bfloat16 cannot tell likely words apart."""
    with torch.autocast(q_BTD.device.type, enabled=False):
        if q_BTD.is_cuda and q_BTD.dtype == k_BSD.dtype == torch.bfloat16 and not torch.is_grad_enabled():
            try:
                return torch.bmm(q_BTD, k_BSD.mT, out_dtype=torch.float32)
            except TypeError:  # an earlier torch
                pass
        exact = torch.float64 if q_BTD.dtype == torch.float64 else torch.float32
        return q_BTD.to(exact) @ k_BSD.to(exact).mT


@contextmanager
def _in_any_order(like: Tensor) -> Iterator[None]:
    """Where system.deterministic is set, torch scatters on a GPU by sorting, which is slow and cannot be captured.

    Here the order in which numbers are scattered makes no difference.
    """
    if not like.is_cuda or not torch.are_deterministic_algorithms_enabled():
        yield
        return
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=only_warns)
