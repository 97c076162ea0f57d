"""Attention: every position gathers from the positions it may see.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
    MultiHead(X, M)    = concat(head_1 … head_h) W_out,   head_i = Attention(X Wq_i, M Wk_i, M Wv_i)

M is X itself in self-attention and the encoder's output in cross-attention. With fewer heads for keys and
values than for queries, a group of queries shares each (grouped-query attention).

Shapes: B rows · T query positions · S key positions · H heads · G key and value heads · K key width of a head ·
        V value width of a head · D model width · N rows while decoding · L positions decoded so far
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention_kernel import attend
from regard.layers.attention_trace import AttentionTrace
from regard.layers.context import Context, Memory
from regard.layers.mixer import Mixer
from regard.layers.norm import make_head_norm
from regard.layers.slots import Entering, KeySlots, MemorySlots, Places
from regard.settings import ModelSettings


class Attention(Mixer):
    """Multi-head attention over its own input, or over `context.memory` when `cross`.

    Its weights are the same in either order: whether it is `causal` is decided by the context.
    """

    title = "self-attention"
    shares_rows = True
    needs_mask = True
    has_slots = True

    def __init__(self, settings: ModelSettings, causal: bool = False, decoder: bool = False, cross: bool = False):
        super().__init__(settings, causal, decoder)
        self.cross = cross
        self.heads = settings.heads
        self.key_value_heads = settings.key_value_heads or settings.heads
        self.key_width = settings.head_key_width
        self.value_width = settings.head_value_width
        self.dropout = settings.attention_dropout
        self.rotate = settings.part("positions").rotate
        # Wq, Wk and Wv as the rows of one matrix: one product instead of three.
        self.widths = [
            self.heads * self.key_width,
            self.key_value_heads * self.key_width,
            self.key_value_heads * self.value_width,
        ]
        self.to_qkv = nn.Linear(settings.width, sum(self.widths), bias=settings.bias)
        self.to_out = nn.Linear(self.heads * self.value_width, settings.width, bias=settings.bias)
        self.query_norm = make_head_norm(settings, self.key_width)
        self.key_norm = make_head_norm(settings, self.key_width)

    def forward(self, x_BTD: Tensor, context: Context) -> Tensor:
        return self._gather(*self.project(x_BTD, context), context)

    def step(self, x_ND: Tensor, state: KeyValueCache | MemoryKeys | KeySlots | MemorySlots) -> Tensor:
        """One position further: [N, D]. Same numbers as `forward` on the whole prefix."""
        if isinstance(state, KeySlots):
            return self.to_out(state.attend(*self._own(x_ND[:, None], state.places.positions_N[:, None])))
        if isinstance(state, MemorySlots):
            return self.to_out(state.attend(self.queries(x_ND[:, None])))
        if isinstance(state, MemoryKeys):
            return self._step_across(x_ND, state)
        positions_N1 = torch.full((len(x_ND), 1), state.length, device=x_ND.device)
        q_NH1K, k_NH1K, v_NH1V = self._own(x_ND[:, None], positions_N1)
        y_NH1V = self._attend(q_NH1K, *state.append(k_NH1K, v_NH1V))
        return self.to_out(y_NH1V.flatten(1))

    def start(self, rows: int, max_length: int, like: Tensor, memory: Memory | None = None) -> KeyValueCache:
        """The state before the first position."""
        return KeyValueCache(self, rows, max_length, like)

    def start_across(self, memory_BSD: Tensor, segments_BS: Tensor) -> MemoryKeys:
        """The keys and values of the memory, computed once for all steps."""
        return MemoryKeys(self, memory_BSD, segments_BS)

    def start_slots(self, places: Places, like: Tensor) -> KeySlots:
        """The state of texts that enter and leave one by one."""
        return KeySlots(self, places, places.length, like)

    def prefill(self, x_BTD: Tensor, context: Context, state: KeyValueCache | Entering) -> Tensor:
        """`forward`, with the keys and values cached for the steps that follow."""
        q_BHTK, k_BHTK, v_BHTV = self.project(x_BTD, context)
        state.append(k_BHTK, v_BHTV)
        return self._gather(q_BHTK, k_BHTK, v_BHTV, context)

    def trace(self, x_BTD: Tensor, context: Context) -> AttentionTrace:
        """The formula written out."""
        q_BHTK, k_BGSK, v_BGSV = self.project(x_BTD, context)
        group = self.heads // self.key_value_heads
        k_BHSK, v_BHSV = k_BGSK.repeat_interleave(group, 1), v_BGSV.repeat_interleave(group, 1)
        scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(self.key_width)
        mask = self.mask(context)
        if mask is None and context.causal and not self.cross:
            mask = torch.ones_like(scores_BHTS, dtype=torch.bool).tril()
        if mask is not None:
            scores_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf)
        return AttentionTrace.from_scores(q_BHTK, k_BHSK, v_BHSV, scores_BHTS, self.to_out, across=self.cross)

    def project(self, x_BTD: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Queries from `x`; keys and values from `x`, or from the memory when across."""
        if self.cross:
            assert context.memory is not None
            k_BHSK, v_BHSV = self.keys_and_values(context.memory.states_BSD)
            return self.queries(x_BTD), k_BHSK, v_BHSV
        return self._own(x_BTD, context.positions_BT)

    def mask(self, context: Context) -> Tensor | None:
        """True where a query may look at a key: [B, 1, T, S]; None where only the order decides, or nothing."""
        if not self.cross:
            return context.mask_B1TT
        assert context.memory is not None
        return context.memory.mask_B1TS

    def queries(self, x_BTD: Tensor) -> Tensor:
        rows = slice(0, self.widths[0])
        return self.split_queries(self._product(x_BTD, rows))

    def split_queries(self, q_BTX: Tensor) -> Tensor:
        return self.query_norm(self._split(q_BTX, self.heads))

    def keys_and_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        rows = slice(self.widths[0], None)
        kv_BSX = self._product(memory_BSD, rows)
        k_BSX, v_BSX = kv_BSX.split(self.widths[1:], dim=-1)
        return self.key_norm(self._split(k_BSX, self.key_value_heads)), self._split(v_BSX, self.key_value_heads)

    def _step_across(self, x_ND: Tensor, memory: MemoryKeys) -> Tensor:
        """The N = B·beams hypotheses of B sentences are B rows of queries: the memory is never copied."""
        sentences = len(memory.keys_BHSK)
        q_BHTK = self.queries(x_ND.view(sentences, -1, x_ND.shape[-1]))
        y_BHTV = self._attend(q_BHTK, memory.keys_BHSK, memory.values_BHSV, memory.mask_B11S)
        return self.to_out(y_BHTV.transpose(1, 2).flatten(2)).flatten(0, 1)

    def _own(self, x_BTD: Tensor, positions_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the same positions."""
        q_BTX, k_BTX, v_BTX = self.to_qkv(x_BTD).split(self.widths, dim=-1)
        return self.in_heads(q_BTX, k_BTX, v_BTX, positions_BT)

    def in_heads(
        self, q_BTX: Tensor, k_BTX: Tensor, v_BTX: Tensor, positions_BT: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        q_BHTK = self.query_norm(self._split(q_BTX, self.heads))
        k_BGTK = self.key_norm(self._split(k_BTX, self.key_value_heads))
        q_BHTK, k_BGTK = self.rotate(q_BHTK, positions_BT), self.rotate(k_BGTK, positions_BT)
        return q_BHTK, k_BGTK, self._split(v_BTX, self.key_value_heads)

    def _gather(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, context: Context) -> Tensor:
        """What every position takes from those it may see: [B, T, D]."""
        return self.to_out(self.gathered(q_BHTK, k_BGSK, v_BGSV, context))

    def gathered(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, context: Context) -> Tensor:
        """The same before the last product, with the heads side by side: [B, T, H·V]."""
        mask = self.mask(context)
        y_BHTV = self._attend(q_BHTK, k_BGSK, v_BGSV, mask, causal=mask is None and context.causal and not self.cross)
        return y_BHTV.transpose(1, 2).flatten(2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The fused kernel; `trace` writes it out."""
        dropout = self.dropout if self.training else 0.0
        grouped = self.key_value_heads != self.heads
        return attend(q, k, v, mask, dropout, causal, grouped)

    def _product(self, x: Tensor, rows: slice) -> Tensor:
        """Only some rows of the matrix."""
        layer: Any = self.to_qkv
        if not isinstance(layer, nn.Linear):  # in eight bits
            return layer.part(x, rows)  # type: ignore[no-any-return]
        return F.linear(x, layer.weight[rows], layer.bias[rows] if layer.bias is not None else None)

    def _split(self, x_BTX: Tensor, heads: int) -> Tensor:
        return x_BTX.unflatten(-1, (heads, -1)).transpose(1, 2)


class KeyValueCache:
    """Keys and values of the positions decoded so far, in memory allocated once."""

    def __init__(self, attention: Attention, rows: int, max_length: int, like: Tensor):
        heads = attention.key_value_heads
        self.keys_NHLK = like.new_empty(rows, heads, max_length, attention.key_width)
        self.values_NHLV = like.new_empty(rows, heads, max_length, attention.value_width)
        self.length = 0

    def append(self, k_NHTK: Tensor, v_NHTV: Tensor) -> tuple[Tensor, Tensor]:
        """Add one or more positions; all keys and values so far."""
        new = slice(self.length, self.length + k_NHTK.shape[2])
        self.keys_NHLK[:, :, new] = k_NHTK
        self.values_NHLV[:, :, new] = v_NHTV
        self.length = new.stop
        return self.keys_NHLK[:, :, : self.length], self.values_NHLV[:, :, : self.length]

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        if len(rows_N) == len(self.keys_NHLK):
            self.keys_NHLK[:, :, : self.length] = self.keys_NHLK[rows_N, :, : self.length]
            self.values_NHLV[:, :, : self.length] = self.values_NHLV[rows_N, :, : self.length]
        else:
            self.keys_NHLK, self.values_NHLV = self.keys_NHLK[rows_N], self.values_NHLV[rows_N]


class MemoryKeys:
    """Keys and values of the encoder's output: one row per sentence, however many hypotheses it has."""

    def __init__(self, attention: Attention, memory_BSD: Tensor, segments_BS: Tensor):
        self.keys_BHSK, self.values_BHSV = attention.keys_and_values(memory_BSD)
        self.mask_B11S = (segments_BS != 0)[:, None, None, :]
