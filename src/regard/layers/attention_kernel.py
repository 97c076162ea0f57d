"""Which kernel computes attention: torch's own choice, or cuDNN's where that is faster.

torch takes FlashAttention 2 for causal attention. On Hopper cuDNN's kernel is about twice as fast, forward and
backward, but adds up gradients in no fixed order. So it is asked for from outside, while a gradient is computed that
need not have the same bytes every time (`Hardware.cudnn_attention`).

Where several sequences share a row, their mask is what makes the difference. torch's kernel wants it as numbers to add,
and its backward pass is slow on short rows. FlexAttention reads the mask as it is; but it is fast only where it is
compiled. `MASKED` says which is taken.

Shapes: B rows · H heads · T query positions · S key positions · K key width of a head · V value width of a head
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

FEWEST_POSITIONS = 512  # of a row: below, the kernels take about as long as each other
WIDTHS = (64, 128)  # of a head
MASKED: Literal["torch", "flex", "written out"] = "torch"

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
    if mask is not None and not dropout and torch.compiler.is_compiling() and q_BHTK.is_cuda:
        if MASKED == "flex" and _flex_can(q_BHTK, v_BHSV):
            return flex(q_BHTK, k_BHSK, v_BHSV, mask, grouped)
        if MASKED == "written out" and not grouped:
            return written_out(q_BHTK, k_BHSK, v_BHSV, mask)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, mask, dropout, causal, enable_gqa=grouped)


def flex(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask_B1TS: Tensor, grouped: bool = False) -> Tensor:
    """A kernel that torch generates for this mask, when it compiles."""

    def seen(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(mask_B1TS[row, 0, query, key], score, -torch.inf)

    y_BHTV: Tensor = flex_attention(q_BHTK, k_BHSK, v_BHSV, score_mod=seen, enable_gqa=grouped)
    return y_BHTV


def written_out(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Tensor) -> Tensor:
    """The formula; compiled, all between the two products is one kernel."""
    scores_BHTS = (q_BHTK @ k_BHSK.mT).float() * q_BHTK.shape[-1] ** -0.5
    p_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf).softmax(-1)
    return p_BHTS.to(v_BHSV.dtype) @ v_BHSV


def _flex_can(q_BHTK: Tensor, v_BHSV: Tensor) -> bool:
    """Heads of a power of two, which tiles are made of."""
    return all(width >= 16 and width & (width - 1) == 0 for width in (q_BHTK.shape[-1], v_BHSV.shape[-1]))


def _cudnn_can(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor) -> bool:
    width, positions = q_BHTK.shape[-1], q_BHTK.shape[-2]
    half = all(x.dtype in (torch.bfloat16, torch.float16) for x in (q_BHTK, k_BHSK, v_BHSV))
    same = q_BHTK.shape == k_BHSK.shape == v_BHSV.shape
    return half and same and width in WIDTHS and positions >= FEWEST_POSITIONS
