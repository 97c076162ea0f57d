"""A block's step on a GPU for few rows: a norm, a linear map, its activation and a residual connection in one kernel.

    y = residual + act(norm(x) Wᵀ + b)                pre-norm
    y = norm(residual) + act(norm(x) Wᵀ + b)          post-norm: what was added is normalised by whoever reads it next

With few rows a step is a hundred small kernels, and each takes longer to begin than to compute. Every program makes
some columns of y, and normalises all of x for itself: that is a few thousand numbers, beside the weights it reads.

Shapes: N rows · D input width · O output width
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor, nn

from regard.layers.block import Block, BlockState

MOST_ROWS = 64
ACTIVATIONS = {"": 0, "relu": 1, "relu2": 2, "gelu": 3, "gelu-tanh": 4, "silu": 5}
NO_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2


def step(block: Block, x_ND: Tensor, state: BlockState) -> Tensor:
    """One position further: [N, D]. Same numbers as `block.step`, up to rounding."""
    pre, mixer = block.pre_norm, block.mixer
    own: Any = state.mixer
    across: Any = state.memory
    # In post-norm, what flows from part to part is not yet normalised: `norm` is still to be applied.
    norm = block.mixer_norm if pre else None
    qkv_NX = linear(x_ND, mixer.to_qkv, norm=norm)
    found_NX = own.attend(*mixer.parted(qkv_NX[:, None], own.places.positions_N[:, None]))
    x_ND = linear(found_NX, mixer.to_out, residual=x_ND)
    norm = None if pre else block.mixer_norm
    if block.cross is not None:
        read = block.cross_norm if pre else norm
        q_NX = linear(x_ND, block.cross.to_qkv, norm=read, rows=block.cross.widths[0])
        found_NX = across.attend(block.cross.split_queries(q_NX[:, None]))
        x_ND = linear(found_NX, block.cross.to_out, residual=x_ND, residual_norm=norm)
        norm = None if pre else block.cross_norm
    if block.feedforward is not None:
        feedforward = block.feedforward
        read = block.feedforward_norm if pre else norm
        if feedforward.gated:
            inner_NF = feedforward.activate(linear(x_ND, feedforward.expand, norm=read))
        else:
            inner_NF = linear(x_ND, feedforward.expand, norm=read, activation=feedforward.kind)
        x_ND = linear(inner_NF, feedforward.contract, residual=x_ND, residual_norm=norm)
        norm = None if pre else block.feedforward_norm
    return norm(x_ND) if norm is not None else x_ND


def linear(
    x_ND: Tensor,
    layer: nn.Linear,
    *,
    norm: nn.Module | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    residual_norm: nn.Module | None = None,
    rows: int | None = None,
) -> Tensor:
    """[N, O]. `rows`: only the first of the layer's outputs."""
    x_ND = x_ND.contiguous()
    width = x_ND.shape[1]
    outputs = rows or layer.out_features
    y_NO = x_ND.new_empty(len(x_ND), outputs)
    few = len(x_ND) <= 16
    columns = 16 if few and outputs <= 4096 else 32
    _linear[(triton.cdiv(outputs, columns),)](
        x_ND,
        layer.weight,
        layer.bias if layer.bias is not None else x_ND,
        y_NO,
        residual if residual is not None else x_ND,
        *_gains(norm, x_ND),
        *_gains(residual_norm, x_ND),
        len(x_ND),
        width,
        outputs,
        getattr(norm, "eps", 0.0) or 0.0,
        getattr(residual_norm, "eps", 0.0) or 0.0,
        BIAS=layer.bias is not None,
        NORM=_kind(norm),
        RESIDUAL=residual is not None,
        RESIDUAL_NORM=_kind(residual_norm),
        ACTIVATION=ACTIVATIONS[activation],
        ROWS=max(16, triton.next_power_of_2(len(x_ND))),
        COLUMNS=columns,
        BLOCK=128 if few else 64,
        num_warps=4,
        num_stages=4,
    )
    return y_NO


def _kind(norm: Any) -> int:
    if norm is None:
        return NO_NORM
    return LAYER_NORM if isinstance(norm, nn.LayerNorm) else RMS_NORM


def _gains(norm: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    if norm is None:
        return like, like
    return norm.weight, norm.bias if isinstance(norm, nn.LayerNorm) else norm.weight


@triton.jit
def _statistics(x_ptr, rows, row_exists, width, epsilon, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean (of an RMS norm 0) and inverse deviation of every row."""
    mean = tl.zeros((ROWS,), dtype=tl.float32)
    if KIND == 1:
        for begin in range(0, width, BLOCK):
            column = begin + tl.arange(0, BLOCK)
            inside = row_exists[:, None] & (column < width)[None, :]
            x = tl.load(x_ptr + rows[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
            mean += tl.sum(x, axis=1)
        mean = mean / width
    square = tl.zeros((ROWS,), dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = row_exists[:, None] & (column < width)[None, :]
        x = tl.load(x_ptr + rows[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.where(inside, x - mean[:, None], 0.0)
        square += tl.sum(x * x, axis=1)
    return mean, 1.0 / tl.sqrt(square / width + epsilon)


@triton.jit
def _linear(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    residual_ptr,
    gain_ptr,
    shift_ptr,
    residual_gain_ptr,
    residual_shift_ptr,
    row_count,
    width,
    outputs,
    epsilon,
    residual_epsilon,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RESIDUAL_NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.arange(0, ROWS)
    row_exists = rows < row_count
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column_exists = column < outputs
    if NORM > 0:
        mean, scale = _statistics(x_ptr, rows, row_exists, width, epsilon, NORM, ROWS, BLOCK)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        k = begin + tl.arange(0, BLOCK)
        inside = k < width
        weight = tl.load(
            weight_ptr + column[:, None] * width + k[None, :],
            mask=column_exists[:, None] & inside[None, :],
            other=0.0,
        )
        x = tl.load(x_ptr + rows[:, None] * width + k[None, :], mask=row_exists[:, None] & inside[None, :], other=0.0)
        if NORM > 0:
            gain = tl.load(gain_ptr + k, mask=inside, other=0.0).to(tl.float32)
            x_normed = (x.to(tl.float32) - mean[:, None]) * scale[:, None] * gain[None, :]
            if NORM == 1:
                x_normed += tl.load(shift_ptr + k, mask=inside, other=0.0).to(tl.float32)[None, :]
            x = x_normed.to(weight.dtype)
        total = tl.dot(x, tl.trans(weight), total)
    if BIAS:
        total += tl.load(bias_ptr + column, mask=column_exists, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == 2:
        total = tl.maximum(total, 0.0)
        total = total * total
    elif ACTIVATION == 3:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == 4:
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        total = total * tl.sigmoid(2.0 * inner)  # ½ (1 + tanh z) = σ(2z)
    elif ACTIVATION == 5:
        total = total * tl.sigmoid(total)
    out = rows[:, None] * outputs + column[None, :]
    exists = row_exists[:, None] & column_exists[None, :]
    if RESIDUAL:
        residual = tl.load(residual_ptr + out, mask=exists, other=0.0).to(tl.float32)
        if RESIDUAL_NORM > 0:
            mean, scale = _statistics(
                residual_ptr, rows, row_exists, outputs, residual_epsilon, RESIDUAL_NORM, ROWS, BLOCK
            )
            gain = tl.load(residual_gain_ptr + column, mask=column_exists, other=0.0).to(tl.float32)
            residual = (residual - mean[:, None]) * scale[:, None] * gain[None, :]
            if RESIDUAL_NORM == 1:
                residual += tl.load(residual_shift_ptr + column, mask=column_exists, other=0.0).to(tl.float32)[None, :]
        total += residual
    tl.store(y_ptr + out, total.to(y_ptr.dtype.element_ty), mask=exists)
