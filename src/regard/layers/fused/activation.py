"""The activation of a feed-forward part: a = drop(act(h + b)), and the gradients of h and b, each in one pass.

Shapes: B rows · T positions, N = B·T · C columns · P programs
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.layers.fused.casts import store_eight
from regard.layers.fused.dropout import kept
from regard.layers.fused.eight_bits import E4M3, E5M2, OPERANDS
from regard.layers.fused.product import Operand, Product
from regard.layers.fused.sums import over_programs

KINDS = {"relu": 1, "gelu": 2, "gelu-tanh": 3, "relu2": 4, "silu": 5}
ALIGNED = 128  # columns must be a multiple of this
TILE = 4096  # numbers of a tile
PROGRAMS = 528  # at most, that add up rows of their own
MOST_REGISTERS = 128  # of a thread of these: with more, not all run at the same time


def activate(h: Product, bias_C: Tensor | None, name: str, p: float = 0.0, seed: Tensor | None = None) -> Operand:
    return Operand(*_Activated.apply(*h, bias_C, KINDS[name], p, seed))


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h_BTC: Tensor,
        gradient_BTC: Tensor | None,
        factor: float,
        bias_C: Tensor | None,
        kind: int,
        p: float,
        seed: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)  # of what is in eight bits there is none
        ctx.save_for_backward(h_BTC, bias_C, seed)
        ctx.kind, ctx.p, ctx.eight, ctx.factor = kind, p, gradient_BTC is not None, factor
        a_BTC = torch.empty_like(h_BTC)
        eight_BTC = torch.empty_like(h_BTC, dtype=E4M3) if ctx.eight else None
        columns = h_BTC.shape[-1]
        rows = h_BTC.numel() // columns
        block, tile = _tile(columns)
        bias, seeded = (given if given is not None else h_BTC for given in (bias_C, seed))
        _activate[(triton.cdiv(rows, tile), columns // block)](
            h_BTC, bias, seeded, a_BTC, a_BTC if eight_BTC is None else eight_BTC, rows, columns, p, OPERANDS,
            KIND=kind, BIASED=bias_C is not None, DROPS=p > 0, EIGHT=ctx.eight, COLUMNS=block, ROWS=tile, num_warps=4,
        )  # fmt: skip
        if eight_BTC is not None:
            ctx.mark_non_differentiable(eight_BTC)
        return a_BTC, eight_BTC

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, da_BTC: Tensor, _: None) -> tuple[Tensor | None, ...]:
        h_BTC, bias_C, seed = ctx.saved_tensors
        dh_BTC = torch.empty_like(h_BTC)
        eight_BTC = torch.empty_like(h_BTC, dtype=E5M2) if ctx.eight else None
        columns = h_BTC.shape[-1]
        rows = h_BTC.numel() // columns
        block, tile = _tile(columns)
        programs = min(max(1, PROGRAMS * block // columns), triton.cdiv(rows, tile))
        sums_PC = h_BTC.new_empty(programs, columns, dtype=torch.float32)
        bias, seeded = (given if given is not None else h_BTC for given in (bias_C, seed))
        _activate_backward[(programs, columns // block)](
            da_BTC.contiguous(), h_BTC, bias, seeded, dh_BTC, dh_BTC if eight_BTC is None else eight_BTC, sums_PC,
            rows, columns, ctx.p, ctx.factor, programs,
            KIND=ctx.kind, BIASED=bias_C is not None, DROPS=ctx.p > 0, EIGHT=ctx.eight, COLUMNS=block, ROWS=tile,
            num_warps=4, maxnreg=MOST_REGISTERS if ctx.eight else None,
        )  # fmt: skip
        of_bias = over_programs(sums_PC).to(bias_C.dtype) if bias_C is not None else None
        return dh_BTC, eight_BTC, None, of_bias, None, None, None


def _tile(columns: int) -> tuple[int, int]:
    """The columns of a tile, and its rows."""
    block = next(size for size in (512, 256, ALIGNED) if columns % size == 0)
    return block, TILE // block


@triton.jit
def _activate(
    h, bias, seed, a, eight, rows, columns, p, factor,
    KIND: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr, EIGHT: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * COLUMNS
    column = first + tl.arange(0, COLUMNS)
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    if EIGHT:
        at = tl.max_contiguous(at, [1, 8])  # else a thread has 16 numbers in a row, which is not best for the others
    valid = (row < rows)[:, None]
    z = tl.load(h + at, mask=valid, other=0.0).to(tl.float32)
    if BIASED:
        z += tl.load(bias + column).to(tl.float32)[None, :]
    value, _ = activation(z, KIND)
    if DROPS:
        value *= kept(seed, row, first, columns, p, ROWS, COLUMNS)
    tl.store(a + at, value.to(a.dtype.element_ty), mask=valid)
    if EIGHT:
        store_eight(eight + at, value * factor, valid)


@triton.jit
def _activate_backward(
    d, h, bias, seed, out, eight, sums, rows, columns, p, factor, programs,
    KIND: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr, EIGHT: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(1) * COLUMNS
    column = first + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    b = tl.zeros([COLUMNS], tl.float32)
    if BIASED:
        b = tl.load(bias + column).to(tl.float32)
    # The next tiles are on their way from memory while this one is computed.
    for start in tl.range(tl.program_id(0) * ROWS, rows, programs * ROWS, num_stages=3):
        row = start + tl.arange(0, ROWS)
        valid = (row < rows)[:, None]
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        if EIGHT:
            at = tl.max_contiguous(at, [1, 8])
        g = tl.load(d + at, mask=valid, other=0.0).to(tl.float32)
        z = tl.load(h + at, mask=valid, other=0.0).to(tl.float32) + b[None, :]
        _, slope = activation(z, KIND)
        g *= slope
        if DROPS:
            g *= kept(seed, row, first, columns, p, ROWS, COLUMNS)
        tl.store(out + at, g.to(out.dtype.element_ty), mask=valid)
        if EIGHT:
            store_eight(eight + at, g * factor, valid)
        total += g
    tl.store(sums + tl.program_id(0) * columns + column, tl.sum(total, 0))


@triton.jit
def activation(z, KIND: tl.constexpr):
    """Its value and its derivative: relu, gelu, gelu with tanh, the square of relu, or silu."""
    if KIND == 1:
        value = tl.maximum(z, 0.0)
        slope = tl.where(z > 0, 1.0, 0.0)
    elif KIND == 2:
        # Φ(z) by the formula 26.2.17 of Abramowitz and Stegun, to 7.5e-8: it shares its exponential with the slope.
        bell = tl.exp2(-0.7213475204444817 * z * z)
        t = 1 / (1 + 0.2316419 * tl.abs(z))
        series = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
        share = tl.where(z < 0, series * bell, 1 - series * bell)
        value = z * share
        slope = share + z * 0.3989422804014327 * bell
    elif KIND == 3:
        # ½ (1 + tanh u) = σ(2u), with u = √(2/π) (z + .044715 z³)
        square = z * z
        share = 1 / (1 + tl.exp(-z * (1.5957691216057308 + 0.07135481627159845 * square)))
        value = z * share
        slope = share + share * (1 - share) * z * (1.5957691216057308 + 0.21406444881479535 * square)
    elif KIND == 4:
        positive = tl.maximum(z, 0.0)
        value = positive * positive
        slope = 2 * positive
    else:
        share = 1 / (1 + tl.exp(-z))
        value = z * share
        slope = share + value * (1 - share)
    return value, slope
