"""A block's step on a GPU, in few kernels: each takes longer to begin than to compute.

    y = residual + act(norm(x) Wᵀ + b)                pre-norm
    y = norm(residual) + act(norm(x) Wᵀ + b)          post-norm: what was added is normalised by whoever reads it next

For a handful of rows that is one kernel: a program makes a few columns of y, reads their weights at once, and
normalises all of x for itself, which is little beside the weights. For more rows, products are left to cuBLAS, and a
sum and the norm after it are one kernel.

Shapes: N rows · D input width · O output width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.block import Block, BlockState
from regard.layers.feedforward import ACTIVATIONS

FEW_ROWS = 8
WIDEST = 4096  # inputs that a program reads at once
KINDS = {"": 0, "relu": 1, "relu2": 2, "gelu": 3, "gelu-tanh": 4, "silu": 5}
NO_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2


def step(block: Block, x_ND: Tensor, state: BlockState) -> Tensor:
    """One position further: [N, D]. Same numbers as `block.step`, up to rounding."""
    pre, mixer = block.pre_norm, block.mixer
    own: Any = state.mixer
    across: Any = state.memory
    # In post-norm, what flows from part to part is not yet normalised: `due` is still to be applied.
    stream = _Stream(x_ND)
    qkv_NX = stream.read(mixer.to_qkv, block.mixer_norm if pre else None)
    found_NX = own.attend(
        *mixer.in_heads(*qkv_NX[:, None].split(mixer.widths, dim=-1), own.places.positions_N[:, None])
    )
    due = None
    next_norm = block.cross_norm if block.cross is not None else block.feedforward_norm
    stream.add(found_NX, mixer.to_out, due, next_norm if pre else block.mixer_norm)
    due = None if pre else block.mixer_norm
    if block.cross is not None:
        q_NX = stream.read(block.cross.to_qkv, block.cross_norm if pre else due, outputs=block.cross.widths[0])
        found_NX = across.attend(block.cross.split_queries(q_NX[:, None]))
        stream.add(found_NX, block.cross.to_out, due, block.feedforward_norm if pre else block.cross_norm)
        due = None if pre else block.cross_norm
    if block.feedforward is not None:
        part = block.feedforward
        read = block.feedforward_norm if pre else due
        inner_NF = stream.read(part.expand, read, activation="" if part.gated else part.activation_name)
        inner_NF = part.activate(inner_NF) if part.gated else inner_NF
        stream.add(inner_NF, part.contract, due, None if pre else block.feedforward_norm)
        due = None if pre else block.feedforward_norm
    return stream.x_ND if due is None else stream.normed(due)


class _Stream:
    """What the parts of a block read from and add to."""

    def __init__(self, x_ND: Tensor):
        self.x_ND = x_ND.contiguous()
        self.few = len(x_ND) <= FEW_ROWS
        self.known: dict[int, Tensor] = {}  # norms that have been computed of x

    def read(self, layer: nn.Linear, norm: nn.Module | None, activation: str = "", outputs: int = 0) -> Tensor:
        """act(norm(x) Wᵀ + b): [N, O]. `outputs`: only the first of them."""
        if self.few and self.x_ND.shape[1] <= WIDEST:
            return _few_rows(self.x_ND, layer, norm=norm, activation=activation, outputs=outputs)
        x_ND = self.normed(norm) if norm is not None else self.x_ND
        if activation == "gelu-tanh" and layer.bias is not None:
            return torch._addmm_activation(layer.bias, x_ND, layer.weight.T, use_gelu=True)
        if outputs:
            bias = layer.bias[:outputs] if layer.bias is not None else None
            return F.linear(x_ND, layer.weight[:outputs], bias)
        y_NO = layer(x_ND)
        return ACTIVATIONS[activation](y_NO) if activation else y_NO

    def add(self, x_NX: Tensor, layer: nn.Linear, due: nn.Module | None, after: nn.Module | None) -> None:
        """x ← due(x) + the linear map of what a part has found. `after`: the norm that it will be read through."""
        if self.few and x_NX.shape[1] <= WIDEST:
            self.x_ND = _few_rows(x_NX.contiguous(), layer, residual=self.x_ND, residual_norm=due)
            self.known = {}
            return
        residual = self.x_ND if due is None else self.normed(due)
        self.x_ND, normed_ND = add_and_norm(residual, layer(x_NX), after)
        self.known = {id(after): normed_ND} if after is not None else {}

    def normed(self, norm: Any) -> Tensor:
        if id(norm) not in self.known:
            self.known[id(norm)] = add_and_norm(self.x_ND, None, norm)[1]
        return self.known[id(norm)]


# ---------------------------------------------------------------- a sum and its norm


def add_and_norm(x_ND: Tensor, y_ND: Tensor | None, norm: Any) -> tuple[Tensor, Tensor]:
    """x + y, and that normalised; without a norm, the sum twice."""
    if norm is None:
        assert y_ND is not None
        total = x_ND + y_ND
        return total, total
    width = x_ND.shape[1]
    total_ND = torch.empty_like(x_ND) if y_ND is not None else x_ND
    normed_ND = torch.empty_like(x_ND)
    block = triton.next_power_of_2(width)
    _add_and_norm[(len(x_ND),)](
        x_ND,
        y_ND if y_ND is not None else x_ND,
        total_ND,
        normed_ND,
        *_gains(norm, x_ND),
        width,
        norm.eps or 0.0,
        ADDS=y_ND is not None,
        NORM=_kind(norm),
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )
    return total_ND, normed_ND


@triton.jit
def _add_and_norm(
    x_ptr,
    y_ptr,
    total_ptr,
    normed_ptr,
    gain_ptr,
    shift_ptr,
    width,
    epsilon,
    ADDS: tl.constexpr,
    NORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(gain_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        x += tl.load(y_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
        rounded = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row + column, rounded, mask=inside)
        x = rounded.to(tl.float32)
    if NORM == 1:
        x = tl.where(inside, x - tl.sum(x) / width, 0.0)
    normed = x / tl.sqrt(tl.sum(x * x) / width + epsilon) * gain
    if NORM == 1:
        normed += tl.load(shift_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed_ptr + row + column, normed.to(normed_ptr.dtype.element_ty), mask=inside)


def _kind(norm: Any) -> int:
    if norm is None:
        return NO_NORM
    return LAYER_NORM if isinstance(norm, nn.LayerNorm) else RMS_NORM


def _gains(norm: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    if norm is None:
        return like, like
    return norm.weight, norm.bias if isinstance(norm, nn.LayerNorm) else norm.weight


# ---------------------------------------------------------------- all in one, for few rows


def _few_rows(
    x_ND: Tensor,
    layer: nn.Linear,
    *,
    norm: nn.Module | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    residual_norm: nn.Module | None = None,
    outputs: int = 0,
) -> Tensor:
    rows, width = x_ND.shape
    outputs = outputs or layer.out_features
    y_NO = x_ND.new_empty(rows, outputs)
    block = triton.next_power_of_2(width)
    columns = max(1, min(8, 8192 // block))
    _linear[(triton.cdiv(outputs, columns),)](
        x_ND,
        layer.weight,
        layer.bias if layer.bias is not None else x_ND,
        y_NO,
        residual if residual is not None else x_ND,
        *_gains(norm, x_ND),
        *_gains(residual_norm, x_ND),
        width,
        outputs,
        getattr(norm, "eps", 0.0) or 0.0,
        getattr(residual_norm, "eps", 0.0) or 0.0,
        BIAS=layer.bias is not None,
        NORM=_kind(norm),
        RESIDUAL=residual is not None,
        RESIDUAL_NORM=_kind(residual_norm),
        ACTIVATION=KINDS[activation],
        ROWS=rows,
        COLUMNS=columns,
        BLOCK=block,
        OUT_BLOCK=triton.next_power_of_2(outputs) if residual_norm is not None else 1,
        num_warps=4,
    )
    return y_NO


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
    OUT_BLOCK: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    exists = column < outputs
    k = tl.arange(0, BLOCK)
    inside = k < width
    # All weights of these columns at once: nothing waits for anything.
    weight = tl.load(
        weight_ptr + column[:, None] * width + k[None, :], mask=exists[:, None] & inside[None, :], other=0.0
    )
    if NORM > 0:
        gain = tl.load(gain_ptr + k, mask=inside, other=0.0).to(tl.float32)
    if NORM == 1:
        shift = tl.load(shift_ptr + k, mask=inside, other=0.0).to(tl.float32)
    for row in tl.static_range(ROWS):
        x = tl.load(x_ptr + row * width + k, mask=inside, other=0.0).to(tl.float32)
        if NORM == 1:
            x = tl.where(inside, x - tl.sum(x) / width, 0.0)
        if NORM > 0:
            x = x / tl.sqrt(tl.sum(x * x) / width + epsilon) * gain
        if NORM == 1:
            x += shift
        if NORM > 0:
            x = x.to(weight.dtype).to(tl.float32)
        total = tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
        if BIAS:
            total += tl.load(bias_ptr + column, mask=exists, other=0.0).to(tl.float32)
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
        if RESIDUAL:
            residual = tl.load(residual_ptr + row * outputs + column, mask=exists, other=0.0).to(tl.float32)
            if RESIDUAL_NORM > 0:
                at = tl.arange(0, OUT_BLOCK)
                whole = tl.load(residual_ptr + row * outputs + at, mask=at < outputs, other=0.0).to(tl.float32)
                if RESIDUAL_NORM == 1:
                    mean = tl.sum(whole) / outputs
                    residual -= mean
                    whole = tl.where(at < outputs, whole - mean, 0.0)
                residual = residual / tl.sqrt(tl.sum(whole * whole) / outputs + residual_epsilon)
                residual *= tl.load(residual_gain_ptr + column, mask=exists, other=0.0).to(tl.float32)
                if RESIDUAL_NORM == 1:
                    residual += tl.load(residual_shift_ptr + column, mask=exists, other=0.0).to(tl.float32)
            total += residual
        tl.store(y_ptr + row * outputs + column, total.to(y_ptr.dtype.element_ty), mask=exists)
