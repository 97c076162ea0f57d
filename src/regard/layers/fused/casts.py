"""To eight bits: the casts that are passes of their own, and what every kernel that writes eight bits shares.

Shapes: X rows of a matrix · C its columns
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS = 8192  # of a tile
SIDE = 64  # of a tile of a matrix


def cast(x: Tensor, dtype: torch.dtype, factor: float) -> Tensor:
    """x · factor in eight bits."""
    x = x.contiguous()
    out = torch.empty_like(x, dtype=dtype)
    _cast[(triton.cdiv(x.numel(), NUMBERS),)](x, out, x.numel(), factor, NUMBERS=NUMBERS, num_warps=8)
    return out


def cast_weight(weight_XC: Tensor, largest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In eight bits, as it is and turned round; and what products are to be multiplied with afterwards."""
    weight_XC = weight_XC.contiguous()
    rows, columns = weight_XC.shape
    straight_XC = torch.empty_like(weight_XC, dtype=torch.float8_e4m3fn)
    turned_CX = straight_XC.new_empty(columns, rows)
    scale = torch.empty((), dtype=torch.float32, device=weight_XC.device)
    # In two passes: in one, ptxas 12.9 writes bytes of its own into the matrix that is turned round (Triton #11111).
    for out, turned in ((straight_XC, False), (turned_CX, True)):
        _cast_weight[(triton.cdiv(rows, SIDE), triton.cdiv(columns, SIDE))](
            weight_XC, largest, out, scale, rows, columns, TURNED=turned, SIDE=SIDE, num_warps=4
        )
    return straight_XC, turned_CX, scale


@triton.jit
def store_eight(places, x, inside):
    """In eight bits. The GPU's own cast makes the largest number of what is too large, and NaN of NaN."""
    tl.store(places, x.to(places.dtype.element_ty), mask=inside)


@triton.jit
def _cast(x, out, count, factor, NUMBERS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * factor
    store_eight(out + at, value, inside)


@triton.jit
def _cast_weight(weight, largest, out, scale, rows, columns, TURNED: tl.constexpr, SIDE: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    # A float's bits are 127 + e, and then the rest: with 2ᵉ ≤ largest < 2ᵉ⁺¹, the factor is 2⁷⁻ᵉ.
    exponent = tl.load(largest).to(tl.float32).to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 8), 254)
    factor = ((261 - exponent) << 23).to(tl.float32, bitcast=True)
    if tl.program_id(0) + tl.program_id(1) == 0:
        tl.store(scale, ((exponent - 7) << 23).to(tl.float32, bitcast=True))
    value = tl.load(weight + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(tl.float32) * factor
    eight = value.to(out.dtype.element_ty)
    if TURNED:
        tl.store(out + column[:, None] * rows + row[None, :], tl.trans(eight), mask=tl.trans(inside))
    else:
        tl.store(out + row[:, None] * columns + column[None, :], eight, mask=inside)
