"""Attention in shifted windows: a patch sees the patches of its window, at a cost that grows with the grid only.

    y = softmax(Q Kᵀ / √K + bias) V        in each window of M patches
    bias[i, j] = table[row(i) − row(j), column(i) − column(j)]

In every second block the windows lie half a window further down and right, so that what was parted before now meets.
For that the grid is rolled, which brings its two ends into one window. They were not neighbours, and a mask keeps
them apart. One row of 8 patches, in windows of 4:

    plain            a a a a │ b b b b
    shifted by 2     a a │ b b b b │ c c        rolled:  b b b b │ c c a a        c and a do not meet

A grid may have a side no longer than a window. In the original code (`square`) windows are then squares of that side,
and none are shifted. In timm's (`sides`) each direction is on its own: where a window covers the grid, it is cut there
and not shifted. Grids as high as they are wide come out the same.

Shapes: B images · R rows and C columns of the grid · T = R·C patches · W windows · M patches of a window ·
        H heads · X = W·H · K width of a head · D model width
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention_trace import AttentionTrace
from regard.layers.context import Context
from regard.layers.mixer import Mixer
from regard.layers.norm import make_head_norm
from regard.settings import ModelSettings


class WindowAttention(Mixer):
    """Multi-head attention inside windows of `window` × `window` patches; smaller where the grid is."""

    title = "window self-attention"

    def __init__(
        self,
        settings: ModelSettings,
        grid: tuple[int, int],
        window: int,
        shifted: bool,
        narrow: Literal["square", "sides"] = "square",
    ):
        super().__init__(settings)
        self.grid = grid
        sides = grid if narrow == "sides" else (min(grid), min(grid))
        self.window = (min(window, sides[0]), min(window, sides[1]))
        by = window // 2 if shifted else 0
        self.shift = (by if sides[0] > window else 0, by if sides[1] > window else 0)
        self.heads = settings.heads
        self.dropout = settings.attention_dropout
        self.to_qkv = nn.Linear(settings.width, 3 * settings.width, bias=settings.bias)
        self.to_out = nn.Linear(settings.width, settings.width, bias=settings.bias)
        self.query_norm = make_head_norm(settings, settings.width // settings.heads)
        self.key_norm = make_head_norm(settings, settings.width // settings.heads)
        # Of the full window even where a smaller one is used: so the same weights fit any resolution.
        self.table = nn.Parameter(nn.init.trunc_normal_(torch.empty((2 * window - 1) ** 2, settings.heads), std=0.02))
        self.index_MM: Tensor
        self.apart_WMM: Tensor
        self.register_buffer("index_MM", _table_index(self.window, window), persistent=False)
        self.register_buffer("apart_WMM", self._roll_mask(), persistent=False)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        """[B, T, D], patches in raster order. Who sees whom is fixed by the grid: the context is not asked."""
        x_BRCD = self._roll(x_BTD.unflatten(1, self.grid), back=False)
        q_BXMK, k_BXMK, v_BXMK = (self._cut(x, self.heads) for x in self.to_qkv(x_BRCD).chunk(3, dim=-1))
        # Each window's heads count as heads of the image. The bias is the same for all images, so it broadcasts over
        # them; with windows as rows of the batch it would have to be copied for every image.
        bias_1XMM = self.bias().to(q_BXMK.dtype).flatten(0, 1)[None]
        dropout = self.dropout if self.training else 0.0
        y_BXMK = F.scaled_dot_product_attention(
            self.query_norm(q_BXMK), self.key_norm(k_BXMK), v_BXMK, bias_1XMM, dropout
        )
        y_BRCD = self._roll(self._join(y_BXMK), back=True)
        return self.to_out(y_BRCD.flatten(1, 2))

    def trace(self, x_BTD: Tensor, context: Context) -> AttentionTrace:
        """Written out over the whole grid, without cutting or rolling it: no weight passes between windows."""
        q_BHTK, k_BHTK, v_BHTK = (
            part_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part_BTD in self.to_qkv(x_BTD).chunk(3, dim=-1)
        )
        q_BHTK, k_BHTK = self.query_norm(q_BHTK), self.key_norm(k_BHTK)
        scores_BHTT = q_BHTK @ k_BHTK.transpose(-2, -1) / math.sqrt(q_BHTK.shape[-1]) + self.bias_over_grid()
        return AttentionTrace.from_scores(q_BHTK, k_BHTK, v_BHTK, scores_BHTT, self.to_out)

    def no_decay(self) -> Iterable[nn.Parameter]:
        """The biases for distances."""
        return [self.table]

    def bias(self) -> Tensor:
        """What is added to the scores: learned for each distance, −∞ where two patches may not meet: [W, H, M, M]."""
        bias_HMM = self.table[self.index_MM].permute(2, 0, 1)
        return bias_HMM.masked_fill(self.apart_WMM[:, None], -torch.inf)

    def bias_over_grid(self) -> Tensor:
        """The same between all patches of the grid, −∞ also from window to window: [H, T, T]."""
        rows, columns = self.grid
        numbers_1RC1 = torch.arange(rows * columns, device=self.table.device).view(1, rows, columns, 1)
        here_WM = self._cut(self._roll(numbers_1RC1, back=False), heads=1)[0, ..., 0]
        bias_WHMM = self.bias()
        bias_TTH = bias_WHMM.new_full((rows * columns, rows * columns, self.heads), -torch.inf)
        bias_TTH[here_WM[:, :, None], here_WM[:, None, :]] = bias_WHMM.permute(0, 2, 3, 1)
        return bias_TTH.permute(2, 0, 1)

    def _roll_mask(self) -> Tensor:
        """True between patches of a window that only rolling brought together: [W, M, M]."""
        down_R, right_C = (torch.arange(side) >= side - by for side, by in zip(self.grid, self.shift, strict=True))
        piece_RC = 2 * down_R[:, None] + right_C.int()  # which of its sides a patch was rolled across, if any
        piece_WM = self._cut(piece_RC[None, ..., None], heads=1)[0, ..., 0]
        return piece_WM[:, :, None] != piece_WM[:, None, :]

    def _roll(self, x_BRCD: Tensor, back: bool) -> Tensor:
        down, right = self.shift
        if not (down or right):
            return x_BRCD
        return x_BRCD.roll((down, right) if back else (-down, -right), dims=(1, 2))

    def _cut(self, x_BRCD: Tensor, heads: int) -> Tensor:
        """The grid as windows with their heads: [B, X, M, K]."""
        high, wide = self.window
        x = x_BRCD.unflatten(3, (heads, -1)).unflatten(2, (-1, wide)).unflatten(1, (-1, high))
        # [B, windows down, high, windows across, wide, H, K]
        return x.permute(0, 1, 3, 5, 2, 4, 6).flatten(1, 3).flatten(2, 3)

    def _join(self, y_BXMK: Tensor) -> Tensor:
        """The windows as a grid again: [B, R, C, D]."""
        windows_down = self.grid[0] // self.window[0]
        y = y_BXMK.unflatten(2, self.window).unflatten(1, (windows_down, -1, self.heads))
        # [B, windows down, windows across, H, high, wide, K]
        return y.permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4).flatten(1, 2)


def _table_index(used: tuple[int, int], window: int) -> Tensor:
    """Which entry of the table belongs to two patches of a window: [M, M]. A small window uses the table's middle."""
    row_M, column_M = torch.cartesian_prod(torch.arange(used[0]), torch.arange(used[1])).unbind(1)
    down_MM = row_M[:, None] - row_M[None, :] + window - 1  # from 0 to 2 · window − 2
    right_MM = column_M[:, None] - column_M[None, :] + window - 1
    return down_MM * (2 * window - 1) + right_MM
