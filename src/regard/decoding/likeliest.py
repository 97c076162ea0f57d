"""The likeliest word of every row and its probability, on a GPU, in one pass over the logits.

Shapes: B rows · W words
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def likeliest(logits_BW: Tensor) -> tuple[Tensor, Tensor]:
    """Probability, and word: [B] each."""
    p_B = torch.empty(len(logits_BW), device=logits_BW.device)
    word_B = torch.empty(len(logits_BW), dtype=torch.long, device=logits_BW.device)
    _likeliest[(len(logits_BW),)](
        logits_BW, p_B, word_B, logits_BW.stride(0), logits_BW.shape[1], BLOCK=BLOCK, num_warps=16
    )
    return p_B, word_B


@triton.jit
def _likeliest(logits_ptr, p_ptr, word_ptr, stride, words, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    # Every lane goes over its own words; the first of equal ones counts.
    largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    best = tl.zeros((BLOCK,), dtype=tl.int32)
    for begin in range(0, words, BLOCK):
        word = begin + place
        x = tl.load(logits_ptr + row * stride + word, mask=word < words, other=float("-inf"))
        new = tl.maximum(largest, x)
        base = tl.where(new > float("-inf"), new, 0.0)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        best = tl.where(x > largest, word, best)
        largest = new
    top = tl.max(largest, axis=0)
    sums = tl.sum(total * tl.exp(largest - top), axis=0)
    tl.store(p_ptr + row, 1.0 / sums)
    tl.store(word_ptr + row, tl.min(tl.where(largest == top, best, words), axis=0).to(tl.int64))
