"""Feed-forward: each position on its own, expanded and contracted.

    FFN(x)   = act(x W₁ + b₁) W₂ + b₂
    gated(x) = (act(x W₁ + b₁) ⊙ (x V + c)) W₂ + b₂

Shapes: B rows · T positions · D model width · F inner width
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    def __init__(self, settings: ModelSettings):
        super().__init__()
        self.activation, self.activation_name = ACTIVATIONS[settings.activation], settings.activation
        self.gated = settings.gated
        bias = settings.feedforward_bias
        self.expand = nn.Linear(settings.width, settings.feedforward * (2 if settings.gated else 1), bias=bias)
        self.contract = nn.Linear(settings.feedforward, settings.width, bias=bias)
        self.dropout = nn.Dropout(settings.feedforward_dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activate(self.expand(x_BTD))))

    def activate(self, inner: Tensor) -> Tensor:
        if not self.gated:
            return self.activation(inner)
        gate, value = inner.chunk(2, dim=-1)
        return self.activation(gate) * value
