"""The sum of what every program has added up, over the programs, in a fixed order.

Shapes: P programs · C columns
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 128, 16  # of a tile


def over_programs(parts: Tensor) -> Tensor:
    """[P, …] to […], in full precision."""
    parts_PC = parts.view(len(parts), -1)
    sums_C = torch.empty(parts_PC.shape[1], dtype=torch.float32, device=parts.device)
    _sum[(triton.cdiv(len(sums_C), COLUMNS),)](
        parts_PC, sums_C, *parts_PC.shape, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
    )
    return sums_C.view(parts.shape[1:])


@triton.jit
def _sum(parts, sums, programs, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, programs, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < programs)[:, None] & (column < columns)[None, :]
        total += tl.load(parts + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(sums + column, tl.sum(total, 0), mask=column < columns)
