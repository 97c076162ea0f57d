"""Queries, keys and values of all heads: the product, the norm of each head and its rotation; and all their gradients.

    q, k, v = x Wᵀ + b            q, k = rotate(norm(q)), rotate(norm(k))       where a model has them

Going back, what comes from the kernel of attention as three tensors is rotated back, taken through the norm and put
together as the gradient of the one product, in one pass, which also adds up the gradients of bias and norms.

Shapes: B rows · T positions, N = B·T · D model width · X columns of all heads · H heads of one part, S heads that are
        normalised or rotated · K width of a head · P programs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.layers.fused.casts import store_eight
from regard.layers.fused.eight_bits import E5M2
from regard.layers.fused.product import Operand, Rounded, gradient_of_weight
from regard.layers.fused.sums import over_programs

TILE = 2048  # numbers of a tile
PROGRAMS = 2112  # at most, that add up rows of their own


@dataclass(frozen=True)
class Shaping:
    """What happens to the heads of the first parts, queries or keys, after the product."""

    parts: int = 0
    gains: tuple[Tensor, ...] = ()  # of their norms, [K] each; none: not normalised
    epsilon: float = 0.0
    positions_BT: Tensor | None = None  # None: not rotated
    frequencies_F: Tensor | None = None

    @property
    def nothing(self) -> bool:
        return not self.gains and self.positions_BT is None


def project(
    x: Operand,
    weight_XD: Tensor,
    bias_X: Tensor | None,
    rounded: Rounded,
    heads: tuple[int, ...],
    shaping: Shaping,
) -> tuple[Tensor, ...]:
    """One tensor [B, H, T, K] for each part, which has this many heads. `rounded`: weight and bias as they are read."""
    projected: tuple[Tensor, ...] = _Projected.apply(
        x.half, rounded.read(x), weight_XD, bias_X, rounded, heads, shaping, *shaping.gains
    )
    return projected


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BTD: Tensor,
        read_BTD: Tensor,
        weight_XD: Tensor,
        bias_X: Tensor | None,
        rounded: Rounded,
        heads: tuple[int, ...],
        shaping: Shaping,
        *gains: Tensor,
    ) -> tuple[Tensor, ...]:
        width = len(weight_XD) // sum(heads)
        x_half_BTD = read_BTD if rounded.factor is None else x_BTD.to(rounded.half)
        with torch.autocast(x_BTD.device.type, enabled=False):
            all_BTX = rounded.product(read_BTD, biased=True)
        parts_BTX = list(all_BTX.split([width * count for count in heads], dim=-1))
        if not shaping.nothing:
            shaped_BTX = _shape(all_BTX, heads, width, shaping)
            sizes = [width * count for count in heads[: shaping.parts]]
            parts_BTX[: shaping.parts] = shaped_BTX.split(sizes, dim=-1)
        ctx.save_for_backward(x_half_BTD, all_BTX if gains else None, *gains)
        ctx.heads, ctx.shaping, ctx.rounded = heads, shaping, rounded
        ctx.types = x_BTD.dtype, weight_XD.dtype, bias_X.dtype if bias_X is not None else None
        return tuple(part.unflatten(-1, (-1, width)).transpose(1, 2) for part in parts_BTX)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_BTD, all_BTX, *gains = ctx.saved_tensors
        type_of_x, type_of_weight, type_of_bias = ctx.types
        factor = ctx.rounded.factor
        g_BTX, eight_BTX, of_bias_X, of_gains = _joined(gradients, all_BTX, gains, ctx.heads, ctx.shaping, factor)
        of_x = None
        if ctx.needs_input_grad[0]:
            with torch.autocast(x_BTD.device.type, enabled=False):
                of_x = ctx.rounded.of_input(g_BTX, eight_BTX).to(type_of_x)
        of_weight = gradient_of_weight(g_BTX.flatten(0, 1), x_BTD.flatten(0, 1), type_of_weight)
        of_bias = of_bias_X.to(type_of_bias) if type_of_bias is not None else None
        return of_x, None, of_weight, of_bias, None, None, None, *of_gains


def _shape(all_BTX: Tensor, heads: tuple[int, ...], width: int, shaping: Shaping) -> Tensor:
    """The heads of the first parts, normalised and rotated: [B, T, S·K]."""
    rows, length, columns = all_BTX.shape
    count = sum(heads[: shaping.parts])
    out_BTX = all_BTX.new_empty(rows, length, count * width)
    tile = _rows_of_tile(width)
    _shape_heads[(triton.cdiv(rows * length, tile), count)](
        all_BTX, *_gains(list(shaping.gains), all_BTX), *_rotation(shaping, all_BTX), out_BTX,
        rows * length, length, columns, count * width, heads[0], shaping.epsilon,
        WIDTH=width, HALF=triton.next_power_of_2(width // 2), ROWS=tile,
        NORMED=bool(shaping.gains), ROTATED=shaping.positions_BT is not None, num_warps=4,
    )  # fmt: skip
    return out_BTX


def _joined(
    gradients: tuple[Tensor, ...],
    all_BTX: Tensor | None,
    gains: list[Tensor],
    heads: tuple[int, ...],
    shaping: Shaping,
    factor: float | None,
) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:
    """The gradient of the product, [B, T, X]; times a factor, in eight bits; its sum over all positions, [X]; and
    those of the gains."""
    rows, _, length, width = gradients[0].shape
    total, shaped = sum(heads), sum(heads[: shaping.parts]) if not shaping.nothing else 0
    given = [gradient if gradient.stride(-1) == 1 else gradient.contiguous() for gradient in gradients]
    given += [given[-1]] * (3 - len(given))
    g_BTX = given[0].new_empty(rows, length, total * width)
    eight_BTX = torch.empty_like(g_BTX, dtype=E5M2) if factor is not None else None
    tile = _rows_of_tile(width)
    programs = min(max(1, PROGRAMS // total), triton.cdiv(rows * length, tile))
    sums_PX = g_BTX.new_empty(programs, total * width, dtype=torch.float32)
    of_gains_PSK = g_BTX.new_empty(programs, max(1, shaped), width, dtype=torch.float32)
    first, second = heads[0], sum(heads[:2])
    # Where all parts have as many heads, those of a part are so laid out that programs and heads are added up as one.
    alike = len(set(heads[: shaping.parts])) == 1
    _join_heads[(programs, total)](
        *given, *(stride for part in given for stride in part.stride()[:3]),
        all_BTX if all_BTX is not None else g_BTX, *_gains(gains, g_BTX), *_rotation(shaping, g_BTX),
        g_BTX, g_BTX if eight_BTX is None else eight_BTX, sums_PX, of_gains_PSK,
        rows * length, length, total * width, first, second, shaped, shaping.epsilon, factor or 1.0, programs,
        WIDTH=width, HALF=triton.next_power_of_2(width // 2), ROWS=tile, EIGHT=eight_BTX is not None,
        NORMED=bool(gains), ALIKE=alike, ROTATED=shaping.positions_BT is not None, num_warps=4,
    )  # fmt: skip
    of_gains = []
    if gains and alike:
        sums = over_programs(of_gains_PSK.view(-1, shaping.parts, width))
        of_gains = [of_gain.to(gain.dtype) for of_gain, gain in zip(sums, gains, strict=True)]
    elif gains:
        parts = over_programs(of_gains_PSK).split(list(heads[: shaping.parts]))
        of_gains = [part.sum(0).to(gain.dtype) for part, gain in zip(parts, gains, strict=True)]
    return g_BTX, eight_BTX, over_programs(sums_PX), of_gains


def _rows_of_tile(width: int) -> int:
    return max(1, TILE // triton.next_power_of_2(width))


def _gains(gains: list[Tensor], otherwise: Tensor) -> tuple[Tensor, Tensor]:
    if not gains:
        return otherwise, otherwise
    return gains[0], gains[-1]


def _rotation(shaping: Shaping, otherwise: Tensor) -> tuple[Any, ...]:
    if shaping.positions_BT is None:
        return otherwise, otherwise, 0, 0
    return shaping.positions_BT, shaping.frequencies_F, *shaping.positions_BT.stride()


@triton.jit
def _shape_heads(
    x, gain_0, gain_1, positions, frequencies, p_row, p_time, out, rows, length, stride, out_stride, first, epsilon,
    WIDTH: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr, NORMED: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    pair = tl.arange(0, HALF)
    inside = pair < WIDTH // 2
    valid = (row < rows)[:, None] & inside[None, :]
    at = row.to(tl.int64)[:, None] * stride + head * WIDTH + pair[None, :]
    a = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
    b = tl.load(x + at + WIDTH // 2, mask=valid, other=0.0).to(tl.float32)
    if NORMED:
        gain = gain_0
        if head >= first:
            gain = gain_1
        factor = 1 / tl.sqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / WIDTH + epsilon)[:, None]
        a *= factor * tl.load(gain + pair, mask=inside, other=0.0).to(tl.float32)[None, :]
        b *= factor * tl.load(gain + pair + WIDTH // 2, mask=inside, other=0.0).to(tl.float32)[None, :]
    if ROTATED:
        cos, sin = _angles(positions, frequencies, p_row, p_time, row, rows, length, pair, inside)
        a, b = a * cos - b * sin, a * sin + b * cos
    to = row.to(tl.int64)[:, None] * out_stride + head * WIDTH + pair[None, :]
    tl.store(out + to, a.to(out.dtype.element_ty), mask=valid)
    tl.store(out + to + WIDTH // 2, b.to(out.dtype.element_ty), mask=valid)


@triton.jit
def _join_heads(
    d_0, d_1, d_2, row_0, head_0, time_0, row_1, head_1, time_1, row_2, head_2, time_2,
    x, gain_0, gain_1, positions, frequencies, p_row, p_time, out, eight, sums, of_gains,
    rows, length, stride, first, second, shaped, epsilon, factor_of_eight, programs,
    WIDTH: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr, EIGHT: tl.constexpr, NORMED: tl.constexpr,
    ALIKE: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    pair = tl.arange(0, HALF)
    inside = pair < WIDTH // 2
    # Which of the three this head belongs to, and how that lies in memory.
    d = d_0 + head * head_0
    of_row, of_time = row_0, time_0
    gain = gain_0
    if head >= first:
        d = d_1 + (head - first) * head_1
        of_row, of_time = row_1, time_1
        gain = gain_1
    if head >= second:
        d = d_2 + (head - second) * head_2
        of_row, of_time = row_2, time_2
    is_shaped = head < shaped
    total_a, total_b = tl.zeros([ROWS, HALF], tl.float32), tl.zeros([ROWS, HALF], tl.float32)
    of_gain_a, of_gain_b = tl.zeros([ROWS, HALF], tl.float32), tl.zeros([ROWS, HALF], tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, programs * ROWS):
        row = start + tl.arange(0, ROWS)
        valid = (row < rows)[:, None] & inside[None, :]
        from_ = (row // length).to(tl.int64)[:, None] * of_row + (row % length).to(tl.int64)[:, None] * of_time
        a = tl.load(d + from_ + pair[None, :], mask=valid, other=0.0).to(tl.float32)
        b = tl.load(d + from_ + pair[None, :] + WIDTH // 2, mask=valid, other=0.0).to(tl.float32)
        at = row.to(tl.int64)[:, None] * stride + head * WIDTH + pair[None, :]
        if is_shaped:
            if ROTATED:
                cos, sin = _angles(positions, frequencies, p_row, p_time, row, rows, length, pair, inside)
                a, b = a * cos + b * sin, b * cos - a * sin
            if NORMED:
                u = tl.load(x + at, mask=valid, other=0.0).to(tl.float32)
                w = tl.load(x + at + WIDTH // 2, mask=valid, other=0.0).to(tl.float32)
                factor = 1 / tl.sqrt((tl.sum(u * u, 1) + tl.sum(w * w, 1)) / WIDTH + epsilon)[:, None]
                u *= factor
                w *= factor
                of_gain_a += a * u
                of_gain_b += b * w
                a *= tl.load(gain + pair, mask=inside, other=0.0).to(tl.float32)[None, :]
                b *= tl.load(gain + pair + WIDTH // 2, mask=inside, other=0.0).to(tl.float32)[None, :]
                along = ((tl.sum(a * u, 1) + tl.sum(b * w, 1)) / WIDTH)[:, None]
                a = (a - u * along) * factor
                b = (b - w * along) * factor
        tl.store(out + at, a.to(out.dtype.element_ty), mask=valid)
        tl.store(out + at + WIDTH // 2, b.to(out.dtype.element_ty), mask=valid)
        if EIGHT:
            store_eight(eight + at, a * factor_of_eight, valid)
            store_eight(eight + at + WIDTH // 2, b * factor_of_eight, valid)
        total_a += a
        total_b += b
    sums += tl.program_id(0) * stride + head * WIDTH + pair
    tl.store(sums, tl.sum(total_a, 0), mask=inside)
    tl.store(sums + WIDTH // 2, tl.sum(total_b, 0), mask=inside)
    if NORMED:  # noqa: SIM102 (known when this is compiled, the other only when it runs)
        if is_shaped:
            place = head
            if ALIKE:
                place = (head % first) * (shaped // first) + head // first
            to = of_gains + (tl.program_id(0) * shaped + place) * WIDTH + pair
            tl.store(to, tl.sum(of_gain_a, 0), mask=inside)
            tl.store(to + WIDTH // 2, tl.sum(of_gain_b, 0), mask=inside)


@triton.jit
def _angles(positions, frequencies, p_row, p_time, row, rows, length, pair, inside):
    """cos and sin of position · frequency, for every row and pair."""
    place = positions + (row // length).to(tl.int64) * p_row + (row % length) * p_time
    position = tl.load(place, mask=row < rows, other=0).to(tl.float32)
    angle = position[:, None] * tl.load(frequencies + pair, mask=inside, other=0.0)[None, :]
    return tl.cos(angle), tl.sin(angle)
