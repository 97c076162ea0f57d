"""Which kernel computes attention: torch's own choice, or cuDNN's where that is faster.

torch takes FlashAttention 2 for causal attention. On Hopper cuDNN's kernel is about twice as fast, forward and
backward, but adds up gradients in no fixed order. So it is asked for from outside, while a gradient is computed that
need not have the same bytes every time (`Hardware.cudnn_attention`).

Where several sequences share a row, a mask keeps them apart. torch wants it as numbers to add, for every head, and goes
over all keys; on a GPU, `fused/short_attention.py` does not. It is also the faster one for short rows.

Shapes: B rows · H heads · T query positions · S key positions · K key width of a head · V value width of a head
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

FEWEST_POSITIONS = 512  # of a row: below, the kernels take about as long as each other
WIDTHS = (64, 128)  # of a head
SHORT = True  # whether short rows, and masks, may be left to the kernel of `fused`

_cudnn = False  # asked for: a module's variable, so that compiled code knows it


@contextmanager
def cudnn_attention(wanted: bool) -> Iterator[None]:
    """cuDNN's kernel, where it can be used, for as long as this lasts."""
    global _cudnn
    before, _cudnn = _cudnn, wanted
    try:
        yield
    finally:
        _cudnn = before


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSV: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    grouped: bool = False,
) -> Tensor:
    """softmax(q kᵀ / √K) v, in one kernel: [B, H, T, V]. `grouped`: several heads of queries share keys and values."""
    if _cudnn and causal and mask is None and not dropout and not grouped and _cudnn_can(q_BHTK, k_BHSK, v_BHSV):
        y_BHTV: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q_BHTK, k_BHSK, v_BHSV, None, True, 0.0, True, False
        )[0]
        return y_BHTV
    if not dropout and not grouped and (fused := _short(q_BHTK, k_BHSK, v_BHSV, mask)):
        of_short: Tensor = fused.attend(q_BHTK, k_BHSK, v_BHSV, mask, causal)
        return of_short
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, mask, dropout, causal, enable_gqa=grouped)


def _cudnn_can(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> bool:
    width, positions = q_BHTK.shape[-1], q_BHTK.shape[-2]
    half = all(x.dtype in (torch.bfloat16, torch.float16) for x in (q_BHTK, k_BHSK, v_BHSV))
    same = q_BHTK.shape == k_BHSK.shape == v_BHSV.shape
    return half and same and width in WIDTHS and positions >= FEWEST_POSITIONS


def _short(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Tensor | None) -> Any:
    """The kernel for a GPU, where it can be used."""
    if not (SHORT and q_BHTK.is_cuda) or torch.compiler.is_compiling():
        return None
    try:
        from regard.layers.fused import short_attention
    except ImportError:  # without Triton
        return None
    return short_attention if short_attention.can(q_BHTK, k_BHSK, v_BHSV, mask) else None
