"""Rotary positions on a GPU in one kernel; the gradient is rotated back by another.

Written out, a rotation is a dozen small kernels for the queries of every layer, and as many for the keys.

Shapes: B rows · H heads · T positions · K head width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 8  # positions of a program


class Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, positions_BT: Tensor, frequencies_F: Tensor) -> Tensor:
        ctx.save_for_backward(positions_BT, frequencies_F)
        return _rotate(x_BHTK, positions_BT, frequencies_F, 1.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient_BHTK: Tensor) -> tuple[Tensor, None, None]:
        positions_BT, frequencies_F = ctx.saved_tensors
        return _rotate(gradient_BHTK, positions_BT, frequencies_F, -1.0), None, None


def _rotate(x_BHTK: Tensor, positions_BT: Tensor, frequencies_F: Tensor, direction: float) -> Tensor:
    rows, heads, length, width = x_BHTK.shape
    if x_BHTK.stride(-1) != 1:
        x_BHTK = x_BHTK.contiguous()
    # As it came from the product that made it: the heads of a position lie together.
    y_BHTK = x_BHTK.new_empty(rows, length, heads, width).transpose(1, 2)
    positions_BT = positions_BT.expand(rows, length)
    _rotation[(triton.cdiv(length, ROWS), heads, rows)](
        x_BHTK,
        y_BHTK,
        positions_BT,
        frequencies_F,
        *x_BHTK.stride()[:3],
        *y_BHTK.stride()[:3],
        *positions_BT.stride(),
        length,
        direction,
        HALF=width // 2,
        HALF_UP=triton.next_power_of_2(width // 2),
        ROWS=ROWS,
        num_warps=1,
    )
    return y_BHTK


@triton.jit
def _rotation(
    x_ptr,
    y_ptr,
    positions_ptr,
    frequencies_ptr,
    x_row,
    x_head,
    x_time,
    y_row,
    y_head,
    y_time,
    p_row,
    p_time,
    length,
    direction,
    HALF: tl.constexpr,
    HALF_UP: tl.constexpr,
    ROWS: tl.constexpr,
):
    time = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head, row = tl.program_id(1), tl.program_id(2).to(tl.int64)
    pair = tl.arange(0, HALF_UP)
    exists = time < length
    inside = exists[:, None] & (pair < HALF)[None, :]
    position = tl.load(positions_ptr + row * p_row + time * p_time, mask=exists, other=0).to(tl.float32)
    angle = position[:, None] * tl.load(frequencies_ptr + pair, mask=pair < HALF, other=0.0)[None, :]
    cos, sin = tl.cos(angle), tl.sin(angle) * direction
    x = x_ptr + row * x_row + head * x_head + time[:, None] * x_time + pair[None, :]
    y = y_ptr + row * y_row + head * y_head + time[:, None] * y_time + pair[None, :]
    first = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(y, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(y + HALF, (first * sin + second * cos).to(y_ptr.dtype.element_ty), mask=inside)
