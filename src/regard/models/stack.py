"""Through a stack of blocks and the norm after them.

Shapes: B rows · T positions · D model width
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RegardError
from regard.layers.context import Context

FUSED = True  # whether training on a GPU may take the kernels of `layers/fused`

_eight_bits = False  # asked for


@contextmanager
def eight_bits(wanted: bool) -> Iterator[None]:
    """Products of blocks in eight bits, in training, for as long as this lasts."""
    global _eight_bits
    before, _eight_bits = _eight_bits, wanted
    try:
        yield
    finally:
        _eight_bits = before


def through(blocks: nn.ModuleList, norm: nn.Module, x_BTD: Tensor, context: Context) -> Tensor:
    """What the last block makes of vectors that stand for anything: [B, T, D]."""
    if fused := _fused(blocks, norm, x_BTD):
        read: Tensor = fused.read(blocks, norm, x_BTD, context, _eight_bits)
        return read
    if _eight_bits and torch.is_grad_enabled():
        raise RegardError(
            'This model cannot be trained with system.precision = "float8".',
            "Only blocks with kernels of their own have products in eight bits, and on this machine these have none.",
            'Set system.precision to "auto".',
        )
    for block in blocks:
        x_BTD = block(x_BTD, context)
    normalised: Tensor = norm(x_BTD)
    return normalised


def _fused(blocks: nn.ModuleList, norm: nn.Module, x_BTD: Tensor) -> Any:
    """The kernels for training on a GPU, where they can do all that the blocks do."""
    if not (FUSED and x_BTD.is_cuda) or any(hasattr(block, "unshard") for block in blocks):
        return None  # these read the weights of all blocks; of a sharded model, only a block itself has its own
    try:
        from regard.layers.fused import stack
    except ImportError:  # without Triton
        return None
    return stack if stack.fits(blocks, norm, x_BTD) else None
