"""Loss and gradient of one micro-batch; and how a GPU records once what it then replays.

A small model is a thousand small kernels per step, and starting them one by one takes longer than running
them. Batches never change shape, so what is computed from one is captured in one CUDA graph:
every later step copies its batch into the same memory and replays.

What is compiled is one block: all blocks run the same code, so it is compiled once for all of them, in a
fraction of the time that the whole model takes, and the graph makes up for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from regard import console
from regard.hardware import Hardware
from regard.layers.attention_kernel import cudnn_attention
from regard.layers.block import Block
from regard.models.stack import eight_bits
from regard.training.replayed import CAPTURE, WARM_UP

COMPILED: type[nn.Module] = Block  # Trunk: all blocks as one, which takes that many times longer to compile


class Backward:
    """`backward(batch, targets)` adds the gradient of loss / targets to every parameter; returns that loss."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor], hardware: Hardware, captured: bool = True):
        """`captured`: on a GPU, as a graph; that takes a loss which never waits for the device."""
        self.captured = captured and hardware.device.type == "cuda"
        self.model, self.loss, self.hardware = model, loss, hardware
        self.compiled, self.cudnn = hardware.compile, hardware.cudnn_attention
        self.scale, self.result = torch.zeros(2, device=hardware.device).unbind()
        self.graphs = Graphs(self._compute, self._same_gradients, hardware.device)

    def __call__(self, batch: Any, targets: int) -> Tensor:
        if not self.captured:
            return self.compute(batch.to(self.hardware.device), torch.tensor(1 / targets))
        self.scale.fill_(1 / targets)
        self.graphs(batch)
        return self.result.clone()

    def compute(self, batch: Any, scale: Tensor) -> Tensor:
        try:
            compiled = _compiled_blocks(self.model) if self.compiled else nullcontext()
            with self.hardware.autocast(), eight_bits(self.hardware.eight_bits), cudnn_attention(self.cudnn), compiled:
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

    def _compute(self, batch: Any) -> None:
        self.result.copy_(self.compute(batch, self.scale))

    @contextmanager
    def _same_gradients(self) -> Iterator[None]:
        """Afterwards every gradient is as before; where there was none, zero: a graph adds to the same memory."""
        parameters = list(self.model.parameters())
        saved = [parameter.grad.clone() if parameter.grad is not None else None for parameter in parameters]
        yield
        for parameter, before in zip(parameters, saved, strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(before) if before is not None else parameter.grad.zero_()


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


class Graphs:
    """`function(batch)` as a CUDA graph for each shape of batch: captured when a shape is first seen, then replayed.

    There may be several: rows of one sentence come in a few lengths, and micro-batches may differ by a row.
    The function works on tensors that stay where they are. Before it is captured it is called a few times, inside
    `rehearsal`, a context that leaves everything as it was.
    """

    def __init__(
        self,
        function: Callable[[Any], None],
        rehearsal: Callable[[], AbstractContextManager[None]],
        device: torch.device,
    ):
        self.function, self.rehearsal, self.device = function, rehearsal, device
        self.of_shape: dict[tuple[torch.Size, ...], tuple[Any, torch.cuda.CUDAGraph]] = {}
        if device.type == "cuda":
            # One after the other, never two at a time, graphs of all shapes can work in the same memory.
            self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def __call__(self, batch: Any) -> None:
        tensors = batch.tensors()
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self.of_shape:
            own = batch.to(self.device)
            self.of_shape[shapes] = own, self._capture(own)
        own, graph = self.of_shape[shapes]
        piece = getattr(batch, "piece", None)
        if piece is not None and own.piece is not None:
            own.piece.copy_(piece, non_blocking=True)
        else:
            for static, tensor in zip(own.tensors(), tensors, strict=True):
                static.copy_(tensor, non_blocking=True)
        graph.replay()

    def _capture(self, batch: Any) -> torch.cuda.CUDAGraph:
        random_state = torch.cuda.get_rng_state(self.device)
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        with self.rehearsal():
            self.stream.wait_stream(current)
            with torch.cuda.stream(self.stream):
                # Lets libraries choose their kernels, and allocates what stays.
                for _ in range(WARM_UP):
                    self.function(batch)
            current.wait_stream(self.stream)
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode=CAPTURE):
                self.function(batch)
        # Warming up has drawn random numbers. A step must not depend on whether a graph was captured in it: in a
        # resumed run it is, where in the uninterrupted one it was not.
        torch.cuda.set_rng_state(random_state, self.device)
        return graph
