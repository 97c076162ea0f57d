"""Feedback: every block sees what all blocks have made of the positions before (Fan et al., 2020).

    m_t = Σ_l softmax(w)_l x_t^l                     l = 0 … L: the embedding, and what each block gives
    k_t, v_t = W_k m_t, W_v m_t                      once for all blocks, or for each block with its own W
    Attn(x_t) = Σ_s softmax_s(q_t · (k_{t−s} + p_s) / √K) v_{t−s}          s = 1 … S,  q_t = W_q x_t

A position attends to memories of the past only; itself it has in the residual stream. Positions are relative: p_s is
learned for each distance s. Before the first position, memories are zeros, and so are their keys and values: W_k and
W_v have no bias. (One would change nothing: in q · k it would be the same for all memories, and the weights of the
values add up to 1, so that of W_out stands for it.) In pre-norm models, m_t is normalised first, as x_t is.

Shapes: N rows at one position · L blocks · S memories in sight · D model width · H heads · G key and value heads ·
        K key width of a head · V value width of a head
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.layers.mixer import Mixer
from regard.layers.norm import make_head_norm, make_norm
from regard.settings import CausalModel


class FeedbackAttention(Mixer):
    """Of one block: it looks at memories, one position at a time. `models/feedback.py` writes them."""

    title = "attention to memories"

    def __init__(self, settings: CausalModel):
        super().__init__(settings, causal=True)
        self.heads, self.key_width = settings.heads, settings.head_key_width
        self.key_value_heads = settings.key_value_heads or settings.heads
        self.to_queries = nn.Linear(settings.width, self.heads * self.key_width, bias=settings.bias)
        self.query_norm = make_head_norm(settings, self.key_width)
        self.distances_SK = nn.Parameter(torch.zeros(settings.feedback_span, self.key_width))  # the furthest first
        self.to_out = nn.Linear(self.heads * settings.head_value_width, settings.width, bias=settings.bias)
        self.dropout = nn.Dropout(settings.attention_dropout)

    def step(self, x_ND: Tensor, state: Window) -> Tensor:
        """What one position takes from the memories: [N, D]."""
        q_NHK = self.query_norm(self.to_queries(x_ND).unflatten(-1, (self.heads, self.key_width)))
        k_NHSK, v_NHSV = self._for_all_heads(state.keys_NGSK), self._for_all_heads(state.values_NGSV)
        # Sums, not matrix products: with one query to each row and head, those take twice as long on a CPU.
        scores_NHS = (q_NHK[:, :, None] * k_NHSK).sum(-1) + q_NHK @ self.distances_SK.T
        weights_NHS = self.dropout(torch.softmax(scores_NHS / math.sqrt(self.key_width), dim=-1))
        y_NHV = (weights_NHS[..., None].to(v_NHSV.dtype) * v_NHSV).sum(2)
        return self.to_out(y_NHV.flatten(1))

    def _for_all_heads(self, x_NGSK: Tensor) -> Tensor:
        group = self.heads // self.key_value_heads
        return x_NGSK if group == 1 else x_NGSK.repeat_interleave(group, 1)

    def no_decay(self) -> Iterable[nn.Parameter]:
        yield self.distances_SK


class FeedbackMemory(nn.Module):
    """Writes what a position is remembered by."""

    def __init__(self, settings: CausalModel):
        super().__init__()
        self.key_value_heads = settings.key_value_heads or settings.heads
        self.widths = [settings.head_key_width, settings.head_value_width]
        self.span = settings.feedback_span
        self.of_layers = nn.Parameter(torch.zeros(settings.layers + 1))  # w
        self.norm = make_norm(settings) if settings.norm == "pre" else nn.Identity()
        # W_k and W_v as the rows of one matrix: one for all blocks, or one for each.
        count = 1 if settings.feedback == "shared" else settings.layers
        size = self.key_value_heads * sum(self.widths)
        self.to_keys_values = nn.ModuleList(nn.Linear(settings.width, size, bias=False) for _ in range(count))
        self.key_norms = nn.ModuleList(make_head_norm(settings, self.widths[0]) for _ in range(count))

    def start(self, rows: int, like: Tensor) -> list[Window]:
        """Zeros, before the first position."""
        shape = rows, self.key_value_heads, self.span
        keys_NGSK, values_NGSV = (like.new_zeros(*shape, width) for width in self.widths)
        return [Window(keys_NGSK, values_NGSV) for _ in self.to_keys_values]

    def remember(self, layers_LND: list[Tensor], windows: list[Window]) -> None:
        """One position more: what the embedding and every block made of it."""
        m_ND = self.norm(torch.einsum("l,lnd->nd", self.of_layers.softmax(0), torch.stack(layers_LND)))
        for project, key_norm, window in zip(self.to_keys_values, self.key_norms, windows, strict=True):
            k_NGK, v_NGV = project(m_ND).unflatten(-1, (self.key_value_heads, -1)).split(self.widths, dim=-1)
            window.append(key_norm(k_NGK), v_NGV)


@dataclass
class Window:
    """Keys and values of the last S memories, the newest at the end."""

    keys_NGSK: Tensor
    values_NGSV: Tensor

    def append(self, k_NGK: Tensor, v_NGV: Tensor) -> None:
        """One memory comes, and the oldest goes. New tensors: training still needs the old ones."""
        self.keys_NGSK = torch.cat([self.keys_NGSK[:, :, 1:].to(k_NGK.dtype), k_NGK[:, :, None]], dim=2)
        self.values_NGSV = torch.cat([self.values_NGSV[:, :, 1:].to(v_NGV.dtype), v_NGV[:, :, None]], dim=2)

    def keep(self, stays_N: Tensor) -> None:
        """Only these rows keep their memories; the others begin anew."""
        stays_N111 = stays_N[:, None, None, None]
        self.keys_NGSK, self.values_NGSV = self.keys_NGSK * stays_N111, self.values_NGSV * stays_N111

    def select(self, rows_N: Tensor) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""
        self.keys_NGSK, self.values_NGSV = self.keys_NGSK[rows_N], self.values_NGSV[rows_N]
