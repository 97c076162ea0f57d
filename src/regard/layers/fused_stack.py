"""A stack of pre-norm blocks in training on a GPU, with all that lies between products in as few kernels as possible.

    x, n = x + y + b, norm(x + y + b)        the residual of one part, and the norm before the next, in one pass
    a    = act(h + b)

What these take is memory traffic, not arithmetic. So a kernel reads everything once, and what comes out of the backward
pass only as a sum over all positions, the gradients of biases and norms, is added up in the same pass over memory: each
program keeps the sums of its own rows, which are added in a fixed order afterwards. Nothing needs to be compiled.

The numbers are those of the blocks as they are written in `block.py`, but for the last bits of bfloat16.

Shapes: B rows · T positions, N = B·T · D model width · C columns of any width · X all queries, keys and values ·
        P programs
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import Attention
from regard.layers.block import Block
from regard.layers.context import Context
from regard.layers.feedforward import FeedForward

ROWS, COLUMNS = 4, 128  # of a tile
ROWS_BACK = 2  # of a tile in the backward pass, which holds more numbers of each
PROGRAMS = 528  # at most, that add up rows of their own
ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu-tanh": 3}


def fits(blocks: Iterable[nn.Module], norm: nn.Module, x_BTD: Tensor) -> bool:
    """Whether these blocks have nothing but what is fused here."""
    half = torch.is_autocast_enabled(x_BTD.device.type) and torch.get_autocast_dtype(x_BTD.device.type).itemsize == 2
    return half and torch.is_grad_enabled() and type(norm) is nn.LayerNorm and all(map(_fits, blocks))


def _fits(block: nn.Module) -> bool:
    if not isinstance(block, Block) or not block.training:
        return False
    feedforward, mixer = block.feedforward, block.mixer
    plain = block.pre_norm and block.cross is None and not block.skips and not block.scales and not block.dropout.p
    norms = type(block.mixer_norm) is nn.LayerNorm and type(block.feedforward_norm) is nn.LayerNorm
    return (
        plain
        and norms
        and type(mixer) is Attention
        and len(set(mixer.widths)) == 1
        and mixer.widths[0] % COLUMNS == 0
        and isinstance(feedforward, FeedForward)
        and not feedforward.gated
        and feedforward.activation_name in ACTIVATIONS
        and not feedforward.dropout.p
        and feedforward.expand.out_features % COLUMNS == 0
    )


def read(blocks: Iterable[nn.Module], norm: nn.Module, x_BTD: Tensor, context: Context) -> Tensor:
    """What the last block makes of vectors, normalised: [B, T, D]."""
    y_BTD: Tensor | None = None
    bias_D: Tensor | None = None
    for block in blocks:
        assert isinstance(block, Block)
        x_BTD, n_BTD = add_norm(x_BTD, y_BTD, bias_D, block.mixer_norm)
        mixer = block.mixer
        q_BTC, k_BTC, v_BTC = _Projected.apply(n_BTD, mixer.to_qkv.weight, mixer.to_qkv.bias)
        o_BTC = mixer.gather(q_BTC, k_BTC, v_BTC, context)
        y_BTD, bias_D = F.linear(o_BTC, mixer.to_out.weight), mixer.to_out.bias
        x_BTD, n_BTD = add_norm(x_BTD, y_BTD, bias_D, block.feedforward_norm)
        feedforward = block.feedforward
        h_BTC = F.linear(n_BTD, feedforward.expand.weight)
        a_BTC = _Activated.apply(h_BTC, feedforward.expand.bias, ACTIVATIONS[feedforward.activation_name])
        y_BTD, bias_D = F.linear(a_BTC, feedforward.contract.weight), feedforward.contract.bias
    return add_norm(x_BTD, y_BTD, bias_D, norm)[1]


# ---------------------------------------------------------------- residual and norm


def add_norm(x_BTD: Tensor, y_BTD: Tensor | None, bias_D: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """x + y + bias, or x itself where there is no y; and its norm, in half precision."""
    assert isinstance(norm, nn.LayerNorm)
    half = torch.get_autocast_dtype(x_BTD.device.type)
    s_BTD, n_BTD = _AddNorm.apply(x_BTD.contiguous(), y_BTD, bias_D, norm.weight, norm.bias, norm.eps, half)
    return s_BTD, n_BTD


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BTD: Tensor,
        y_BTD: Tensor | None,
        bias_D: Tensor | None,
        gain_D: Tensor,
        shift_D: Tensor | None,
        epsilon: float,
        half: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        width = x_BTD.shape[-1]
        rows = x_BTD.numel() // width
        s_BTD = x_BTD if y_BTD is None else torch.empty_like(x_BTD)
        n_BTD = torch.empty_like(x_BTD, dtype=half)
        mean_N, scale_N = x_BTD.new_empty(2, rows, dtype=torch.float32).unbind()
        y, bias, shift = (given if given is not None else x_BTD for given in (y_BTD, bias_D, shift_D))
        _add_norm[(triton.cdiv(rows, ROWS),)](
            x_BTD, y, bias, gain_D, shift, s_BTD, n_BTD, mean_N, scale_N, rows, epsilon,
            WIDTH=width, BLOCK=triton.next_power_of_2(width), ROWS=ROWS, ADDED=y_BTD is not None,
            BIASED=bias_D is not None, SHIFTED=shift_D is not None, num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(s_BTD, gain_D, mean_N, scale_N)
        ctx.added = y_BTD.dtype if y_BTD is not None else None
        ctx.types = [given.dtype if given is not None else None for given in (bias_D, gain_D, shift_D)]
        if y_BTD is None:
            s_BTD = s_BTD.view_as(s_BTD)
        return s_BTD, n_BTD

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, ds_BTD: Tensor | None, dn_BTD: Tensor) -> tuple[Tensor | None, ...]:
        s_BTD, gain_D, mean_N, scale_N = ctx.saved_tensors
        width, rows = s_BTD.shape[-1], len(mean_N)
        programs = min(PROGRAMS, triton.cdiv(rows, ROWS_BACK))
        dx_BTD = torch.empty_like(s_BTD)
        apart = ctx.added is not None and ctx.added != s_BTD.dtype
        dy_BTD = torch.empty_like(s_BTD, dtype=ctx.added) if apart else dx_BTD
        sums_P3D = s_BTD.new_empty(programs, 3, width, dtype=torch.float32)
        streams = ds_BTD is not None
        _add_norm_backward[(programs,)](
            ds_BTD.contiguous() if ds_BTD is not None else dn_BTD, dn_BTD.contiguous(), s_BTD, gain_D, mean_N, scale_N,
            dx_BTD, dy_BTD, sums_P3D, rows, programs,
            WIDTH=width, BLOCK=triton.next_power_of_2(width), ROWS=ROWS_BACK, STREAMS=streams, APART=apart, num_warps=4,
        )  # fmt: skip
        sums_3D = sums_P3D.sum(0)
        of_bias, of_gain, of_shift = (
            sum_D.to(dtype) if dtype is not None else None for sum_D, dtype in zip(sums_3D, ctx.types, strict=True)
        )
        return dx_BTD, dy_BTD if ctx.added is not None else None, of_bias, of_gain, of_shift, None, None


@triton.jit
def _add_norm(
    x, y, bias, gain, shift, s, n, mean, scale, rows, epsilon,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADDED: tl.constexpr, BIASED: tl.constexpr,
    SHIFTED: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < WIDTH
    valid = (row < rows)[:, None] & inside[None, :]
    at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    a = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
    if ADDED:
        a += tl.load(y + at, mask=valid, other=0.0).to(tl.float32)
        if BIASED:
            a += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        kept = a.to(s.dtype.element_ty)
        tl.store(s + at, kept, mask=valid)
        a = kept.to(tl.float32)
    middle = tl.sum(a, 1) / WIDTH
    centred = tl.where(valid, a - middle[:, None], 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + epsilon)
    out = centred * factor[:, None] * tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if SHIFTED:
        out += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(n + at, out.to(n.dtype.element_ty), mask=valid)
    tl.store(mean + row, middle, mask=row < rows)
    tl.store(scale + row, factor, mask=row < rows)


@triton.jit
def _add_norm_backward(
    ds, dn, s, gain, mean, scale, dx, dy, sums, rows, programs,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STREAMS: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    g = tl.load(gain + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    of_bias = tl.zeros([BLOCK], tl.float32)
    of_gain = tl.zeros([BLOCK], tl.float32)
    of_shift = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = first + tl.arange(0, ROWS)
        valid = (row < rows)[:, None] & inside[None, :]
        at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
        d = tl.load(dn + at, mask=valid, other=0.0).to(tl.float32)
        a = tl.load(s + at, mask=valid, other=0.0).to(tl.float32)
        middle = tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
        factor = tl.load(scale + row, mask=row < rows, other=0.0)[:, None]
        normal = tl.where(valid, (a - middle) * factor, 0.0)
        of_gain += tl.sum(d * normal, 0)
        of_shift += tl.sum(d, 0)
        d *= g
        along = tl.sum(d * normal, 1)[:, None] / WIDTH
        constant = tl.sum(d, 1)[:, None] / WIDTH
        out = (d - normal * along - constant) * factor
        if STREAMS:
            out += tl.load(ds + at, mask=valid, other=0.0).to(tl.float32)
        out = tl.where(valid, out, 0.0)
        tl.store(dx + at, out.to(dx.dtype.element_ty), mask=valid)
        if APART:
            tl.store(dy + at, out.to(dy.dtype.element_ty), mask=valid)
        of_bias += tl.sum(out, 0)
    sums += tl.program_id(0) * 3 * WIDTH + column
    tl.store(sums, of_bias, mask=inside)
    tl.store(sums + WIDTH, of_gain, mask=inside)
    tl.store(sums + 2 * WIDTH, of_shift, mask=inside)


# ---------------------------------------------------------------- activation, and queries, keys and values


class _Activated(torch.autograd.Function):
    """act(h + bias)."""

    @staticmethod
    def forward(ctx: Any, h_BTC: Tensor, bias_C: Tensor | None, kind: int) -> Tensor:
        ctx.save_for_backward(h_BTC, bias_C)
        ctx.kind = kind
        a_BTC = torch.empty_like(h_BTC)
        columns = h_BTC.shape[-1]
        rows = h_BTC.numel() // columns
        bias = bias_C if bias_C is not None else h_BTC
        _activate[(triton.cdiv(rows, 32), columns // COLUMNS)](
            h_BTC, bias, a_BTC, rows, columns, KIND=kind, BIASED=bias_C is not None, COLUMNS=COLUMNS, num_warps=4
        )
        return a_BTC

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, da_BTC: Tensor) -> tuple[Tensor | None, ...]:
        h_BTC, bias_C = ctx.saved_tensors
        dh_BTC = torch.empty_like(h_BTC)
        sum_C = _columns(da_BTC.contiguous(), dh_BTC, 0, h_BTC, bias_C, ctx.kind)
        return dh_BTC, sum_C.to(bias_C.dtype) if bias_C is not None else None, None


class _Projected(torch.autograd.Function):
    """Queries, keys and values: one product, in three parts [B, T, C]. Their gradients are put together again."""

    @staticmethod
    def forward(ctx: Any, n_BTD: Tensor, weight_XD: Tensor, bias_X: Tensor | None) -> tuple[Tensor, ...]:
        half_XD = weight_XD.detach().to(n_BTD.dtype)
        ctx.save_for_backward(n_BTD, half_XD)
        ctx.types = weight_XD.dtype, bias_X.dtype if bias_X is not None else None
        bias = bias_X.detach().to(n_BTD.dtype) if bias_X is not None else None
        with torch.autocast(n_BTD.device.type, enabled=False):
            return F.linear(n_BTD, half_XD, bias).chunk(3, dim=-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        n_BTD, half_XD = ctx.saved_tensors
        columns = len(half_XD) // 3
        g_BTX = torch.empty(*n_BTD.shape[:-1], 3 * columns, dtype=n_BTD.dtype, device=n_BTD.device)
        sums = [_columns(gradient.contiguous(), g_BTX, part * columns) for part, gradient in enumerate(gradients)]
        of_bias = torch.cat(sums).to(ctx.types[1]) if ctx.types[1] is not None else None
        of_weight = (g_BTX.flatten(0, 1).T @ n_BTD.flatten(0, 1)).to(ctx.types[0])
        return g_BTX @ half_XD, of_weight, of_bias


def _columns(
    d_BTC: Tensor, out: Tensor, first: int, h_BTC: Tensor | None = None, bias_C: Tensor | None = None, kind: int = 0
) -> Tensor:
    """Write d, times the derivative of the activation at h + bias if there is one, to `out` from column `first` on.

    The sum of what is written over all rows: [C].
    """
    columns = d_BTC.shape[-1]
    rows = d_BTC.numel() // columns
    tiles = triton.cdiv(rows, 32)
    programs = min(max(1, 4 * PROGRAMS * COLUMNS // columns), tiles)
    sums_PC = d_BTC.new_empty(programs, columns, dtype=torch.float32)
    h, bias = (given if given is not None else d_BTC for given in (h_BTC, bias_C))
    _activate_backward[(programs, columns // COLUMNS)](
        d_BTC, h, bias, out, sums_PC, rows, columns, out.shape[-1], first, programs,
        KIND=kind, BIASED=bias_C is not None, COLUMNS=COLUMNS, num_warps=4,
    )  # fmt: skip
    return sums_PC.sum(0)


@triton.jit
def _activate(h, bias, a, rows, columns, KIND: tl.constexpr, BIASED: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * 32 + tl.arange(0, 32)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    valid = (row < rows)[:, None]
    z = tl.load(h + at, mask=valid, other=0.0).to(tl.float32)
    if BIASED:
        z += tl.load(bias + column).to(tl.float32)[None, :]
    value, _ = _activation(z, KIND)
    tl.store(a + at, value.to(a.dtype.element_ty), mask=valid)


@triton.jit
def _activate_backward(
    d, h, bias, out, sums, rows, columns, stride, first, programs,
    KIND: tl.constexpr, BIASED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    b = tl.zeros([COLUMNS], tl.float32)
    if BIASED:
        b = tl.load(bias + column).to(tl.float32)
    for start in range(tl.program_id(0) * 32, rows, programs * 32):
        row = (start + tl.arange(0, 32)).to(tl.int64)
        valid = (row < rows)[:, None]
        at = row[:, None] * columns + column[None, :]
        g = tl.load(d + at, mask=valid, other=0.0).to(tl.float32)
        if KIND > 0:
            z = tl.load(h + at, mask=valid, other=0.0).to(tl.float32) + b[None, :]
            _, slope = _activation(z, KIND)
            g *= slope
        tl.store(out + row[:, None] * stride + first + column[None, :], g.to(out.dtype.element_ty), mask=valid)
        total += tl.sum(g, 0)
    tl.store(sums + tl.program_id(0) * columns + column, total)


@triton.jit
def _activation(z, KIND: tl.constexpr):
    """Its value and its derivative: relu, gelu, or gelu with tanh."""
    if KIND == 1:
        value = tl.maximum(z, 0.0)
        slope = tl.where(z > 0, 1.0, 0.0)
    elif KIND == 2:
        share = 0.5 * (1 + tl.erf(z * 0.7071067811865476))
        value = z * share
        slope = share + z * 0.3989422804014327 * tl.exp(-0.5 * z * z)
    else:
        # ½ (1 + tanh u) = σ(2u), with u = √(2/π) (z + .044715 z³)
        square = z * z
        share = 1 / (1 + tl.exp(-z * (1.5957691216057308 + 0.07135481627159845 * square)))
        value = z * share
        slope = share + share * (1 - share) * z * (1.5957691216057308 + 0.21406444881479535 * square)
    return value, slope
