"""Through a stack of blocks and the norm after them.

Shapes: B rows · T positions · D model width
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.layers.context import Context

FUSED = True  # whether training on a GPU may take the kernels of `layers/fused`


def through(blocks: nn.ModuleList, norm: nn.Module, x_BTD: Tensor, context: Context) -> Tensor:
    """What the last block makes of vectors that stand for anything: [B, T, D]."""
    if fused := _fused(blocks, norm, x_BTD):
        read: Tensor = fused.read(blocks, norm, x_BTD, context)
        return read
    for block in blocks:
        x_BTD = block(x_BTD, context)
    normalised: Tensor = norm(x_BTD)
    return normalised


def _fused(blocks: nn.ModuleList, norm: nn.Module, x_BTD: Tensor) -> Any:
    """The kernels for training on a GPU, where they can do all that the blocks do."""
    if not (FUSED and x_BTD.is_cuda):
        return None
    try:
        from regard.layers.fused import stack
    except ImportError:  # without Triton
        return None
    return stack if stack.fits(blocks, norm, x_BTD) else None
