"""Linear maps in eight bits, for decoding on a CPU: a quarter of the memory to read, and several products at once.

    y ≈ s_x s_w (x̂ Ŵᵀ) + b          x̂, Ŵ: integers from −127 to 127

Every row of x and every row of W has a scale of its own, its largest number: so what is computed for a text does not
depend on those beside it. torch's product takes one scale for all of x; rows are brought to the same largest number
before it, and columns of ±1 with weights 0 see to it that the scale is always the same.

Shapes: N rows · D input width · O output width
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError

MARGIN = 16  # columns of ±1
SMALLEST = 1e-30  # of a row's largest number
PRODUCT = torch.ops.quantized.linear_dynamic.default
NAMES = ("to_qkv", "to_out", "expand", "contract", "to_logits")


class EightBits(nn.Module):
    """A linear map, as decoding uses it."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.cap = getattr(layer, "cap", 0.0)  # of the one to the vocabulary
        self.packed: dict[Any, tuple[Any, Tensor | None]] = {}
        signs = torch.ones(1, MARGIN)
        signs[:, ::2] = -1
        self.signs_1M = signs

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x, slice(0, self.out_features))
        return self.cap * torch.tanh(y / self.cap) if self.cap else y

    def part(self, x: Tensor, rows: slice) -> Tensor:
        """Only some of the outputs."""
        key = rows.start, rows.stop
        if key not in self.packed:
            self.packed[key] = _packed(self.weight[rows]), self.bias[rows] if self.bias is not None else None
        weight, bias = self.packed[key]
        x_ND = x.reshape(-1, self.in_features)
        scale_N1 = x_ND.abs().amax(-1, keepdim=True).clamp_(min=SMALLEST)
        even_NX = torch.cat([x_ND / scale_N1, self.signs_1M.expand(len(x_ND), -1)], dim=1)
        y_NO = PRODUCT(even_NX, weight, True)
        y_NO = y_NO.mul_(scale_N1) if bias is None else torch.addcmul(bias, y_NO, scale_N1)
        return y_NO.view(*x.shape[:-1], -1)


def _packed(weight_OD: Tensor) -> Any:
    wide_OX = nn.functional.pad(weight_OD.detach().float(), (0, MARGIN))
    scale_O = wide_OX.abs().amax(1).clamp(min=SMALLEST).double() / 127
    zero_O = torch.zeros(len(wide_OX), dtype=torch.long)
    with warnings.catch_warnings():  # torch will have another way to make these; as long as there is none, this one
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_channel(wide_OX, scale_O, zero_O, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(quantised, None)


def in_eight_bits(model: Any) -> Any:
    """A copy for decoding: the linear maps of attention and feed-forward, and the one to the vocabulary."""
    if "x86" not in torch.backends.quantized.supported_engines:
        raise RegardError(
            "decoding.int8 does not work on this machine.",
            "torch has no products in eight bits for this kind of processor.",
            "Leave it out.",
        )
    shared = {id(parameter): parameter for parameter in model.parameters()}
    twin = copy.deepcopy(model, shared)  # weights are shared, modules are not
    for module in list(twin.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name in NAMES:
                setattr(module, name, EightBits(child))
    return twin.eval()
