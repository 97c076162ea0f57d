"""Products with weights: y = x Wᵀ, where W is rounded and its gradient is not.

Weights are kept in full precision. Those of all blocks are rounded at once at every step, to half precision here, or to
eight bits (`eight_bits.py`). The product that is the gradient of one is written in full precision by the kernel that
computes it.

Shapes: B rows · T positions, N of all rows · C columns that a product reads · X columns that it gives
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Operand(NamedTuple):
    """What a product reads: in half precision, and where that was written in the same pass, in eight bits."""

    half: Tensor
    eight: Tensor | None = None


class Product(NamedTuple):
    """What a product gives."""

    half: Tensor
    gradient: Tensor | None = None  # no numbers: stands for where the gradient in eight bits goes
    factor: float = 1.0  # of that gradient


@dataclass(frozen=True)
class Rounded(ABC):
    """The weights of a layer, as products read them."""

    bias_X: Tensor | None  # in half precision
    half: torch.dtype  # what products give
    factor: float | None  # of gradients in eight bits; None: those in half precision are read

    @abstractmethod
    def read(self, x: Operand) -> Tensor:
        """x as the product reads it."""

    @abstractmethod
    def product(self, x_BTC: Tensor, biased: bool = False) -> Tensor:
        """x Wᵀ, or x Wᵀ + b: [B, T, X]."""

    @abstractmethod
    def of_input(self, dy_BTX: Tensor, eight_BTX: Tensor | None) -> Tensor:
        """The gradient of x from that of y, which may also be there in eight bits: [B, T, C]."""

    @abstractmethod
    def part(self, rows: slice) -> Rounded:
        """Only some of the columns that the product gives."""


@dataclass(frozen=True)
class Half(Rounded):
    matrix_XC: Tensor

    def read(self, x: Operand) -> Tensor:
        return x.half.detach().to(self.half)

    def product(self, x_BTC: Tensor, biased: bool = False) -> Tensor:
        return F.linear(x_BTC, self.matrix_XC, self.bias_X if biased else None)

    def of_input(self, dy_BTX: Tensor, eight_BTX: Tensor | None) -> Tensor:
        return dy_BTX @ self.matrix_XC

    def part(self, rows: slice) -> Rounded:
        bias_X = self.bias_X[rows] if self.bias_X is not None else None
        return Half(bias_X, self.half, None, self.matrix_XC[rows])


def in_half(layers: Sequence[nn.Linear], half: torch.dtype) -> dict[nn.Module, Rounded]:
    """The weights of all layers that products read in this pass."""
    matrices = halved([layer.weight for layer in layers], half)
    return {
        layer: Half(bias_X, half, None, matrix_XC)
        for layer, matrix_XC, bias_X in zip(layers, matrices, halved_biases(layers, half), strict=True)
    }


def halved(tensors: Sequence[Tensor], half: torch.dtype) -> list[Tensor]:
    """All of them in one kernel."""
    halves = [torch.empty_like(tensor, dtype=half, requires_grad=False) for tensor in tensors]
    if halves:
        with torch.no_grad():
            torch._foreach_copy_(halves, list(tensors))
    return halves


def halved_biases(layers: Sequence[nn.Linear], half: torch.dtype) -> list[Tensor | None]:
    """None where a layer has none."""
    halves = iter(halved([layer.bias for layer in layers if layer.bias is not None], half))
    return [next(halves) if layer.bias is not None else None for layer in layers]


def product(x: Operand, weight_XC: Tensor, rounded: Rounded) -> Product:
    """[B, T, C] to [B, T, X]."""
    y_BTX, *gradient = _Product.apply(x.half, rounded.read(x), weight_XC, rounded)
    return Product(y_BTX, gradient[0], rounded.factor) if rounded.factor is not None else Product(y_BTX)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BTC: Tensor, read_BTC: Tensor, weight_XC: Tensor, rounded: Rounded) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.rounded, ctx.types = rounded, (x_BTC.dtype, weight_XC.dtype)
        ctx.save_for_backward(read_BTC if rounded.factor is None else x_BTC.to(rounded.half))
        with torch.autocast(x_BTC.device.type, enabled=False):
            y_BTX = rounded.product(read_BTC)
        if rounded.factor is None:
            return (y_BTX,)
        return y_BTX, y_BTX.new_empty((), dtype=torch.float8_e5m2).expand(y_BTX.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy_BTX: Tensor, eight_BTX: Tensor | None = None) -> tuple[Tensor | None, ...]:
        (x_BTC,), (type_of_x, type_of_weight) = ctx.saved_tensors, ctx.types
        of_x, of_weight = None, None
        if ctx.needs_input_grad[0]:
            with torch.autocast(x_BTC.device.type, enabled=False):
                of_x = ctx.rounded.of_input(dy_BTX, eight_BTX).to(type_of_x)
        if ctx.needs_input_grad[2]:
            of_weight = gradient_of_weight(dy_BTX.flatten(0, -2), x_BTC.flatten(0, -2), type_of_weight)
        return of_x, None, of_weight, None


def gradient_of_weight(dy_NX: Tensor, x_NC: Tensor, dtype: torch.dtype) -> Tensor:
    """[X, C], in the precision of the weight."""
    with torch.autocast(x_NC.device.type, enabled=False):
        if x_NC.is_cuda and dtype == torch.float32 and x_NC.dtype in (torch.bfloat16, torch.float16):
            return torch.mm(dy_NX.T, x_NC, out_dtype=dtype)
        return (dy_NX.T @ x_NC).to(dtype)
