"""The residual of one part and the norm before the next, in one pass.

    pre-norm     s = x + drop(y + b)          n = norm(s)         what follows adds to s
    post-norm    s = x + drop(y + b)          n = norm(s)         what follows adds to n, kept in full precision

What these take is memory traffic, not arithmetic. So everything is read once, and what comes out of the backward pass
as a sum over all positions, the gradients of the bias and of the norm, is added up in the same pass: each program keeps
the sums of its own rows, which are added in a fixed order afterwards.

Shapes: B rows · T positions, N = B·T · D model width · P programs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from regard.layers.fused.casts import store_eight
from regard.layers.fused.dropout import kept, survives
from regard.layers.fused.eight_bits import E4M3, E5M2, OPERANDS
from regard.layers.fused.product import Operand, Product
from regard.layers.fused.sums import over_programs

ROWS = 4  # of a tile
WARPS = 2112  # of all programs together, at most, that add up rows of their own
TILES = 4  # of a program, at least: what they have added up is added once more


@dataclass(frozen=True)
class Dropped:
    """What of a part is left out in training: single numbers, or all of some rows (stochastic depth)."""

    p: float = 0.0
    survival: Tensor | None = None  # one number, on the device
    seed: Tensor | None = None  # one number, on the device

    @property
    def at_all(self) -> bool:
        return self.p > 0 or self.survival is not None


def add_norm(
    x_BTD: Tensor,
    y: Product | None,
    bias_D: Tensor | None,
    norm: nn.Module,
    dropped: Dropped | None = None,
    post: bool = False,
    eight: bool = False,
) -> tuple[Tensor, Operand]:
    """What the next part adds to; and what it reads, in half precision and, if asked for, in eight bits."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    half = torch.get_autocast_dtype(x_BTD.device.type)
    shift_D = norm.bias if isinstance(norm, nn.LayerNorm) else None
    y_BTD, gradient_BTD, factor = y if y is not None else (None, None, 1.0)
    stream_BTD, n_BTD, eight_BTD = _AddNorm.apply(
        x_BTD.contiguous(), y_BTD, gradient_BTD, bias_D, norm.weight, shift_D, norm.eps,
        isinstance(norm, nn.LayerNorm), half, dropped or Dropped(), post, eight, factor,
    )  # fmt: skip
    return stream_BTD, Operand(n_BTD, eight_BTD)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BTD: Tensor,
        y_BTD: Tensor | None,
        gradient_BTD: Tensor | None,
        bias_D: Tensor | None,
        gain_D: Tensor,
        shift_D: Tensor | None,
        epsilon: float,
        centred: bool,
        half: torch.dtype,
        dropped: Dropped,
        post: bool,
        eight: bool,
        factor: float,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        width, length = x_BTD.shape[-1], x_BTD.shape[-2]
        rows = x_BTD.numel() // width
        s_BTD = x_BTD if y_BTD is None else torch.empty_like(x_BTD)
        n_BTD = torch.empty_like(x_BTD, dtype=half)
        eight_BTD = torch.empty_like(x_BTD, dtype=E4M3) if eight else None
        wide_BTD = torch.empty_like(x_BTD) if post else s_BTD
        mean_N, scale_N = x_BTD.new_empty(2, rows, dtype=torch.float32).unbind()
        y, bias, shift = (given if given is not None else x_BTD for given in (y_BTD, bias_D, shift_D))
        block = triton.next_power_of_2(width)
        added = y_BTD is not None
        _add_norm[(triton.cdiv(rows, ROWS),)](
            x_BTD, y, bias, gain_D, shift, s_BTD, n_BTD, n_BTD if eight_BTD is None else eight_BTD, wide_BTD,
            mean_N, scale_N, *_random(dropped, x_BTD), rows, length, epsilon, dropped.p, OPERANDS,
            WIDTH=width, BLOCK=block, ROWS=ROWS, ADDED=added, BIASED=bias_D is not None, SHIFTED=shift_D is not None,
            CENTRED=centred, DROPS=added and dropped.p > 0, SKIPS=added and dropped.survival is not None, POST=post,
            EIGHT=eight, num_warps=min(8, 2 * _warps_of_a_row(block)),
        )  # fmt: skip
        ctx.save_for_backward(s_BTD, gain_D, mean_N, scale_N, dropped.seed, dropped.survival)
        ctx.added = y_BTD.dtype if y_BTD is not None else None
        ctx.types = [given.dtype if given is not None else None for given in (bias_D, gain_D, shift_D)]
        ctx.p, ctx.centred, ctx.post = dropped.p, centred, post
        ctx.eight, ctx.factor = gradient_BTD is not None, factor
        if eight_BTD is not None:
            ctx.mark_non_differentiable(eight_BTD)
        return wide_BTD.view_as(wide_BTD) if y_BTD is None and not post else wide_BTD, n_BTD, eight_BTD

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, ds_BTD: Tensor | None, dn_BTD: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        s_BTD, gain_D, mean_N, scale_N, seed, survival = ctx.saved_tensors
        dropped = Dropped(ctx.p, survival, seed)
        width, length, rows = s_BTD.shape[-1], s_BTD.shape[-2], len(mean_N)
        block = triton.next_power_of_2(width)
        # A wide row takes all warps, which have two of them at a time; of narrow ones, each warp has its own.
        tile, warps = (2, _warps_of_a_row(block)) if block >= 1024 else (1024 // block, 4)
        kept_rows = 1 if block >= 1024 else tile
        programs = min(WARPS // warps, triton.cdiv(rows, tile * TILES))
        dx_BTD = torch.empty_like(s_BTD)
        added = ctx.added is not None
        apart = added and (ctx.added != s_BTD.dtype or dropped.at_all)
        dy_BTD = torch.empty_like(s_BTD, dtype=ctx.added) if apart else dx_BTD
        eight_BTD = torch.empty_like(s_BTD, dtype=E5M2) if ctx.eight else None
        sums_P3D = s_BTD.new_empty(programs, 3, width, dtype=torch.float32)
        ds, dn = (given.contiguous() if given is not None else s_BTD for given in (ds_BTD, dn_BTD))
        _add_norm_backward[(programs,)](
            ds, dn, s_BTD, gain_D, mean_N, scale_N, *_random(dropped, s_BTD), dx_BTD, dy_BTD,
            dy_BTD if eight_BTD is None else eight_BTD, sums_P3D, rows, length, ctx.p, ctx.factor, programs,
            WIDTH=width, BLOCK=block, ROWS=tile, KEPT=kept_rows, STREAMS=ds_BTD is not None,
            NORMS=dn_BTD is not None, APART=apart, CENTRED=ctx.centred, DROPS=added and ctx.p > 0,
            SKIPS=added and survival is not None, POST=ctx.post, EIGHT=ctx.eight,
            num_warps=warps,
        )  # fmt: skip
        sums_3D = over_programs(sums_P3D)
        of_bias, of_gain, of_shift = (
            sum_D.to(dtype) if dtype is not None else None for sum_D, dtype in zip(sums_3D, ctx.types, strict=True)
        )
        return dx_BTD, dy_BTD if added else None, eight_BTD, of_bias, of_gain, of_shift, *[None] * 7


def _warps_of_a_row(columns: int) -> int:
    """With 8 numbers for each thread: what is added over rows stays within a thread."""
    return max(1, min(16, columns // 256))


def _random(dropped: Dropped, otherwise: Tensor) -> tuple[Tensor, Tensor]:
    seed, survival = dropped.seed, dropped.survival
    return seed if seed is not None else otherwise, survival if survival is not None else otherwise


@triton.jit
def _add_norm(
    x, y, bias, gain, shift, s, n, eight, wide, mean, scale, seed, survival, rows, length, epsilon, p, factor_of_eight,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADDED: tl.constexpr, BIASED: tl.constexpr,
    SHIFTED: tl.constexpr, CENTRED: tl.constexpr, DROPS: tl.constexpr, SKIPS: tl.constexpr, POST: tl.constexpr,
    EIGHT: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < WIDTH
    valid = (row < rows)[:, None] & inside[None, :]
    at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    if EIGHT:
        at = tl.max_contiguous(at, [1, 8])  # else a thread has 16 numbers in a row, which is not best for the others
    a = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
    if ADDED:
        b = tl.load(y + at, mask=valid, other=0.0).to(tl.float32)
        if BIASED:
            b += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        if DROPS:
            b *= kept(seed, row, 0, WIDTH, p, ROWS, BLOCK)
        if SKIPS:
            b *= survives(seed, row, length, tl.load(survival))[:, None]
        to_keep = (a + b).to(s.dtype.element_ty)
        tl.store(s + at, to_keep, mask=valid)
        a = to_keep.to(tl.float32)
    if CENTRED:
        middle = tl.sum(a, 1) / WIDTH
        tl.store(mean + row, middle, mask=row < rows)
        a = tl.where(valid, a - middle[:, None], 0.0)
    factor = 1 / tl.sqrt(tl.sum(a * a, 1) / WIDTH + epsilon)
    out = a * factor[:, None] * tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if SHIFTED:
        out += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(n + at, out.to(n.dtype.element_ty), mask=valid)
    if EIGHT:
        store_eight(eight + at, out * factor_of_eight, valid)
    if POST:
        tl.store(wide + at, out.to(wide.dtype.element_ty), mask=valid)
    tl.store(scale + row, factor, mask=row < rows)


@triton.jit
def _add_norm_backward(
    ds, dn, s, gain, mean, scale, seed, survival, dx, dy, eight, sums, rows, length, p, factor_of_eight, programs,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, KEPT: tl.constexpr, STREAMS: tl.constexpr,
    NORMS: tl.constexpr, APART: tl.constexpr, CENTRED: tl.constexpr, DROPS: tl.constexpr, SKIPS: tl.constexpr,
    POST: tl.constexpr, EIGHT: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    g = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    of_bias = tl.zeros([KEPT, BLOCK], tl.float32)
    of_gain = tl.zeros([KEPT, BLOCK], tl.float32)
    of_shift = tl.zeros([KEPT, BLOCK], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = first + tl.arange(0, ROWS)
        valid = (row < rows)[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        if EIGHT:
            at = tl.max_contiguous(at, [1, 8])
        d = tl.zeros([ROWS, BLOCK], tl.float32)
        along_stream = tl.zeros([ROWS, BLOCK], tl.float32)
        if NORMS:
            d += tl.load(dn + at, mask=valid, other=0.0).to(tl.float32)
        if STREAMS:
            along_stream += tl.load(ds + at, mask=valid, other=0.0).to(tl.float32)
        if POST:  # the stream goes through the norm as well
            d += along_stream
        a = tl.load(s + at, mask=valid, other=0.0).to(tl.float32)
        factor = tl.load(scale + row, mask=row < rows, other=0.0)[:, None]
        if CENTRED:
            a -= tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
        normal = tl.where(valid, a * factor, 0.0)
        of_gain += _kept_rows(d * normal, KEPT)
        of_shift += _kept_rows(d, KEPT)
        d *= g
        out = d - normal * (tl.sum(d * normal, 1)[:, None] / WIDTH)
        if CENTRED:
            out -= tl.sum(d, 1)[:, None] / WIDTH
        out *= factor
        if not POST:
            out += along_stream
        out = tl.where(valid, out, 0.0)
        tl.store(dx + at, out.to(dx.dtype.element_ty), mask=valid)
        if DROPS:
            out *= kept(seed, row, 0, WIDTH, p, ROWS, BLOCK)
        if SKIPS:
            out *= survives(seed, row, length, tl.load(survival))[:, None]
        if APART:
            tl.store(dy + at, out.to(dy.dtype.element_ty), mask=valid)
        if EIGHT:
            store_eight(eight + at, out * factor_of_eight, valid)
        of_bias += _kept_rows(out, KEPT)
    sums += tl.program_id(0) * 3 * WIDTH + column
    tl.store(sums, tl.sum(of_bias, 0), mask=inside)
    tl.store(sums + WIDTH, tl.sum(of_gain, 0), mask=inside)
    tl.store(sums + 2 * WIDTH, tl.sum(of_shift, 0), mask=inside)


@triton.jit
def _kept_rows(x, KEPT: tl.constexpr):
    """Added up to one row where a thread has all of them; else as they are."""
    if KEPT == 1:
        x = tl.sum(x, 0)[None, :]
    return x
