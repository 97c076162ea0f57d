"""Local attention: every position sees a window of its neighbours, at a cost that grows with the length only.

    y_t = Attention(q_t, k_s, v_s)      over t − W < s ≤ t, and in both directions over |t − s| < W

The sequence is cut into blocks of W positions. What a position may see lies in its own block, the one before,
and, in both directions, the one after; so T · 2W (or T · 3W) scores are computed instead of T².

Shapes: B rows · T positions · N blocks · W window · H heads · K key width · V value width · D model width
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from regard.layers.attention import Attention, KeyValueCache
from regard.layers.context import Context, Memory, same_segment
from regard.layers.slots import KeySlots, Places
from regard.settings import ModelSettings, PartSettings


class LocalSettings(PartSettings):
    window: int = Field(64, gt=0, description="positions that each sees, itself included (to each side)")


class LocalAttention(Attention):
    Settings = LocalSettings
    title = "local self-attention"
    needs_mask = False

    def __init__(self, settings: ModelSettings, causal: bool = False, decoder: bool = False):
        super().__init__(settings, causal, decoder)
        self.window = settings.own("mixer", LocalSettings).window

    @classmethod
    def remarks(cls, settings: ModelSettings, length: int) -> list[str]:
        window = settings.own("mixer", LocalSettings).window
        if window < length:
            return []
        return [f"model.local.window = {window} reaches over a row of {length}: local attention is then attention."]

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> WindowCache:
        return WindowCache(self, rows, min(self.window, max_length), like)

    def start_slots(self, places: Places, like: Tensor) -> KeySlots:
        return KeySlots(self, places, self.window, like)

    def mask(self, context: Context) -> Tensor | None:
        """The whole [B, 1, T, T], for looking at; `forward` never computes it."""
        length = context.positions_BT.shape[1]
        distance_TT = _distances(torch.arange(length), torch.arange(length)).to(context.positions_BT.device)
        mask = _near(distance_TT, self.window, context.causal)[None, None]
        return mask if context.segments_BT is None else mask & same_segment(context.segments_BT, context.segments_BT)

    def _gather(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTV: Tensor, context: Context) -> Tensor:
        rows, _, length, _ = q_BHTK.shape
        window = min(self.window, length)
        q_BNHWK, k_BNHWK, v_BNHWV = (_blocks(x, window) for x in (q_BHTK, k_BGTK, v_BGTV))
        around = (-1, 0) if context.causal else (-1, 0, 1)
        # Blocks become rows of a batch, so that the fused kernel sees ordinary attention of W on 2W or 3W.
        k_BNHSK, v_BNHSV = (torch.cat([_shifted(x, by) for by in around], dim=3) for x in (k_BNHWK, v_BNHWV))
        mask = self._mask_of_blocks(context, rows, length, window, len(around))
        y_XHWV = self._attend(q_BNHWK.flatten(0, 1), k_BNHSK.flatten(0, 1), v_BNHSV.flatten(0, 1), mask)
        y_BTX = y_XHWV.transpose(1, 2).flatten(2).unflatten(0, (rows, -1)).flatten(1, 2)
        return self.to_out(y_BTX[:, :length])

    def _mask_of_blocks(self, context: Context, rows: int, length: int, window: int, blocks_seen: int) -> Tensor:
        """True where a position of a block may look at one of the blocks seen: [B · N, 1, W, 2W or 3W]."""
        device = context.positions_BT.device
        blocks = -(-length // window)
        own_W, seen_S = torch.arange(window, device=device), torch.arange(blocks_seen * window, device=device)
        near_WS = _near(_distances(own_W + window, seen_S), self.window, context.causal)
        # Where each block looks, in the row; outside of it there is nothing.
        looked_at_NS = torch.arange(blocks, device=device)[:, None] * window - window + seen_S
        inside_NS = (looked_at_NS >= 0) & (looked_at_NS < length)
        if context.segments_BT is None:
            mask_NWS = near_WS & inside_NS[:, None]
            # Padding at the end of the last block may look anywhere: nobody reads it, and softmax needs something.
            outside_NW1 = (looked_at_NS[:, window : 2 * window] >= length)[..., None]
            return (mask_NWS | outside_NW1)[None, :, None].expand(rows, -1, -1, -1, -1).flatten(0, 1)
        own_BNW = F.pad(context.segments_BT, (0, blocks * window - length)).unflatten(1, (blocks, window))
        seen_BNS = context.segments_BT[:, looked_at_NS.clamp(0, length - 1)]
        together = same_segment(own_BNW.flatten(0, 1), seen_BNS.flatten(0, 1))
        allowed_NWS = near_WS & inside_NS[:, None]
        mask = together & allowed_NWS.repeat(rows, 1, 1)[:, None]
        return mask | (own_BNW == 0).flatten(0, 1)[:, None, :, None]


class WindowCache(KeyValueCache):
    """Keys and values of the last positions only: the memory does not grow with the text."""

    def __init__(self, attention: Attention, rows: int, window: int, like: Tensor):
        super().__init__(attention, rows, window, like)
        self.window = window
        self.filled = 0

    def append(self, k_NHTK: Tensor, v_NHTV: Tensor) -> tuple[Tensor, Tensor]:
        """Add one or more positions; the keys and values that the newest may see."""
        cached = slice(0, self.filled)
        keys = torch.cat([self.keys_NHLK[:, :, cached], k_NHTK], dim=2)[:, :, -self.window :]
        values = torch.cat([self.values_NHLV[:, :, cached], v_NHTV], dim=2)[:, :, -self.window :]
        self.filled = keys.shape[2]
        self.keys_NHLK[:, :, : self.filled], self.values_NHLV[:, :, : self.filled] = keys, values
        self.length += k_NHTK.shape[2]
        return keys, values

    def select(self, rows_N: Tensor) -> None:
        self.keys_NHLK, self.values_NHLV = self.keys_NHLK[rows_N], self.values_NHLV[rows_N]


def _near(distance: Tensor, window: int, causal: bool) -> Tensor:
    return (distance < window) & (distance >= (0 if causal else 1 - window))


def _distances(queries_T: Tensor, keys_S: Tensor) -> Tensor:
    """How far each key lies behind each query."""
    return queries_T[:, None] - keys_S[None, :]


def _blocks(x_BHTK: Tensor, window: int) -> Tensor:
    """[B, H, T, K] cut into blocks, the last one filled up: [B, N, H, W, K]."""
    length = x_BHTK.shape[2]
    x_BHTK = F.pad(x_BHTK, (0, 0, 0, -length % window))
    return x_BHTK.unflatten(2, (-1, window)).transpose(1, 2)


def _shifted(x_BNHWK: Tensor, by: int) -> Tensor:
    """For every block, the one `by` further; zeros where there is none."""
    if by == 0:
        return x_BNHWK
    blocks = x_BNHWK.shape[1]
    if by < 0:
        return F.pad(x_BNHWK, (0, 0, 0, 0, 0, 0, 1, 0))[:, :blocks]
    return F.pad(x_BNHWK, (0, 0, 0, 0, 0, 0, 0, 1))[:, 1:]
