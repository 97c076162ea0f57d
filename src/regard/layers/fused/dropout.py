"""Dropout inside other kernels: which numbers are kept follows from a seed and where they stand.

So nothing is stored for the backward pass, which draws the same numbers again. Seeds are drawn on the device by torch's
own generator: a captured graph gets new ones at every replay, and a training that goes on gets those it would have had.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROUNDS: tl.constexpr = tl.constexpr(7)  # of Philox: the fewest that pass the usual tests of randomness


def draw_seeds(count: int, device: torch.device) -> Tensor:
    return torch.randint(0, 1 << 62, (count,), device=device)


@triton.jit
def kept(seed, row, first, columns, p, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """1 / (1 − p) or, with probability p, 0 for a tile of a matrix: these rows, and columns from `first` on.

    Philox gives four numbers at a time; so `first` and `columns`, the width of the matrix, are taken in fours.
    """
    group = (first // 4) + tl.arange(0, COLUMNS // 4)
    counter = (row.to(tl.int64)[:, None] * tl.cdiv(columns, 4) + group[None, :]).to(tl.uint32)
    a, b, c, d = tl.randint4x(tl.load(seed), counter, ROUNDS)
    drawn = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, COLUMNS])
    return tl.where(tl.uint_to_uniform_float(drawn) >= p, 1 / (1 - p), 0.0)


@triton.jit
def survives(seed, row, length, survival):
    """1 / survival or, with the chance of not surviving, 0 for each of these rows: the same for `length` in a row."""
    drawn = tl.rand(tl.load(seed) + 1, row // length, ROUNDS)
    return tl.where(drawn < survival, 1 / survival, 0.0)
