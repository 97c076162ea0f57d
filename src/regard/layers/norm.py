"""Normalisation: every vector brought to the same size.

layer   (x − mean) / √(variance + ε) · g + b
rms      x / √(mean of squares + ε) · g
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.settings import ModelSettings


def make_norm(settings: ModelSettings, width: int = 0) -> nn.Module:
    """Of vectors as wide as the model, or of this width."""
    kind = RMSNorm if settings.norm_kind == "rms" else nn.LayerNorm
    return kind(width or settings.width, eps=settings.norm_epsilon)


def make_head_norm(settings: ModelSettings, width: int) -> nn.Module:
    """Of the queries or keys of a head, where they are normalised."""
    return RMSNorm(width, eps=settings.norm_epsilon) if settings.query_key_norm else nn.Identity()


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        # In half precision the gain is rounded too: the fused kernel takes only one type.
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)
