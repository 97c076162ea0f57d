"""Loss and gradient of one micro-batch; on a GPU recorded once and then replayed.

A small model is a thousand small kernels per step, and starting them one by one takes longer than running
them. Batches never change shape, so the whole of forward and backward is captured in one CUDA graph:
every later step copies its batch into the same memory and replays.

What is compiled is one block: all blocks run the same code, so it is compiled once for all of them, in a
fraction of the time that the whole model takes, and the graph makes up for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from regard import console
from regard.hardware import Hardware
from regard.layers.attention_kernel import cudnn_attention
from regard.layers.block import Block
from regard.training.replayed import WARM_UP

COMPILED: type[nn.Module] = Block  # Trunk: all blocks as one, which takes that many times longer to compile


class Backward:
    """`backward(batch, targets)` adds the gradient of loss / targets to every parameter; returns that loss."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor], hardware: Hardware):
        self.model, self.loss, self.hardware = model, loss, hardware
        self.compiled, self.cudnn = hardware.compile, hardware.cudnn_attention
        self.graphs: dict[tuple[torch.Size, ...], _Captured] = {}
        if hardware.device.type == "cuda":
            # One after the other, never two at a time, graphs of all shapes can work in the same memory.
            self.stream, self.pool = torch.cuda.Stream(hardware.device), torch.cuda.graph_pool_handle()

    def __call__(self, batch: Any, targets: int) -> Tensor:
        if self.hardware.device.type != "cuda":
            return self.compute(batch, torch.tensor(1 / targets))
        # There may be several: rows of one sentence come in a few lengths, and micro-batches may differ by a row.
        shapes = tuple(tensor.shape for tensor in batch.tensors())
        if shapes not in self.graphs:
            self.graphs[shapes] = _Captured(self, batch)
        return self.graphs[shapes].replay(batch, targets)

    def compute(self, batch: Any, scale: Tensor) -> Tensor:
        try:
            compiled = _compiled_blocks(self.model) if self.compiled else nullcontext()
            with self.hardware.autocast(), cudnn_attention(self.cudnn), compiled:
                loss = self.loss(batch) * scale
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            # For instance where there is no C compiler: slower, but not the end.
            console.warn(f"torch.compile does not work here ({str(error).splitlines()[0]}); continuing without it.")
            self.compiled = False
            return self.compute(batch, scale)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


@contextmanager
def _compiled_blocks(model: nn.Module) -> Iterator[None]:
    """The blocks compiled for as long as the gradient is computed; validation runs them as they are."""
    blocks = [module for module in model.modules() if isinstance(module, COMPILED)]
    for block in blocks:
        block.compile(dynamic=False)
    try:
        yield
    finally:
        for block in blocks:
            block._compiled_call_impl = None


class _Captured:
    """Forward and backward of one shape of batch, as one CUDA graph."""

    def __init__(self, backward: Backward, example: Any):
        device = backward.hardware.device
        self.batch = example.to(device)
        self.scale = torch.zeros((), device=device)
        random_state = torch.cuda.get_rng_state(device)
        gradients = [parameter.grad for parameter in backward.model.parameters()]
        saved = [gradient.clone() if gradient is not None else None for gradient in gradients]
        stream = backward.stream
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            # Lets libraries choose their kernels and gives every parameter a gradient; scaled by 0.
            for _ in range(WARM_UP):
                backward.compute(self.batch, self.scale)
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=backward.pool):
            self.loss = backward.compute(self.batch, self.scale)
        for parameter, before in zip(backward.model.parameters(), saved, strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(before) if before is not None else parameter.grad.zero_()
        # Warming up has drawn random numbers. A step must not depend on whether a graph was captured in it: in a
        # resumed run it is, where in the uninterrupted one it was not.
        torch.cuda.set_rng_state(random_state, device)

    def replay(self, batch: Any, targets: int) -> Tensor:
        for static, tensor in zip(self.batch.tensors(), batch.tensors(), strict=True):
            static.copy_(tensor, non_blocking=True)
        self.scale.fill_(1 / targets)
        self.graph.replay()
        return self.loss.clone()
