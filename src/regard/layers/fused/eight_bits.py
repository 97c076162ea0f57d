"""Products in eight bits, in training: y = x Wᵀ and the gradient of x. That of W stays in half precision.

Eight bits are floating point too, so a scale decides only which range they cover:

    e4m3    operands and weights    2⁻⁹ to 448         rounded by at most 1/16 of a number
    e5m2    gradients               2⁻¹⁶ to 57,344     rounded by at most 1/8

The range is wide enough for factors that are fixed, but for that of a matrix of weights, which follows from its largest
number. All are powers of two. Nothing is remembered from one step to the next, and no pass over memory searches for a
scale. Numbers beyond the range become the largest; NaN stays NaN.

The kernels that compute what a product reads, or its gradient, write it in eight bits beside half precision, which the
gradient of W needs. Autograd hands over one gradient for each tensor. So a product comes with a second tensor, which
holds no numbers: its gradient is that of the product in eight bits.

Shapes: B rows · T positions · C columns that a product reads · X columns that it gives
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.layers.fused.product import Operand, Rounded, halved_biases

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ALIGNED = 16  # both sides of a matrix must be a multiple of this
# Operands are vectors after a norm, activations, or what attention has gathered, which is small while it looks
# everywhere at once.
OPERANDS = 2.0
# The loss is a mean, so gradients are about as small as there are many positions. In a small language model, times
# their number, the largest was 2³, at the start of training. Medians were from 2⁻³ there to 2⁻⁸ later for what a part
# adds, 2⁻⁷ to 2⁻¹² before activations, 2⁻¹¹ to 2⁻¹⁸ for queries and keys. This leaves seven powers of two above: what
# is cut off does more harm than what becomes zero.
GRADIENTS = 2.0**6


@dataclass(frozen=True)
class Eight(Rounded):
    """A matrix in eight bits, as it is and turned round: products only read along rows."""

    straight_XC: Tensor
    turned_CX: Tensor
    scale: Tensor  # what products are multiplied with afterwards; one number on the device, as the next two
    of_operands: Tensor
    of_gradients: Tensor

    def read(self, x: Operand) -> Tensor:
        return x.eight if x.eight is not None else to_eight_bits(x.half.detach(), E4M3, OPERANDS)

    def product(self, x_BTC: Tensor, biased: bool = False) -> Tensor:
        y = torch._scaled_mm(
            x_BTC.flatten(0, -2), self.straight_XC.t(), self.of_operands, self.scale, self.bias_X if biased else None,
            out_dtype=self.half, use_fast_accum=True,
        )  # fmt: skip
        return y.view(*x_BTC.shape[:-1], -1)

    def of_input(self, dy_BTX: Tensor, eight_BTX: Tensor | None) -> Tensor:
        assert self.factor is not None
        if eight_BTX is None:
            eight_BTX = to_eight_bits(dy_BTX, E5M2, self.factor)
        dx = torch._scaled_mm(
            eight_BTX.flatten(0, -2), self.turned_CX.t(), self.of_gradients, self.scale,
            out_dtype=self.half, use_fast_accum=False,
        )  # fmt: skip
        return dx.view(*dy_BTX.shape[:-1], -1)

    def part(self, rows: slice) -> Rounded:
        straight_XC, turned_CX = self.straight_XC[rows].contiguous(), self.turned_CX[:, rows].contiguous()
        bias_X = self.bias_X[rows] if self.bias_X is not None else None
        return replace(self, bias_X=bias_X, straight_XC=straight_XC, turned_CX=turned_CX)


def in_eight_bits(layers: Sequence[nn.Linear], half: torch.dtype, positions: int) -> dict[nn.Module, Rounded]:
    """The weights of all layers that products read in this pass, over so many positions."""
    weights = [layer.weight.detach() for layer in layers]
    for weight_XC in weights:
        if any(side % ALIGNED for side in weight_XC.shape):
            raise RegardError(
                'This model cannot be trained with system.precision = "float8".',
                f"It has a matrix of {' × '.join(map(str, weight_XC.shape))}, and both must be multiples of {ALIGNED}.",
                'Set system.precision to "bfloat16", or change the widths of the model.',
            )
    device, factor = weights[0].device, gradient_factor(positions)
    scales = [torch.full((), 1 / each, dtype=torch.float32, device=device) for each in (OPERANDS, factor)]
    largest, biases = torch._foreach_norm(weights, torch.inf), halved_biases(layers, half)
    return {
        layer: Eight(bias_X, half, factor, *_cast_weight(*each), *scales)
        for layer, bias_X, *each in zip(layers, biases, weights, largest, strict=True)
    }


def gradient_factor(positions: int) -> float:
    """A power of two."""
    return GRADIENTS * 2.0 ** (positions - 1).bit_length()


def to_eight_bits(x: Tensor, dtype: torch.dtype, factor: float) -> Tensor:
    """x · factor in eight bits: one pass over memory."""
    if x.is_cuda:
        from regard.layers.fused import casts

        return casts.cast(x, dtype, factor)
    most = torch.finfo(dtype).max
    return (x.float() * factor).clamp(-most, most).to(dtype)


def _cast_weight(weight_XC: Tensor, largest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As it is and turned round; and 1 / the factor, with which the largest number is between 128 and 256."""
    if weight_XC.is_cuda:
        from regard.layers.fused import casts

        return casts.cast_weight(weight_XC, largest)
    factor = torch.ldexp(torch.ones(()), 8 - torch.frexp(largest.float()).exponent)
    straight_XC = (weight_XC.float() * factor).to(E4M3)
    return straight_XC, straight_XC.T.contiguous(), 1 / factor
