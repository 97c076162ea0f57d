"""Trace: what a model computed, recomputed in the open.

The fast path never writes down attention weights. A trace runs the model as it is, catches what goes into and comes
out of each attention, and has the attention compute from that input, step by step, what the fused kernel computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention_trace import AttentionTrace
from regard.layers.context import Context

Trace = dict[str, AttentionTrace]


@torch.inference_mode()
def trace(model: nn.Module, run: Callable[[], Any], layers: Collection[str] | None = None) -> Trace:
    """Call `run`, and return the trace of each attention in `model`, by its name ('decoder.0.cross').

    `layers` limits it to these names; `run` must call the model on whole sequences, not step by step.
    """
    traces: Trace = {}
    with _watched(model, traces, layers):
        run()
    return traces


@contextmanager
def _watched(model: nn.Module, traces: Trace, layers: Collection[str] | None) -> Iterator[None]:
    handles = []
    for name, module in model.named_modules():
        if hasattr(module, "trace") and (layers is None or name in layers):

            def note(attention: Any, inputs: tuple[Tensor, Context], output: Tensor, name: str = name) -> None:
                traces[name] = dataclasses.replace(attention.trace(*inputs), fast_output_BTD=output)

            handles.append(module.register_forward_hook(note))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
