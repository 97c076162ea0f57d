"""Normalisation: every vector brought to the same size.

layer   (x − mean) / √(variance + ε) · g + b
rms      x / √(mean of squares + ε) · g
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings


def make_norm(settings: ModelSettings) -> nn.Module:
    return RMSNorm(settings.width) if settings.norm_kind == "rms" else nn.LayerNorm(settings.width)


class RMSNorm(nn.RMSNorm):
    def __init__(self, width: int):
        super().__init__(width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        # In half precision the gain is rounded too: the fused kernel takes only one type.
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)
