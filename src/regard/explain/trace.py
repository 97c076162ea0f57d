"""Trace: what a model computed, recomputed in the open.

The fast path never writes down attention weights. A trace runs the model as it is, catches what goes
into and comes out of each attention, and computes from that input, step by step, what the fused kernel
computed inside:

    scores = Q Kᵀ / √d_k        weights = softmax(scores, where allowed)        output = weights V · W_out

Additive attention is traced in the same way, as one head; its scores are vᵀ tanh(Q + K) and its values the memory.
Attention in windows is traced over the whole grid, with no weight from window to window.

Shapes: B rows · T query positions · S key positions · H heads · K key width · V value width · D model width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.additive import AdditiveAttention
from regard.layers.attention import Attention
from regard.layers.context import Context
from regard.layers.windows import WindowAttention


@dataclass(frozen=True)
class AttentionTrace:
    """Every quantity of one attention."""

    queries_BHTK: Tensor
    keys_BHSK: Tensor
    values_BHSV: Tensor
    scores_BHTS: Tensor
    weights_BHTS: Tensor
    heads_BHTV: Tensor
    output_BTD: Tensor
    fast_output_BTD: Tensor  # what the model itself got, for comparison


Trace = dict[str, AttentionTrace]


@torch.inference_mode()
def trace(model: nn.Module, run: Callable[[], Any], layers: Collection[str] | None = None) -> Trace:
    """Call `run`, and return the trace of each attention in `model`, by its name ('decoder.0.cross').

    `layers` limits it to these names; `run` must call the model on whole sequences, not step by step.
    """
    found: Trace = {}
    with _watched(model, found, layers):
        run()
    return found


def recompute(attention: Attention, x_BTD: Tensor, context: Context, fast_output_BTD: Tensor) -> AttentionTrace:
    """Attention written out as in the paper."""
    q_BHTK, k_BHSK, v_BHSV = attention.project(x_BTD, context)
    group = attention.heads // attention.key_value_heads
    k_BHSK, v_BHSV = k_BHSK.repeat_interleave(group, 1), v_BHSV.repeat_interleave(group, 1)
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(attention.key_width)
    mask = attention.mask(context)
    if mask is None and context.causal:
        mask = torch.ones_like(scores_BHTS, dtype=torch.bool).tril()
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf)
    weights_BHTS = scores_BHTS.softmax(dim=-1)
    heads_BHTV = weights_BHTS @ v_BHSV
    output_BTD = attention.to_out(heads_BHTV.transpose(1, 2).flatten(2))
    return AttentionTrace(q_BHTK, k_BHSK, v_BHSV, scores_BHTS, weights_BHTS, heads_BHTV, output_BTD, fast_output_BTD)


def recompute_additive(
    attention: AdditiveAttention, x_BTD: Tensor, context: Context, fast_output_BTD: Tensor
) -> AttentionTrace:
    """Bahdanau's attention written out."""
    assert context.memory is not None
    memory_BSD, mask_B1TS = context.memory.states_BSD, context.memory.mask_B1TS
    q_B1TD, k_B1SD = attention.to_query(x_BTD)[:, None], attention.to_key(memory_BSD)[:, None]
    sums_B1TSD = q_B1TD[:, :, :, None] + k_B1SD[:, :, None]
    scores_B1TS = torch.tanh(sums_B1TSD) @ attention.energy.weight[0]
    scores_B1TS = scores_B1TS.masked_fill(~mask_B1TS, -torch.inf)
    weights_B1TS = scores_B1TS.softmax(dim=-1)
    heads_B1TD = weights_B1TS @ memory_BSD[:, None]
    output_BTD = attention.to_out(heads_B1TD[:, 0])
    return AttentionTrace(
        q_B1TD, k_B1SD, memory_BSD[:, None], scores_B1TS, weights_B1TS, heads_B1TD, output_BTD, fast_output_BTD
    )


def recompute_windows(
    attention: WindowAttention, x_BTD: Tensor, context: Context, fast_output_BTD: Tensor
) -> AttentionTrace:
    """Attention in windows written out over the grid, without cutting or rolling it."""
    q_BHTK, k_BHTK, v_BHTK = (
        part_BTD.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        for part_BTD in attention.to_qkv(x_BTD).chunk(3, dim=-1)
    )
    q_BHTK, k_BHTK = attention.query_norm(q_BHTK), attention.key_norm(k_BHTK)
    scores_BHTT = q_BHTK @ k_BHTK.transpose(-2, -1) / math.sqrt(q_BHTK.shape[-1]) + attention.bias_over_grid()
    weights_BHTT = scores_BHTT.softmax(dim=-1)
    heads_BHTK = weights_BHTT @ v_BHTK
    output_BTD = attention.to_out(heads_BHTK.transpose(1, 2).flatten(2))
    return AttentionTrace(q_BHTK, k_BHTK, v_BHTK, scores_BHTT, weights_BHTT, heads_BHTK, output_BTD, fast_output_BTD)


@contextmanager
def _watched(model: nn.Module, found: Trace, layers: Collection[str] | None) -> Iterator[None]:
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, (Attention, AdditiveAttention, WindowAttention)) and (layers is None or name in layers):

            def note(attention: nn.Module, inputs: tuple[Tensor, Context], output: Tensor, name: str = name) -> None:
                if isinstance(attention, AdditiveAttention):
                    found[name] = recompute_additive(attention, *inputs, output)
                elif isinstance(attention, WindowAttention):
                    found[name] = recompute_windows(attention, *inputs, output)
                elif isinstance(attention, Attention):
                    found[name] = recompute(attention, *inputs, output)

            handles.append(module.register_forward_hook(note))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
